import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import finetti.claims
from finetti._version import __version__
from finetti.claims import Claim, Control, Evidence, Ledger, Verdict, close
from finetti.cli.main import app
from finetti.core.errors import FinettiError

PATIENCE = 600  # seconds: only what hangs takes that long


def yes(context):
    """Zero."""
    return Evidence(close("the zero", 3e-16, 1e-10))


def no(context):
    return Evidence(close("the one", 1.0, 1e-10), derived=(close("the derived zero", 0.0, 1e-10),))


def breaks(context):
    raise RuntimeError("no luck")


def claim(claim_id, run, **fields):
    return Claim(claim_id, "title [b]x[/b]", "A statement.", run, "(1)", **fields)


GOOD = (claim("E-eq-1", yes), claim("S-erratum-3", no, expected=Verdict.FAILS, erratum="Prints 2."))


@pytest.fixture
def finetti_command(monkeypatch):
    """The command with a ledger of the test's own."""

    def run(*arguments, claims=GOOD, **options):
        monkeypatch.setattr(finetti.claims, "load_ledger", lambda: Ledger(claims))
        return CliRunner().invoke(app, arguments, **options)

    return run


def python(*arguments, **options):
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, **options
    )


def is_one_sentence_of_advice(result):
    return (
        result.exit_code == 2
        and result.stderr.count("\n") == 1
        and "Traceback" not in result.stderr
    )


def test_version():
    done = python("-m", "finetti", "--version")
    assert (done.returncode, done.stdout) == (0, f"finetti {__version__}\n")


