"""The ledger: found in files, in the order of the papers, selected by ids and words."""

import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import finetti
from finetti.claims import Ledger, load_ledger
from finetti.core.errors import FinettiError, InputError
from sample_claims import claim

SOURCE = Path(finetti.__file__).parent.parent
IDS = ["R-table", "E-prop-4.10", "S-erratum-3", "E-prop-4.2", "E-prop-4.1-bias", "E-prop-4.1"]
LEDGER = Ledger(tuple(map(claim, IDS)))


def ids(claims):
    return [each.id for each in claims]


def test_order_is_that_of_the_papers_and_then_natural():
    assert ids(LEDGER) == [
        "E-prop-4.1",
        "E-prop-4.1-bias",
        "E-prop-4.2",
        "E-prop-4.10",
        "S-erratum-3",
        "R-table",
    ]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("e-PROP-4.1", ["E-prop-4.1"]),
        ("E-prop-4.1*", ["E-prop-4.1", "E-prop-4.1-bias", "E-prop-4.10"]),
        ("S", ["S-erratum-3"]),
        ("bias", ["E-prop-4.1-bias"]),
        ("R-table, S-*, ", ["S-erratum-3", "R-table"]),
        ("*", ids(LEDGER)),
        ("softmax", ["E-prop-4.2"]),
        ("SOFTMAX limit", ["E-prop-4.2"]),
        ("limit softmax, bias", ["E-prop-4.1-bias", "E-prop-4.2"]),
        ("statement", ids(LEDGER)),
        ("r-TABLE S-*", ["S-erratum-3", "R-table"]),
    ],
)
def test_select_takes_ids_patterns_and_words(pattern, found):
    claims = [replace(c, title="softmax, its limit") if "4.2" in c.id else c for c in LEDGER]
    assert ids(Ledger(tuple(claims)).select(pattern)) == found


def test_words_that_no_claim_has_are_named():
    with pytest.raises(FinettiError, match="No claim matches 'soft maximum'"):
        LEDGER.select("R-table, soft maximum")


@pytest.mark.parametrize("pattern", ["E-prop-4.3", "S-*, E-prop-4.3", "E-prop-4.3*"])
def test_a_pattern_without_match_names_the_nearest_ids(pattern):
    with pytest.raises(FinettiError, match=r"'E-prop-4\.3\*?'.*Did you mean .*E-prop-4\.[12]"):
        LEDGER.select(pattern)


def test_an_empty_pattern_does_not_mean_everything():
    with pytest.raises(FinettiError, match="pattern is empty"):
        LEDGER.select(" , ")


def test_subscripts_ignore_case_and_advise():
    assert LEDGER["r-TABLE"].id == "R-table"
    with pytest.raises(FinettiError, match="R-table"):
        LEDGER["R-tabel"]
    with pytest.raises(FinettiError, match="empty"):
        Ledger(())["R-table"]


def test_duplicates_are_refused():
    with pytest.raises(FinettiError, match=r"E-prop-4\.2"):
        Ledger((claim("E-prop-4.2"), claim("E-prop-4.2")))


@pytest.mark.parametrize("claim_id", ["X-prop-1", "E", "E-", "E-Prop-1", "E-prop-4.", "E prop"])
def test_ids_are_checked(claim_id):
    with pytest.raises(InputError, match=r"E-prop-4\.1 or S-erratum-3"):
        claim(claim_id)


def test_a_share_above_one_percent_is_refused():
    with pytest.raises(InputError, match="false_alarm"):
        claim("E-prop-1", false_alarm=0.05)


