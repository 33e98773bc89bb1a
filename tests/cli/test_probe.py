"""``finetti probe`` at tiny sizes, with learners that take milliseconds."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from finetti.cli.main import app

MAX_WAIT_SECONDS = 600  # no machine is that slow
TINY = ("--sparsity", "1", "--context-length", "8,16", "--samples", "4:12:4", "--trials", "2")
N_TRIALS = 12
# Trees that see one label too few.
BROKEN = """
from sklearn.tree import DecisionTreeClassifier

class Broken(DecisionTreeClassifier):
    def fit(self, bits, labels):
        return super().fit(bits, labels[1:])
"""


def finish(folder, *arguments):
    command = [sys.executable, "-m", "finetti", "probe", "--workers", "1", *map(str, arguments)]
    limits = {"timeout": MAX_WAIT_SECONDS, "check": False}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, **limits)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A whole probe of two learners: its folder, and what it said."""
    folder = tmp_path_factory.mktemp("probe")
    return folder, finish(folder, *TINY, "--learner", "tree", "--learner", "l1", "--out", "out")


def test_a_probe_says_how_long_it_takes_runs_and_shows_what_it_found(first):
    folder, (code, out, err) = first
    assert code == 0, err
    assert err.splitlines()[0].startswith("24 of 24 trials to run; time: unknown until")
    for words in (
        "AND of 1 hidden bit among 16: ",
        "Success of tree [95 % interval], 2 trials per cell",
        "Critical sample size",
        "Learners on the same data",
        "24 of 24 trials done. Page: out/probe.html · trials: out/trials.sqlite",
    ):
        assert words in " ".join(out.split()), words  # titles are as wide as their tables
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "critical.svg",
        "outcomes.svg",
        "probe.html",
        "results.json",
        "success-l1.svg",
        "success-tree.svg",
        "trials.sqlite",
    ]
    page = (folder / "out" / "probe.html").read_text()
    assert "finetti probe --function and --sparsity 1 --context-length 8,16" in page


def test_the_same_command_runs_nothing_again_and_json_is_one_document(first):
    folder, _ = first
    before = json.loads((folder / "out" / "results.json").read_text())
    options = ("--learner", "tree", "--learner", "l1", "--out", "out", "--json")
    code, out, err = finish(folder, *TINY, *options)
    assert code == 0
    assert err.splitlines()[0] == "All 24 trials are stored."
    document = json.loads(out)
    assert document == json.loads((folder / "out" / "results.json").read_text()) == before
    assert document["trials"] == {"all": 24, "done": 24, "failed": 0}
    assert document["settings"]["learners"] == ["tree", "l1"]
    assert len(document["analysis"]["success"]) == 12
    assert document["provenance"]["device"] is not None


def test_the_command_on_the_page_is_the_whole_one(first):
    folder, _ = first
    document = json.loads((folder / "out" / "results.json").read_text())
    words = document["command"].split()
    assert words[:2] == ["finetti", "probe"]
    for option, value in (("--trials", "2"), ("--seed", "0"), ("--noise", "0.0")):
        assert words[words.index(option) + 1] == value
    assert words.count("--learner") == 2
    assert not {"--json", "--search", "--online", "--quiet"} & set(words)


def test_trials_that_fail_are_told_and_exit_code_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BROKEN)
    result = probe("--learner", "./mine.py:Broken", *TINY, "--quiet", "--json")
    assert result.exit_code == 1
    counts = json.loads(result.stdout)["trials"]
    assert counts["failed"] > 0
    assert counts["failed"] + counts["done"] == N_TRIALS


HANGING = """
import time

class Hanging:
    def fit(self, bits, labels):
        time.sleep(10_000)

    def predict(self, bits):
        return bits[:, 0]
"""


@pytest.mark.parametrize("search", [False, True])
def test_a_learner_that_hangs_ends_as_a_failed_trial(tmp_path, search):
    (tmp_path / "mine.py").write_text(HANGING)
    sizes = ("--sparsity", 1, "--context-length", 8, "--samples", "12,24", "--trials", 1)
    limits = ("--time-limit", 2, "--memory-limit", 50)
    how = ("--search",) if search else ()
    learner = ("--learner", "./mine.py:Hanging", "--out", "out", "--json")
    code, out, err = finish(tmp_path, *sizes, *learner, *limits, *how)
    assert "2 of 2 trials to run; time: unknown until a trial is stored." in err.splitlines()[0]
    if search:  # which needs to know whether the trial succeeded
        assert (code, out) == (2, "")
        assert "did not end within 2 s (time limit)" in err
        return
    assert code == 1, err
    document = json.loads(out)
    assert document["trials"] == {"all": 2, "done": 0, "failed": 2}
    assert "did not end within 2 s (time limit)" in json.dumps(document["failures"])
    assert document["settings"]["time_limit"] == 2
    assert "--time-limit 2.0 --memory-limit 50.0" in document["command"]


def probe(*arguments):
    return CliRunner().invoke(app, ["probe", *map(str, arguments)])


def test_a_dry_run_estimates_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = probe(*TINY, "--learner", "tree", "--dry-run", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["trials"], found["pending"]) == (N_TRIALS, N_TRIALS)
    assert found["duration"] == "unknown until a trial is stored"
    assert list(tmp_path.iterdir()) == []


def test_a_search_answers_from_few_trials(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = ("--sparsity", "1", "--context-length", "8", "--samples", "2,40", "--trials", "9")
    result = probe("--search", "--learner", "tree", *sizes, "--quiet", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    found = document["searches"]["tree"]["results"]["8"]
    assert found["trials"] == document["trials"]["done"] <= 9
    critical = document["analysis"]["critical"][0]
    assert critical["critical"] == found["size"]["value"]
    assert "--search" in document["command"].split()
    assert "--search" in (tmp_path / "probe" / "probe.html").read_text()
