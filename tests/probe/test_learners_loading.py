"""Names, options and fingerprints of learners; what is refused, and with which words."""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.errors import FinettiError, InputError
from finetti.probe import ProbeTrial, load_learner
from finetti.probe.trials.jax_trials import JaxTrials

PAIR = """
import jax.numpy as jnp
def init(key, context_length): return jnp.zeros((context_length, {outputs}))
def apply(params, bits): return bits @ params
def factory(width: int = 3, learning_rate=0.5, **others):
    assert not set(("key", "context_length", "seed")) & set(others)
    return init, apply
network = (init, apply)
"""


@pytest.fixture(autouse=True)
def as_users_have_it():
    """JAX's own defaults: these files are written for them, not for the strict rules of tests."""
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        yield


@pytest.fixture
def load(tmp_path):
    """Load ``name`` of a file with this text."""

    def load(text, name, options=None, file="of_mine.py"):
        (tmp_path / file).write_text(text)
        return load_learner(f"./{file}:{name}", options, directory=tmp_path)

    return load


def test_the_fingerprint_is_that_of_the_source_and_of_what_it_imports(load, tmp_path):
    text = "import beside\nfrom sklearn.tree import DecisionTreeClassifier as Tree\n"
    (tmp_path / "beside.py").write_text("x = 1\n")
    one = load(text, "Tree").fingerprint()
    assert one == load(text, "Tree").fingerprint() != ""
    assert load(text + "# edited\n", "Tree").fingerprint() != one
    (tmp_path / "beside.py").write_text("x = 2\n")
    assert load(text, "Tree").fingerprint() != one
    assert load_learner("tree").fingerprint() == ""
    installed = load_learner("sklearn.tree:DecisionTreeClassifier").fingerprint()
    assert installed == f"sklearn scikit-learn {version('scikit-learn')}"


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": 20},
        {"check_every": 5},
        {"inputs": "floats"},
        {"learning_rate": 0.1},
        {"weight_decay": 0.1},
        {"clip_norm": None},
        {"width": 5},
        {"anything": True},
    ],
)
def test_every_option_is_a_setting_and_settings_give_the_learner_again(load, changes):
    text = PAIR.format(outputs=2)
    usual = load(text, "factory").settings()
    assert usual["learning_rate"] == 0.5  # the factory's own default
    changed = load(text, "factory", changes)
    assert changed.settings() == {**usual, **changes}
    assert load(text, "factory", changed.settings()).settings() == changed.settings()


def test_settings_of_baselines_and_learners_of_the_package_give_them_again():
    given = {
        "boosting": {"max_iter": 7},
        "exhaustive": {"max_visits": 10},
        "paper": {"attention_dropout": 0.2},
    }
    for name, options in given.items():
        learner = load_learner(name, options)
        assert options.items() <= learner.settings().items()
        assert load_learner(name, learner.settings()).settings() == learner.settings()


def test_the_optimizer_decays_weights_but_no_biases_or_embeddings(load):
    learner = load(PAIR.format(outputs=2), "network", {"learning_rate": 0.1, "weight_decay": 0.5})
    names = ("kernel", "bias", "token_embedding")
    params = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2), "token_embedding": jnp.ones((2, 2))}
    optimizer = learner.optimizer()
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zero, optimizer.init(params), params)
    assert [float(updates[name].ravel()[0]) for name in names] == pytest.approx([-0.05, 0, 0])


def test_an_optimizer_of_its_own_is_taken(load):
    text = PAIR.format(outputs=2) + "import optax\nfactory.optimizer = optax.{}\n"
    params = jnp.ones((3, 2))

    def step(learner):
        optimizer = learner.optimizer()
        return float(optimizer.update(params, optimizer.init(params), params)[0][0, 0])

    fixed = load(text.format("sgd(0.25)"), "factory")
    assert step(fixed) == -0.25
    assert "clip_norm" not in fixed.settings()
    taking = load(text.format("sgd"), "factory", {"learning_rate": 0.125})
    assert (step(taking), taking.settings()["learning_rate"]) == (-0.125, 0.125)
    schedule = "sgd; factory.optimizer = lambda iterations: optax.sgd(1 / iterations)"
    assert step(load(text.format(schedule), "factory", {"iterations": 50})) == pytest.approx(-0.02)
    with pytest.raises(InputError, match=r"'weight_decay' has no effect: .* optimizer of its own"):
        load(text.format("sgd"), "factory", {"weight_decay": 0.1})
    with pytest.raises(InputError, match=r"must be an Optax gradient transformation.*Got int"):
        load(text.format("sgd; factory.optimizer = lambda: 3"), "factory")


