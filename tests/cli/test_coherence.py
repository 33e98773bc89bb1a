import json

import pytest
from typer.testing import CliRunner

from finetti.cli.main import app

MINE = """
import numpy as np
def recent(tokens):
    kept = np.asarray(tokens)[-2:]
    p = (1 + kept.sum()) / (2 + len(kept))
    return [1 - p, p]
"""


def command(*arguments):
    return CliRunner().invoke(app, ["coherence", *map(str, arguments)])


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coherence_target.py").write_text(MINE)
    return "./coherence_target.py:recent"


def test_a_function_of_letters_gets_a_page(mine, tmp_path):
    done = command(mine, "--context-length", "3,6", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["world"] == "beta-bernoulli"
    assert [row["context_length"] for row in document["rows"]] == [3, 6]
    assert not document["rows"][1]["order"]["holds"]
    assert document == json.loads((tmp_path / "out" / "results.json").read_text())
    page = (tmp_path / "out" / "coherence.html").read_text(encoding="utf-8")
    assert "./coherence_target.py:recent is not coherent" in page
    assert (tmp_path / "out" / "order.svg").exists()
    assert "distance (nats)" in page  # a narrow terminal breaks the words of a heading


def test_members_of_the_family_are_as_expected():
    done = command("mesa", "delta-rule", "--world", "linear-gaussian", "--context-length", 6)
    assert done.exit_code == 0, done.output
    assert "1 of 2 coherent: mesa" in done.stdout
    quiet = command("mesa", "--context-length", 6, "--quiet")
    assert quiet.stdout.strip() == "1 of 1 coherent: mesa"


NOISY = """
import warnings
import numpy as np
def noisy(tokens):
    warnings.warn(f"{len(tokens)} tokens are few")
    return [0.5, 0.5]
"""


def test_warnings_of_a_target_are_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noisy_target.py").write_text(NOISY)
    done = command("./noisy_target.py:noisy", "--context-length", 3, "--contexts", 2)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert len(lines) == 1
    assert lines[0].startswith("Warned ")
    assert "tokens are few" in lines[0]


def test_a_target_that_raises_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "def boom(tokens):\n    return [0.5 / (len(tokens) != {}), 0.5]\n"
    for length in (1, 4):  # at the first call, and after the next letter
        (tmp_path / f"raises_{length}.py").write_text(source.format(length))
        done = command(f"./raises_{length}.py:boom", "--context-length", 3, "--contexts", 2)
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.output
        assert "could not answer: ZeroDivisionError" in done.stderr


def test_only_worlds_that_can_be_read_are_offered():
    offered = command("mesa", "--world", "moon").stderr
    assert "sphere" not in offered
    assert "instrumental" not in offered


def test_letters_that_no_named_world_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "four_letters.py").write_text("def four(tokens):\n    return [0.25] * 4\n")
    done = command("./four_letters.py:four")
    assert done.exit_code == 2
    assert "reads 4 letters" in done.stderr
    assert "--world" not in done.stderr
    assert "measure_coherence" in done.stderr


def test_the_command_says_what_is_missing_and_takes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = (
        "def curved(keys, values, query):\n    return (values / (1 + values**2)).mean(axis=0)\n"
    )
    (tmp_path / "curved_target.py").write_text(source)
    few = "./curved_target.py:curved", "--context-length", 3, "--contexts", 2, "--draws", 10
    done = command(*few)
    assert done.exit_code == 0, done.output
    assert "is undecided (martingale and two-step not measured)" in done.stdout
    assert "--noise-variance" in done.stdout
    done = command(*few, "--noise-variance", 0.5, "--json")
    document = json.loads(done.stdout)
    assert document["verdicts"][0]["not_measured"] == []
    assert document["command"].endswith("--noise-variance 0.5 --seed 0")


def test_a_sampler_of_letters_is_told_where_to_say_how_many(tmp_path, monkeypatch):
    """And what the message advises works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drawn_target.py").write_text(
        "from finetti.coherence import as_predictor\n"
        "class Coin:\n"
        "    def sample(self, rng, tokens): return rng.integers(2)\n"
        "coin = as_predictor(Coin(), n_letters=2)\n"
    )
    sizes = ("--context-length", "3", "--contexts", "2", "--draws", "10", "--quiet")
    refused = command("./drawn_target.py:Coin", *sizes)
    assert refused.exit_code == 2
    told = " ".join(refused.output.split())
    assert "drawn_target.py:Coin draws letters" in told
    assert "as_predictor(target, n_letters=2), which a file may define" in told
    done = command("./drawn_target.py:coin", *sizes)
    assert done.exit_code == 0, done.output
