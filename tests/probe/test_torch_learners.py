"""PyTorch modules are trained and validated as networks of JAX are."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from finetti.core.errors import FinettiError, InputError
from finetti.probe import ProbeTrial, load_learner
from finetti.studies.trials import Trial

torch = pytest.importorskip("torch")
MATERIAL = Path(__file__).parent / "material" / "torch_learners.py"
BITS = np.eye(3, 8, dtype=np.uint8)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A user's folder; one thread, since those that wait for each other take longer."""
    shutil.copy(MATERIAL, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(before)


def resolved(name="network", options=None, **given):
    task = {"function": "and", "sparsity": 2, "context_length": 8, "n_samples": 60}
    options = {"inputs": "floats", "learning_rate": 0.02, **(options or {})}
    return ProbeTrial().resolve(
        {**task, "learner": f"./mine.py:{name}", "options": options, **given}
    )


def run(params, *seeds):
    return ProbeTrial().run_cohort([Trial(f"{seed}", params, seed) for seed in seeds])


@pytest.mark.parametrize("name", ["network", "linear", "WithLogits"])
def test_a_module_is_checked_every_ten_steps_and_stops_when_it_has_the_rule(name):
    given = {"n_samples": 300, "iterations": 200, "trace": ["loss", "accuracy"]}
    params = resolved(name, {"learning_rate": 0.1}, **given)
    assert (params["iterations"], params["check_every"]) == (200, 10)
    before = torch.random.get_rng_state()
    one, same, other = run(params, 2**62, 2**62, 1)
    assert torch.equal(torch.random.get_rng_state(), before)  # the user's own randomness
    assert one.metrics == same.metrics
    assert one.metrics["train_loss"] != other.metrics["train_loss"]
    for each in (one, other):
        assert each.metrics["success"] == 1
        assert each.metrics["solved_at"] == each.metrics["steps"] < 200
        assert each.trace["step"] == list(range(10, each.metrics["steps"] + 1, 10))
        solved = [accuracy > 0.99 for accuracy in each.trace["accuracy"]]
        assert solved == [False] * (len(solved) - 1) + [True]
        assert each.trace["loss"][-1] == each.metrics["train_loss"]


def test_all_steps_are_made_without_an_early_stop():
    found = run(resolved("linear", iterations=30, early_stop=False, trace=["walsh"]), 0)[0]
    assert found.metrics["steps"] == 30
    assert np.shape(found.trace["walsh"]) == (3, 3)
    with pytest.raises(InputError, match="must be a multiple of 10"):
        resolved(iterations=55)


def test_a_module_learns_online():
    params = resolved(
        n_samples=None, online=True, batch_size=64, iterations=200, options={"learning_rate": 0.1}
    )
    one, same = run(params, 0, 0)
    assert one.metrics == same.metrics
    assert one.metrics["success"] == 1
    assert "fitted" not in one.metrics


def test_batch_norm_runs_and_its_statistics_are_those_of_training():
    options = {"norm": True, "learning_rate": 0.1}
    found = run(resolved(options=options, n_samples=200, iterations=200), 0)[0]
    assert found.metrics["success"] == 1


def test_weights_decay_but_no_biases_or_embeddings():
    learner = load_learner("./mine.py:network", {"inputs": "floats", "weight_decay": 0.5})
    modules = {"hidden": torch.nn.Linear(3, 2), "embedding": torch.nn.Embedding(2, 3)}
    decay = {
        id(each): group["weight_decay"]
        for group in learner.optimizer(torch.nn.ModuleDict(modules)).param_groups
        for each in group["params"]
    }
    hidden, embedding = modules.values()
    found = [decay[id(each)] for each in (hidden.weight, hidden.bias, embedding.weight)]
    assert found == [0.5, 0, 0]


def test_one_logit_is_that_of_label_one():
    learner = load_learner("./mine.py:linear", {"inputs": "floats"})
    network = learner.init(8)
    logits = learner.apply(network, BITS).detach().numpy()
    assert (logits[:, 0] == 0).all()
    weight, bias = (each.detach().numpy() for each in (network.weight, network.bias))
    np.testing.assert_allclose(logits[:, 1], BITS @ weight[0] + bias, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Wide", r"must return logits \(m, 2\).* For inputs \[3, 8\] it returned float32\[3, 4\]"),
        ("Pair", "must return logits .* it returned a tuple"),
        ("Whole", r"real numbers.* it returned int64\[3\]"),
        ("Frozen", "no parameter that can be trained"),
        ("by_sgd", "PyTorch module is trained by AdamW"),
    ],
)
def test_what_is_wrong_is_refused_before_any_trial(name, words):
    with pytest.raises(InputError, match=words):
        resolved(name)


def test_what_goes_wrong_in_a_trial_is_its_reason():
    (blind,) = run(resolved("Blind", iterations=20), 0)
    assert "not finite. This was after step 10" in str(blind)
    (diverged,) = run(resolved(options={"learning_rate": 1e30}, iterations=20), 0)
    assert isinstance(diverged, FinettiError)
    assert "The loss of step 2 is" in str(diverged) or "The loss of step 3 is" in str(diverged)