HELP = """
import sys
from finetti.cli.main import main
for command in ([], *([name] for name in sys.argv[1:])):
    sys.argv = ["finetti", *command, "--help"]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 0
print("LOADED", sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_help_loads_nothing_heavy():
    names = [command.name for command in app.registered_commands]
    assert {"bound", "compile", "export", "reproduce", "run"} <= set(names)
    done = python("-c", HELP, *names)
    assert done.stdout.count("Usage: finetti") == 1 + len(names), done.stderr
    usage = [line for line in done.stdout.splitlines() if "Usage: finetti" in line]
    assert not [line for line in usage if "[[" in line or "...}" in line]  # brackets once
    loaded = done.stdout.splitlines()[-1]
    assert loaded.startswith("LOADED")
    assert "'typer'" in loaded
    heavy = "jax numpy scipy altair vl_convert jinja2 equinox pandas safetensors distributed"
    assert not [name for name in heavy.split() if f"'{name}'" in loaded]


def test_claims_are_listed(finetti_command):
    result = finetti_command("claims")
    assert result.exit_code == 0
    for part in ("E-eq-1", "S-erratum-3", "title [b]x[/b]", "Zhang et al. (2022), (1)", "fails"):
        assert part in result.stdout
    assert "S-erratum-3" not in finetti_command("claims", "--paper", "e").stdout


def test_claims_are_filtered_by_their_check(finetti_command):
    assert "E-eq-1" in finetti_command("claims", "--check", "identity").stdout
    assert "E-eq-1" not in finetti_command("claims", "--check", "simulation").stdout
    assert finetti_command("claims", "--check", "belief").exit_code == 2
    result = finetti_command("reproduce", "--check", "simulation")
    assert is_one_sentence_of_advice(result)
    assert "simulation" in result.stderr


def test_one_claim_is_explained(finetti_command):
    result = finetti_command("claims", "s-ERRATUM-3")
    assert result.exit_code == 0
    for part in ("A statement.", "Edelman", "Prints 2.", "fails", "nothing is left to chance"):
        assert part in result.stdout
    assert "def no(context):" in result.stdout  # the code that checks it


def test_words_and_globs_find_claims(finetti_command):
    for words in (["E-*", "S-*"], ["statement"], ["TITLE", "[b]x"]):
        found = json.loads(finetti_command("claims", *words, "--json").stdout)
        assert [each["id"] for each in found] == ["E-eq-1", "S-erratum-3"]
    assert "checked by" in finetti_command("claims", "E-eq-1").stdout
    (only,) = json.loads(finetti_command("claims", "s-err*", "--json").stdout)
    assert only["command"] == "finetti reproduce --only S-erratum-3"
    assert only["checked_by"].endswith(": no")
    assert is_one_sentence_of_advice(finetti_command("claims", "nothing", "of", "the", "kind"))


def test_cite(finetti_command):
    assert finetti_command("claims", "--cite").stdout.count("@") == 4
    assert finetti_command("claims", "S-erratum-3", "--cite").stdout.startswith("@inproceedings{ed")
    assert list(
        json.loads(finetti_command("claims", "--cite", "--paper", "R", "--json").stdout)
    ) == ["fu2023"]


def test_claims_as_json(finetti_command):
    listed = json.loads(finetti_command("claims", "--json").stdout)
    assert [each["id"] for each in listed] == ["E-eq-1", "S-erratum-3"]
    assert json.loads(finetti_command("claims", "E-eq-1", "--json").stdout) == listed[0]


def test_reproduce_shows_verdicts(finetti_command):
    result = finetti_command("reproduce")
    assert result.exit_code == 0
    for part in ("✓ holds", "✓ fails, as expected", "3e-16 ≤ 1e-10", "1, not ≤ 1e-10"):
        assert part in result.stdout
    assert "2 of 2 verdicts as expected (scale quick, seed 0" in result.stdout
    assert "Add --out DIR" in result.stdout
    # Not a terminal: one plain line per claim instead of a progress bar.
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert [line.split(",")[0] for line in lines] == [
        "claims: 0 of 2 trials",
        "claims: 1 of 2 trials",
    ]
    assert finetti_command("reproduce", "--quiet").stderr == ""


@pytest.mark.parametrize("run", [no, breaks])
def test_one_surprise_is_exit_code_1(finetti_command, run):
    result = finetti_command("reproduce", claims=(*GOOD, claim("R-table", run)))
    assert result.exit_code == 1
    assert "expected: holds" in result.stdout
    assert ("! fails, " if run is no else "? inconclusive, ") in result.stdout
    assert "2 of 3 verdicts" in result.stdout
    assert "Traceback" not in result.stdout


def test_debug_shows_why_a_claim_broke(finetti_command):
    result = finetti_command("reproduce", "--debug", claims=(claim("R-table", breaks),))
    assert "Traceback" in result.stderr
    assert result.exit_code == 1


def test_only(finetti_command):
    result = finetti_command("reproduce", "--only", "s-*", "--seed", "3", "--scale", "PAPER")
    assert "E-eq-1" not in result.stdout
    assert "1 of 1 verdicts as expected (scale paper, seed 3" in result.stdout
    both = finetti_command("reproduce", "--only", "s-*", "--only", "E-eq-1")
    assert "2 of 2 verdicts" in both.stdout
    wrong = finetti_command("reproduce", "--only", "E-eq-2")
    assert is_one_sentence_of_advice(wrong)
    assert "E-eq-1" in wrong.stderr


def test_an_empty_ledger_is_not_a_success(finetti_command):
    assert is_one_sentence_of_advice(finetti_command("reproduce", claims=()))
    assert finetti_command("claims", claims=()).exit_code == 0


def test_json_is_the_only_thing_on_stdout(finetti_command):
    result = finetti_command("reproduce", "--json", claims=(*GOOD, claim("R-table", breaks)))
    document = json.loads(result.stdout)
    assert [each["as_expected"] for each in document["results"]] == [True, True, False]
    assert document["complete"] is True
    assert "2 of 3 verdicts" in result.stderr
    assert result.exit_code == 1


def test_quiet_is_one_line(finetti_command):
    result = finetti_command("reproduce", "--quiet")
    assert result.stdout.count("\n") == 1
    assert result.stdout.startswith("2 of 2 verdicts")


def test_out_holds_data_and_report(finetti_command, tmp_path):
    result = finetti_command("reproduce", "--out", str(tmp_path / "a" / "b"))
    assert result.exit_code == 0
    assert f"Report: {tmp_path / 'a' / 'b' / 'report.html'}" in result.stdout
    assert len(json.loads((tmp_path / "a" / "b" / "results.json").read_text())["results"]) == 2
    assert "2 of 2 verdicts as expected" in (tmp_path / "a" / "b" / "report.html").read_text()


def test_out_is_checked_before_anything_runs(finetti_command, tmp_path):
    ran = []
    (tmp_path / "file").write_text("")
    spy = claim("E-eq-1", lambda context: ran.append(1) or yes(context))
    result = finetti_command("reproduce", "--out", str(tmp_path / "file"), claims=(spy,))
    assert is_one_sentence_of_advice(result)
    assert "is a file. Choose a directory." in result.stderr
    assert not ran


def test_trouble_with_the_files_does_not_cost_the_verdicts(finetti_command, tmp_path):
    (tmp_path / "results.json").mkdir()
    result = finetti_command("reproduce", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "2 of 2 verdicts" in result.stdout
    assert "cannot be written" in result.stderr


def test_a_second_run_uses_the_evidence_again_and_says_what_changed(finetti_command, tmp_path):
    arguments = ("reproduce", "--out", str(tmp_path))
    assert finetti_command(*arguments).exit_code == 0
    again = finetti_command(*arguments, "--against", str(tmp_path / "results.json"))
    assert again.exit_code == 0
    assert "no computing time, 2 of 2 checks reused: " in again.stdout
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["seconds"] == 0
    assert document["reused"]["checks"] == document["reused"]["all_checks"] == 2
    page = (tmp_path / "report.html").read_text()
    assert page.count("no computing time, 2 of 2 checks reused: ") == 2
    assert "in an earlier run" in page
    assert "0 flipped, 0 new, 0 not in this run, 0 moved" in again.stdout
    one = finetti_command(
        *arguments, "--only", "E-eq-1", "--against", str(tmp_path / "results.json")
    )
    assert "0 new, 0 not in this run" in one.stdout  # what was not asked for is not missed
    assert "--only E-eq-1" in json.loads((tmp_path / "results.json").read_text())["command"]
    finetti_command(*arguments)
    flipped = finetti_command(
        *("reproduce", "--json", "--against", str(tmp_path / "results.json")),
        claims=(claim("E-eq-1", no), claim("E-eq-9", yes)),
    )
    assert flipped.exit_code == 1
    changes = json.loads(flipped.stdout)["changes"]
    assert [each["id"] for each in changes["flipped"]] == ["E-eq-1"]
    assert (changes["new"], changes["removed"]) == (["E-eq-9"], ["S-erratum-3"])
    wrong = finetti_command("reproduce", "--against", str(tmp_path / "report.html"))
    assert is_one_sentence_of_advice(wrong)


@pytest.mark.parametrize(("wrong", "code", "said"), [(no, 0, "1 of 1"), (yes, 1, "0 of 1")])
def test_a_control_that_nobody_notices_is_exit_code_1(finetti_command, wrong, code, said):
    controls = (Control("off by a lot", {"run": wrong}),)
    measured = claim("E-eq-1", lambda context, run=yes: run(context), controls=controls)
    result = finetti_command("reproduce", "--controls", claims=(measured,))
    assert result.exit_code == code
    assert f"{said} controls turned red" in result.stdout
    assert ("E-eq-1 does not notice: off by a lot" in result.stdout) == bool(code)


def test_undecided_is_not_as_expected_unless_allowed(finetti_command):
    undecided = (*GOOD, claim("R-table", lambda context: Evidence(close("nan", 1e999 * 0, 1))))
    assert finetti_command("reproduce", claims=undecided).exit_code == 1
    assert finetti_command("reproduce", "--allow-inconclusive", claims=undecided).exit_code == 0
    broken = (*GOOD, claim("R-table", breaks))
    assert finetti_command("reproduce", "--allow-inconclusive", claims=broken).exit_code == 1


@pytest.mark.parametrize("arguments", [("--debug", "claims", "X-1"), ("claims", "X-1", "--debug")])
def test_debug_shows_the_traceback_of_an_error(finetti_command, arguments):
    result = finetti_command(*arguments)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: No claim matches 'X-1'")


def test_unexpected_errors_are_not_hidden(monkeypatch):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr(finetti.claims, "load_ledger", broken)
    assert isinstance(CliRunner().invoke(app, ["claims"]).exception, ZeroDivisionError)


def test_a_sentence_on_several_lines_becomes_one(monkeypatch):
    def broken():
        raise FinettiError("one\n  two")

    monkeypatch.setattr(finetti.claims, "load_ledger", broken)
    assert CliRunner().invoke(app, ["claims"]).stderr == "Error: one two\n"


LEDGER = """
import finetti.claims
from finetti.claims import Claim, Evidence, Ledger, close
from finetti.cli.main import main