def test_a_subclass_of_ours_is_a_learner_too(load):
    text = """
from dataclasses import dataclass
import jax.numpy as jnp, optax
from finetti.probe import NetworkLearner
class Bare(NetworkLearner):
    def init(self, key, context_length): return jnp.zeros((context_length, 2))
    def apply(self, params, bits, key): return bits @ params
    def optimizer(self): return optax.sgd(self.rate)
@dataclass(frozen=True, kw_only=True)
class Mine(Bare):
    rate: float = 0.1
"""
    learner = load(text, "Mine", {"rate": 0.2, "iterations": 10})
    assert learner.settings() == {"iterations": 10, "check_every": 10, "rate": 0.2}
    assert len(learner.fingerprint()) == 16
    with pytest.raises(
        InputError, match=r"no option 'raet'. It has: check_every, iterations, rate"
    ):
        load(text, "Mine", {"raet": 1})
    with pytest.raises(InputError, match="must be a dataclass"):
        load(text, "Bare")


EQUINOX = """
import equinox as eqx, jax, jax.numpy as jnp
class Order(eqx.Module):
    order: jax.Array
    weight: jax.Array
    def __init__(self, key, context_length, drawn=False):
        key = key if drawn else jax.random.key(7)
        self.order = jax.random.permutation(key, context_length)
        self.weight = jnp.arange(context_length, dtype=float)
    def __call__(self, bits): return self.weight @ bits[self.order]
instance = eqx.nn.Linear(3, 2, key=jax.random.key(0))
class Norm(eqx.Module):
    norm: eqx.nn.BatchNorm
    def __init__(self): self.norm = eqx.nn.BatchNorm(3, "batch", mode="batch")
    def __call__(self, bits): return bits
"""


def test_arrays_of_integers_are_kept_beside_the_parameters(load):
    learner = load(EQUINOX, "Order", {"inputs": "floats"})
    params = learner.init(jax.random.key(0), 4)
    assert [leaf.shape for leaf in jax.tree.leaves(params)] == [(4,)]
    order = np.asarray(jax.random.permutation(jax.random.key(7), 4))
    found = jax.jit(lambda params: learner.apply(params, jnp.eye(4), None))(params)[:, 1]
    assert np.array_equal(found[order], np.arange(4))


FLAX = """
from flax import linen, nnx
class Norm(linen.Module):
    @linen.compact
    def __call__(self, bits, train): return linen.BatchNorm(use_running_average=not train)(bits)
class Graph(nnx.Module):
    def __init__(self, rngs): self.norm = nnx.BatchNorm(64, rngs=rngs)
    def __call__(self, bits): return self.norm(bits)
class Drop(linen.Module):
    @linen.compact
    def __call__(self, bits, train):
        return linen.Dense(2)(linen.Dropout(0.1, deterministic=not train)(bits))
"""
OTHERS = """
import numpy as np, sklearn.svm, os
def array(): return [1.0]
def broken(width): return width
class Halves:
    def fit(self, bits, labels): return self
    def predict(self, bits): return 0 * bits[:, 0] + 0.5
class Wide(Halves):
    def predict(self, bits): return bits
class Words(Halves):
    def predict(self, bits): return ["a", "b"] * 3
class Things(Halves):
    def predict(self, bits): return [None, "a", 1] * 2
class Objects(Halves):
    def predict(self, bits): return np.array([True, 1, 0, 0.0, 1.0, False], dtype=object)
def ends(): os._exit
svm = sklearn.svm.SVC()
number = 3
"""
INTEGERS = """
import jax.numpy as jnp
pair = (lambda key, context_length: jnp.arange(context_length), lambda params, bits: bits @ params)
"""


