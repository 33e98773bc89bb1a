"""One trial of a probe: same data for all learners, ids of all settings, failures with a reason."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.probe import ProbeTrial, load_learner
from finetti.probe.tasks.trial_samples import draw_samples
from finetti.probe.trials.jax_trials import JaxTrials
from finetti.studies import Study
from finetti.studies.coordinator import make_plan
from finetti.studies.source_code import find_source
from finetti.studies.spec import make_spec
from finetti.studies.trials import Trial

KIND = "finetti.probe.probe_trial:ProbeTrial"
MATERIAL = Path(__file__).parent / "material" / "tiny.py"
TASK = {"function": "and", "sparsity": 2, "context_length": 8}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with tiny.py in it."""
    shutil.copy(MATERIAL, tmp_path / "tiny.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def resolved(**given):
    return ProbeTrial().resolve({**TASK, "learner": "./tiny.py:Linear", "n_samples": 60, **given})


def run(params, *seeds):
    """The results of trials of one cell."""
    return run_all([(params, seed) for seed in seeds])


def run_all(cells, slots=1):
    kind = ProbeTrial(slots)
    trials = [Trial(f"{number}", *cell) for number, cell in enumerate(cells)]
    assert len({str(kind.cohort_key(trial.params)) for trial in trials}) == 1
    return kind.run_cohort(trials)


def test_a_network_finds_a_rule_and_says_why_not(folder):
    few, many = resolved(n_samples=6), resolved(n_samples=60, trace=["loss", "accuracy"])
    assert few["settings"]["dropout"] == 0.1
    poor, good = run(few, 0, 1, 2), run(many, 0, 1, 2, 3)
    assert all(each.metrics["steps"] <= 60 for each in (*poor, *good))
    reasons = {each.metrics["reason"] for each in poor}
    assert reasons <= {"ambiguous", "not fitted", "not generalized"}
    assert sum(each.metrics["success"] for each in good) >= 2
    for each in good:
        metrics, trace = each.metrics, each.trace
        assert metrics["success"] == (metrics["best_accuracy"] > 0.99)
        assert metrics["success"] == (metrics["reason"] == "solved") == ("solved_at" in metrics)
        assert trace["step"] == list(range(10, metrics["steps"] + 1, 10))
        assert trace["loss"][-1] == metrics["train_loss"]
        assert len(trace["accuracy"]) == len(trace["accuracy_samples"]) == len(trace["step"])
        assert metrics["fitted"] == (metrics["train_accuracy"] == 1)
        if metrics["success"]:
            assert metrics["solved_at"] == metrics["steps"] == trace["step"][-1]
            assert metrics["best_accuracy_samples"] == 10_000
            assert metrics["accuracy"] == metrics["best_accuracy"] == trace["accuracy"][-1]


def test_traces_see_the_rule_appear(folder):
    """P(label = 1) becomes AND of two bits: 1/4 on each parity, with its sign."""
    names = ["walsh", "attention"]
    params = resolved(learner="./tiny.py:Looking", trace=names, early_stop=False)
    (result,) = run(params, 2)
    walsh, looks = (np.array(result.trace[name]) for name in names)
    assert walsh.shape == (6, 3)
    assert looks.shape == (6, 1)
    np.testing.assert_allclose(walsh[-1], [0.25, -0.25, 0.25], atol=0.1)
    assert abs(walsh[0] - [0.25, -0.25, 0.25]).max() > abs(walsh[-1] - [0.25, -0.25, 0.25]).max()
    np.testing.assert_allclose(looks, 2 / 9)
    assert result.metrics["steps"] == 60
    with pytest.raises(InputError, match="cannot have 'attention'"):
        resolved(trace=["attention"])


def test_a_cohort_of_k_is_k_single_trials(folder):
    """Sample sizes are padded to one size; slots and company change nothing."""
    cells = [(resolved(n_samples=30 + seed, ambiguous="keep"), seed) for seed in range(5)]
    together = [each.metrics for each in run_all(cells, slots=3)]
    alone = [run_all([cell])[0].metrics for cell in cells]
    for one, other in zip(together, alone, strict=True):
        assert one.keys() == other.keys()
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
        assert one["success"] == other["success"]
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=2e-3)