def fast(context):
    return Evidence(close("zero", 0.0, 1.0))

claims = Claim("E-eq-1", "≤ fast", "S.", fast), Claim("E-eq-2", "fast", "S.", fast)
finetti.claims.load_ledger = lambda: Ledger(claims)
main()
"""


def test_color_and_progress_on_a_terminal_only_without_no_color(tmp_path):
    pty = pytest.importorskip("pty", reason="pseudo-terminals are a POSIX thing")
    script = tmp_path / "fast.py"
    script.write_text(LEDGER, encoding="utf-8")

    def on_terminal(**environment):
        leader, follower = pty.openpty()
        clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen(
            [sys.executable, str(script), "reproduce"],
            stdout=follower,
            stderr=follower,
            env={**clean, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
        )
        os.close(follower)
        text = b""
        while True:
            try:
                chunk = os.read(leader, 4096)
            except OSError:
                break
            if not chunk:
                break
            text += chunk
        os.close(leader)
        assert process.wait(timeout=PATIENCE) == 0
        return text.decode()

    colored = on_terminal()
    assert "\x1b[32m" in colored  # green verdicts
    assert "0/2" in colored  # the bar
    # A terminal that knows only ASCII survives as well.
    plain = on_terminal(NO_COLOR="1", PYTHONIOENCODING="ascii")
    assert "2 of 2 verdicts" in plain
    assert plain.isascii()
    assert "\x1b[32m" not in plain


def test_the_real_ledger_is_listed():
    done = python("-m", "finetti", "claims", "--json")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), list)