@pytest.mark.parametrize(
    ("text", "name", "options", "words"),
    [
        (EQUINOX, "Order", {"drawn": True}, "has arrays that are drawn by its key and not trained"),
        (EQUINOX, "instance", {}, "an instance of Linear.*give the class"),
        (EQUINOX, "Norm", {}, "keeps state between calls"),
        (FLAX, "Norm", {"inputs": "floats"}, "keeps batch_stats beside its parameters"),
        (FLAX, "Drop", {}, "int32, float32.* as integers.*; with the option inputs=floats it runs"),
        (FLAX, "Graph", {"inputs": "floats"}, "keeps BatchStat beside its parameters"),
        (OTHERS, "array", {}, "must be a class or factory of .* It returned a list"),
        (OTHERS, "number", {}, "must be a class or factory of .* It is a int"),
        (OTHERS, "missing", {}, "has no 'missing'. It defines array, broken, Halves"),
        (OTHERS, "broken", {}, "called to make a model.*'width' has no value"),
        (OTHERS, "array", {"size": 3}, "must be a class"),
        (OTHERS, "svm", {"C": 3}, "svm has no option 'C'. It has: none"),
        (OTHERS, "Halves", {"learning_rate": 3}, "no option 'learning_rate'. It has: none"),
        (INTEGERS, "pair", {}, "parameters that are arrays of real numbers. Got int32 at the top"),
        (PAIR.format(outputs=3), "network", {}, r"inputs \[3, 64\] it returned float32\[3, 3\]"),
        (PAIR.format(outputs=2), "network", {"wdith": 3}, "no option 'wdith'. It has: check_every"),
        (PAIR.format(outputs=2), "network", {"inputs": "signs"}, '"integers" or "floats"'),
        (PAIR.format(outputs=2), "network", {"learning_rate": -1}, "number > 0. Got -1"),
        (PAIR.format(outputs=2), "network", {"iterations": 0}, "whole number ≥ 1. Got 0"),
        (PAIR.format(outputs=2), "factory", {"key": 3}, "'key' .* filled in for each trial"),
        ("raise SystemExit(3)", "network", {}, "cannot be loaded: SystemExit: 3"),
        ("def f(:", "f", {}, "is not Python"),
    ],
)
def test_what_is_wrong_is_refused_by_name(load, text, name, options, words):
    with pytest.raises(FinettiError, match=words):
        load(text, name, options)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (
            "trees",
            "Unknown learner 'trees'. Choose one of paper, exhaustive, l1, .* ./file.py:Name",
        ),
        ("./nowhere.py:Net", "The learner .* was not found: there is no file"),
        ("nowhere_at_all:Net", "The learner .* was not found: there is no module"),
    ],
)
def test_unknown_names_are_refused(reference, words, tmp_path):
    with pytest.raises(InputError, match=words):
        load_learner(reference, directory=tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Halves", r"must predict labels 0 and 1. It predicted \[0.5\]"),
        ("Words", r"must predict labels 0 and 1. It predicted \['a', 'b'\]"),
        ("Things", r"must predict labels 0 and 1. It predicted \[None, 'a'\]"),
        ("Wide", r"must predict labels \(6,\). Got float64\[6, 3\]"),
    ],
)
def test_predictions_that_are_no_labels_are_refused(load, name, words):
    fitted = load(OTHERS, name).fit(np.eye(6, 3), np.arange(6) % 2, seed=0)
    with pytest.raises(InputError, match=words):
        fitted.predict(np.eye(6, 3))


def test_predictions_may_be_objects_that_are_numbers(load):
    fitted = load(OTHERS, "Objects").fit(np.eye(6, 3), np.arange(6) % 2, seed=0)
    assert fitted.predict(np.eye(6, 3)).tolist() == [1, 1, 0, 0, 1, 0]


def test_a_schedule_is_made_for_the_steps_of_the_trial(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import optax\nfactory.optimizer = lambda iterations: optax.sgd(1 / iterations)\n"
    load(PAIR.format(outputs=2) + text, "factory")
    given = {"learner": "./of_mine.py:factory", "context_length": 4, "n_samples": 8}
    params = ProbeTrial().resolve({**given, "iterations": 40})
    learner = load_learner(given["learner"])
    assert learner.iterations == 1000
    assert JaxTrials(learner, params).learner.iterations == 40