@pytest.mark.parametrize("name", ["Constant", "Stuck"])
def test_of_the_last_block_of_validation_only_what_is_asked_for_counts(folder, name):
    """1500 samples are a block and a half: the errors of the answer 0, counted by hand."""
    params = resolved(learner=f"./tiny.py:{name}", n_validation=1500)
    (result,) = run(params, 3)
    samples = draw_samples(params, 3)
    labels = np.r_[samples.validation(0)[1], samples.validation(1)[1]]
    assert labels[1500] == 1  # one sample more would be one error more
    assert result.metrics["accuracy"] == (1500 - labels[:1500].sum()) / 1500


def test_one_compilation_serves_many_sample_sizes(folder):
    learner, traced = load_learner("./tiny.py:Linear"), []

    class Counting(type(learner)):
        def apply(self, params, bits, key):
            traced.append((len(bits), key is None))
            return super().apply(params, bits, key)

    trials = JaxTrials(Counting(), resolved(ambiguous="keep"))
    for n_samples in (20, 40, 64, 65):
        trials.run([Trial("0", resolved(n_samples=n_samples, ambiguous="keep"), 0)], slots=1)
    # One program for validation, and one each for 64 and 96 rows.
    assert sorted(set(traced)) == [(64, False), (96, False), (1000, True)]
    assert len([each for each in traced if each[1]]) == 1
    assert len([each for each in traced if each == (64, False)]) <= 2  # a scan may look twice


def test_data_follow_from_seed_and_task_not_from_the_learner(folder):
    network, tree = resolved(), resolved(learner="tree")
    one, other = draw_samples(network, 7), draw_samples(tree, 7)
    assert one.task.indices == other.task.indices
    np.testing.assert_array_equal(one.bits, other.bits)
    np.testing.assert_array_equal(one.validation(3)[0], other.validation(3)[0])
    assert not np.array_equal(one.bits, draw_samples(network, 8).bits)
    # Sample sizes are independent, so that a success curve can be resampled size by size.
    assert not np.array_equal(one.bits, draw_samples(resolved(n_samples=61), 7).bits[:60])


def test_replicate_seeds_pair_learners_in_a_study(folder):
    grid = {"learner": ["./tiny.py:Constant", "tree"], "n_samples": [20]}
    for seed_by, paired in (("replicate", True), ("trial", False)):
        study = Study(
            KIND,
            grid=grid,
            fixed={**TASK, "n_validation": 1000},
            trials=3,
            seed_by=seed_by,
            store=folder / f"{seed_by}.sqlite",
        )
        study.run("inline", quiet=True)
        table = study.table()
        seeds = table.groupby("learner")["seed"].apply(list).tolist()
        assert (seeds[0] == seeds[1]) is paired
        assert (table["state"] == "done").all()


def test_online_batches_teach_without_a_training_set(folder):
    params = resolved(n_samples=None, online=True, batch_size=64)
    (result,) = run(params, 0)
    assert result.metrics["success"] == 1
    assert "fitted" not in result.metrics
    assert "n_consistent" not in result.metrics


def test_learners_that_misbehave_fail_alone_and_say_why(folder):
    def errors(name, *seeds):
        found = ProbeTrial().run_cohort(
            [Trial(f"{seed}", resolved(learner=f"./tiny.py:{name}"), seed) for seed in seeds]
        )
        return [str(each) if isinstance(each, Exception) else "" for each in found]

    with pytest.raises(InputError, match=r"./tiny.py:WrongShape must return logits \(m, 2\)"):
        resolved(learner="./tiny.py:WrongShape")
    with pytest.raises(InputError, match=r"./tiny.py:Raises fails .*RuntimeError: no luck"):
        resolved(learner="./tiny.py:Raises")
    assert all("not finite" in each and "step 10" in each for each in errors("Blind", 0))
    told = errors("Diverges", 4, 5, 6, 7)
    assert ["loss of step 1 is nan" in each for each in told] == [False, False, True, True]
    assert told[:2] == ["", ""]
    wrong = "The learner ./tiny.py:FitWrong must predict labels (1000,). Got float64[1000, 1]"
    assert wrong in errors("FitWrong", 0)[0]
    assert "The learner ./tiny.py:Blind returned logits" in errors("Blind", 0)[0]


