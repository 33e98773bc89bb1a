"""One function per command: it plans once, runs once, and its result shows itself everywhere."""

import json

import numpy as np
import pytest

import finetti
from finetti.core.errors import InputError
from finetti.studies.coordinator import make_plan
from finetti.studies.executors import local_executor

PROBE = {"sparsity": 1, "context_lengths": [8], "n_samples": [4, 8], "trials": 2}
RISK = {"n_samples": [8, 12], "trials": 1, "context_length": 3, "iterations": 10, "restarts": 1}
RISK |= {"class_samples": 12, "test_samples": 12}
BROKEN = """
class Broken:
    def fit(self, bits, labels):
        raise ValueError("no luck")

    def predict(self, bits):
        return bits[:, 0]
"""


def probe(store, **options):
    given = {"learners": ["tree", "l1"], **PROBE, **options}
    return finetti.run_probe(**given, store=store, executor="inline", quiet=True)


def risk(store, **options):
    given = {"world": "beta-bernoulli", **RISK, **options}
    return finetti.decompose_risk(**given, store=store, executor="inline", quiet=True)


def reproduce(store, **options):
    return finetti.reproduce_claims(["E-erratum-9"], store=store, quiet=True, **options)


def study(store):
    path = store.with_suffix(".toml")
    path.write_text('kind = "finetti.studies.examples:estimate_pi"\ntrials = 2\n')
    return finetti.run_study(path, store=store, executor="inline", quiet=True)


RUNS = {"probe": (probe, 2), "risk": (risk, 1), "reproduce": (reproduce, 1), "run": (study, 1)}
OTHERS = {
    "audit": lambda: finetti.audit_checkpoint(
        {"layers.0.self_attn.in_proj_weight": np.tile(np.eye(4), (3, 1)),
         "layers.0.self_attn.out_proj.weight": np.eye(4)},
        heads=2, quiet=True,
    ),
    "bound": lambda: finetti.evaluate_bound("S-thm-A.17"),
    "coherence": lambda: finetti.measure_coherence(
        ["mesa"], "linear-gaussian", [4], n_contexts=3, n_sequences=5, quiet=True
    ),
    "compile": lambda: finetti.compile_rule("x1 & x4", 6, quiet=True),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_every_study_is_planned_once_and_the_executor_opened_once(name, tmp_path, monkeypatch):
    plans, opened = [], []
    make = local_executor.make_executor
    monkeypatch.setattr(
        "finetti.studies.study.make_plan", lambda *given: plans.append(given) or make_plan(*given)
    )

    def count(executor="local", *options):
        opened.extend([] if isinstance(executor, local_executor.Executor) else [executor])
        return make(executor, *options)

    monkeypatch.setattr(local_executor, "make_executor", count)
    run, studies = RUNS[name]
    result = run(tmp_path / "trials.sqlite")
    assert (len(plans), opened) == (studies, ["inline"])
    shows_itself(result, tmp_path)


@pytest.mark.parametrize("name", OTHERS)
def test_other_results_show_themselves_too(name, tmp_path):
    shows_itself(OTHERS[name](), tmp_path)


def shows_itself(result, folder):
    """As text, in a notebook, as JSON and as a page."""
    assert result.headline
    assert len(str(result)) > 50
    assert "<div" in result._repr_html_()
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))
    page = result.write_page(folder / "page", "finetti again")
    assert "finetti again" in page.read_text()
    found = json.loads((folder / "page" / "results.json").read_text())
    assert found["command"] == "finetti again"
    assert found["provenance"]["finetti"] == finetti.__version__


def test_why_trials_failed_is_told_also_to_those_who_asked_for_little(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from finetti.cli.main import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BROKEN)
    found = probe(tmp_path / "t.sqlite", learners=["./mine.py:Broken"])
    (failure,) = found.failures
    assert not found.as_expected
    assert "no luck" in failure["reason"]
    sizes = ("--sparsity", "1", "--context-length", "8", "--samples", "4,8", "--trials", "2")
    command = ["probe", *sizes, "--learner", "./mine.py:Broken", "--quiet", "--workers", "1"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "no luck" in " ".join(done.stdout.split())


def test_a_file_without_a_name_is_told_what_to_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "co.py").write_text("import os\ndef f(tokens): return [0.5, 0.5]\npair = (f, f)\n")
    with pytest.raises(finetti.core.InputError, match=r"as in \./co\.py:f\. It defines f, pair\."):
        finetti.measure_coherence(["./co.py"])
    with pytest.raises(finetti.core.InputError, match=r"has no 'x'\. It defines f, pair\."):
        finetti.measure_coherence(["./co.py:x"])


@pytest.mark.parametrize(
    ("verb", "name", "near"),
    [
        (finetti.run_probe, "n_trials", "trials"),
        (finetti.run_probe, "learner", "learners"),
        (finetti.run_probe, "iteration", "iterations"),
        (finetti.decompose_risk, "test_sample", "test_samples"),
    ],
)
def test_an_argument_that_is_misspelled_is_told_the_near_one(verb, name, near, tmp_path):
    with pytest.raises(InputError, match=f"has no argument `{name}`. Did you mean `{near}`"):
        verb(store=tmp_path / "trials.sqlite", **{name: 3})
    assert not list(tmp_path.iterdir())