CLAIM_FILE = """
from finetti.claims.claim import Claim
from finetti.claims.evidence import Evidence, close

def run(context):
    "Zero."
    import jax
    return Evidence(close("zero", 0.0, 1.0))

LABEL = Claim("{id}", "title", "Statement.", run, "Label")
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


@pytest.fixture
def shelf(tmp_path, monkeypatch, request):
    """A package of claims with a name of its own, since imports are cached by name."""
    name = f"shelf_{abs(hash(request.node.name))}"
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / name / "__init__.py", "")
    write(tmp_path / name / "loose.py", CLAIM_FILE.format(id="E-loose"))
    write(tmp_path / name / "one" / "__init__.py", "")
    write(tmp_path / name / "one" / "helper.py", "x = 1")
    write(tmp_path / name / "one" / "a.py", CLAIM_FILE.format(id="E-eq-1"))
    write(tmp_path / name / "one" / "deep" / "__init__.py", "")
    write(tmp_path / name / "one" / "deep" / "b.py", CLAIM_FILE.format(id="S-eq-2"))
    return name, tmp_path / name


def test_claims_are_found_in_subpackages_at_any_depth(shelf):
    assert ids(load_ledger(shelf[0])) == ["E-eq-1", "S-eq-2"]


def test_the_same_id_in_two_files_is_refused(shelf):
    write(shelf[1] / "one" / "c.py", CLAIM_FILE.format(id="E-eq-1"))
    with pytest.raises(FinettiError, match="Two claims have the id E-eq-1"):
        load_ledger(shelf[0])


def test_a_claim_file_that_cannot_be_imported_is_not_skipped(shelf):
    write(shelf[1] / "one" / "c.py", "import no_such_module")
    with pytest.raises(ModuleNotFoundError):
        load_ledger(shelf[0])


def test_a_file_may_hold_several_claims_and_import_those_of_another(shelf):
    second = CLAIM_FILE.format(id="E-eq-2").replace("LABEL", "SECOND")
    imported = f"from {shelf[0]}.one.a import LABEL as EQ_1"
    both = CLAIM_FILE.format(id="E-eq-3") + second + imported
    write(shelf[1] / "one" / "c.py", both)
    assert ids(load_ledger(shelf[0])) == ["E-eq-1", "E-eq-2", "E-eq-3", "S-eq-2"]


CLAIMS_FILE = """
from finetti.claims.claim import Claim, Erratum

def measured(context, form="derived"):
    "Nothing."

CLAIMS = (
    Claim(id="E-eq-7", title="t", statement="S.", measure=measured,
          erratum=Erratum(3, "t", "x = 2", "Why.")),
    Claim(id="E-thm-8", title="t", statement="S.", rests_on=("{base}",)),
)
"""


def test_the_ledger_makes_the_rows_and_checks_what_claims_rest_on(shelf):
    name, place = shelf
    write(place / "one" / "c.py", CLAIMS_FILE.format(base="E-eq-7"))
    ledger = load_ledger(name)
    assert {"E-eq-7", "E-erratum-3", "E-thm-8"} <= {each.id for each in ledger}
    assert "rests_on" in ledger["E-thm-8"].code["source"]
    assert ledger["E-thm-8"].checked_by.endswith("one/c.py: rests on E-eq-7")


@pytest.mark.parametrize("base", ["E-eq-99", "E-thm-8"])
def test_a_base_that_is_not_measured_is_refused(shelf, base):
    name, place = shelf
    write(place / "one" / "c.py", CLAIMS_FILE.format(base=base))
    with pytest.raises(FinettiError, match=f"E-thm-8 rests on {base}"):
        load_ledger(name)


def test_the_whole_ledger_loads_without_jax():
    code = (
        "import sys; from finetti.claims import load_ledger; str(load_ledger()); "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_whole_run_is_wrong_by_chance_at_most_once_in_a_hundred():
    assert load_ledger().false_alarm <= 0.01


def test_every_claim_says_what_it_measures_and_every_expected_failure_is_an_erratum():
    for each in load_ledger():
        assert each.measured, each.id
        file, function = each.checked_by.split(": ")
        text = (SOURCE / file).read_text(encoding="utf-8")
        if hasattr((each.host or each).measure, "__qualname__"):
            assert re.search(rf"^def {function}\(\s*context: Context", text, re.MULTILINE), each.id
        else:
            assert f'"{(each.host or each).id}"' in each.code["source"]
        assert each.command == f"finetti reproduce --only {each.id}"
        assert each.expected == "holds" or each.why, each.id


def test_a_claim_shows_everything_there_is_to_know():
    shown = str(claim("S-erratum-3", expected="fails", erratum="Prints 2.", false_alarm=0.002))
    for part in ("A statement.", "Edelman", "A number below 1", "Prints 2.", "fails", "0.2 %"):
        assert part in shown


def test_a_ledger_is_written_in_one_line():
    assert re.fullmatch(r"<\d+ claims: E \d+, S \d+, R \d+, F \d+>", repr(load_ledger()))