def test_ambiguous_training_sets_are_reported_kept_or_rejected(folder):
    params = {"learner": "./tiny.py:Constant", "n_samples": 4}
    (reported,) = run(resolved(**params), 0)
    assert reported.metrics["n_consistent"] > 1
    assert (reported.metrics["identified"], reported.metrics["reason"]) == (0, "ambiguous")
    (kept,) = run(resolved(**params, ambiguous="keep"), 0)
    assert "identified" not in kept.metrics
    rejected = run(resolved(**{**params, "n_samples": 8}, ambiguous="reject"), 0, 1)
    assert [each.metrics["n_consistent"] for each in rejected] == [1, 1]
    # One sample identifies two of 40 positions only if all other bits are 0.
    few = {**params, "n_samples": 1, "context_length": 40}
    (hopeless,) = run(resolved(**few, ambiguous="reject"), 0)
    assert "None of 1000 training sets of 1 samples" in str(hopeless)


def trial_id(folder, **given):
    fixed = {**TASK, "learner": "./tiny.py:Linear", "n_samples": 60, **given}
    spec = make_spec({"kind": KIND, "fixed": fixed})
    plan = make_plan(spec, find_source(KIND, folder), ProbeTrial(), "a study")
    return next(iter(plan.trial_positions))


def test_every_setting_of_a_learner_changes_the_id(folder):
    changes = [
        {},
        {"options": {"dropout": 0.2}},
        {"options": {"learning_rate": 0.1}},
        {"options": {"check_every": 20}},
        {"options": {"iterations": 80}},
        {"n_samples": 61},
        {"label_noise": 0.1},
        {"bit_probability": 0.4},
        {"success_accuracy": 0.98},
        {"early_stop": False},
        {"ambiguous": "reject"},
        {"learner": "./tiny.py:Blind"},
    ]
    ids = [trial_id(folder, **change) for change in changes]
    assert len(set(ids)) == len(ids)
    assert trial_id(folder, iterations=80) == trial_id(folder, iterations=80)
    source = (folder / "tiny.py").read_text()
    for old, new in (("optax.adam(", "optax.sgd("), ("0.01 * ", "0.02 * ")):
        assert old in source
        (folder / "tiny.py").write_text(source.replace(old, new))
        ids.append(trial_id(folder))
    assert len(set(ids)) == len(ids)
    (folder / "tiny.py").write_text(source)
    assert trial_id(folder) == ids[0]


def test_a_learner_that_changes_during_a_study_is_refused(folder):
    params = resolved(learner="./tiny.py:Constant", n_validation=2000)
    source = (folder / "tiny.py").read_text()
    (folder / "tiny.py").write_text(source + "# new\n")
    (failure,) = ProbeTrial().run_cohort([Trial("0", params, 0)])
    assert "has changed since the study was planned" in str(failure)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sparsity": 9}, "at most context_length (8). Got 9"),
        ({"n_samples": 0}, "greater than 0"),
        ({"n_samples": None}, "is missing: how many samples"),
        ({"function": "nand"}, "must be one of and, or"),
        ({"success_accuracy": 1.0}, "less than 1"),
        ({"sparsity": 7}, "must be above 0.992188, the accuracy of a constant answer"),
        ({"iterations": 55}, "multiple of 10"),
        ({"online": True}, "has no meaning online"),
        (
            {"online": True, "n_samples": None, "learner": "tree"},
            "that the probe trains by gradients",
        ),
        ({"learner": "nobody"}, "Unknown learner 'nobody'"),
        ({"learner": "./none.py:Model"}, "there is no file"),
        ({"options": {"width": 3}}, "has no option 'width'"),
        ({"ambiguous": "maybe"}, "'report', 'keep' or 'reject'"),
        ({"label_noise": 0.5}, "in [0, 1/2)"),
        ({"samples": 3}, "is not a parameter of the kind"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(folder, given, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        resolved(**given)


def test_networks_do_without_scikit_learn():
    """It takes longer to import than everything else together, in every process of a probe."""
    code = "import sys, finetti.probe.probe_trial; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
