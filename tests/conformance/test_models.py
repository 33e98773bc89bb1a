"""Every form of model through probe, risk and coherence: it runs, or one sentence refuses it."""

import re

import numpy as np
import pytest

from finetti.coherence import as_predictor, load_predictor, measure_coherence
from finetti.core.errors import FinettiError, InputError
from finetti.latent import LinearGaussian
from finetti.models import Purpose, as_model
from finetti.probe import ProbeTrial, load_learner
from finetti.risk import RiskTrial, decompose, minimize_risk
from finetti.studies.trials import Trial

# Networks whose answer is w·(sum of the means of all inputs) + b, whatever the inputs are.
MATERIAL = """
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from sklearn.linear_model import LogisticRegression, Ridge

def total(inputs, first):
    return sum(x.mean(axis=tuple(range(first, x.ndim))) for x in inputs)

class Equinox(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    dropout: eqx.nn.Dropout
    def __init__(self, key, out_dimension=2):
        self.weight = jax.random.normal(key, (out_dimension,), jnp.float32)
        self.bias = jnp.zeros(out_dimension, jnp.float32)
        self.dropout = eqx.nn.Dropout(0.5)
    def __call__(self, *inputs, key=None):
        return self.dropout(self.weight * total(inputs, 0) + self.bias, key=key)

class Linen(linen.Module):
    out_dimension: int = 2
    @linen.compact
    def __call__(self, *inputs, train):
        found = linen.Dense(self.out_dimension)(total(inputs, 1)[:, None])
        return linen.Dropout(0.5, deterministic=not train)(found)

class Nnx(nnx.Module):
    def __init__(self, rngs, out_dimension=2):
        self.linear = nnx.Linear(1, out_dimension, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
    def __call__(self, *inputs):
        return self.dropout(self.linear(total(inputs, 1)[:, None]))

def pair(out_dimension=2):
    def init(key):
        return {"weight": jax.random.normal(key, (out_dimension,), jnp.float32)}
    def apply(params, *inputs, key):
        found = total(inputs, 1)[:, None] * params["weight"][None]
        return found if key is None else found * jax.random.bernoulli(key, 0.5, found.shape)
    return init, apply

equinox_one = lambda: Equinox(jax.random.key(0), 1)
linen_one = lambda: Linen(1)
nnx_one = lambda: Nnx(nnx.Rngs(0), 1)
pair_one = lambda: pair(1)
classifier = LogisticRegression()
regressor = Ridge()

def function(keys, values, query):
    return values.mean(axis=0)

class Sampler:
    def sample(self, rng, *inputs):
        return rng.normal(size=1)
sampler = Sampler()

class Wide(Equinox):
    def __call__(self, *inputs, key=None):
        return jnp.ones(7)
def misspelled(key, token_dim):
    return Equinox(key)
"""
TORCH = """
import torch
class Torch(torch.nn.Module):
    def __init__(self, out_dimension=2):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(1, out_dimension), torch.nn.Dropout(0.5)
    def forward(self, *inputs):
        mean = sum(x.float().mean(dim=tuple(range(1, x.ndim))) for x in inputs)
        return self.dropout(self.linear(mean[:, None]))
torch_one = lambda: Torch(1)
"""
WORLD = LinearGaussian(key_dimension=2, value_dimension=1, noise_variance=0.5)
REFUSED = "must be (an?|a class)"
# What probe and risk load, what coherence loads; the words of a refusal, None where it runs.
FORMS = {
    "equinox": ("Equinox", "equinox_one", None, None, None),
    "linen": ("Linen", "linen_one", None, None, None),
    "nnx": ("Nnx", "nnx_one", None, None, None),
    "pair": ("pair", "pair_one", None, None, None),
    "torch": ("Torch", "torch_one", None, "is a PyTorch module.*pure JAX", None),
    "classifier": ("classifier", "classifier", None, REFUSED, None),
    "regressor": ("regressor", "regressor", None, REFUSED, None),
    "function": ("function", "function", "cannot be loaded", "cannot be loaded", None),
    "sampler": ("sampler", "sampler", REFUSED, REFUSED, None),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A user's folder, and JAX's own defaults: user's files are written for them."""
    import jax

    (tmp_path / "mine.py").write_text(MATERIAL)
    (tmp_path / "mine_torch.py").write_text(TORCH)
    monkeypatch.chdir(tmp_path)
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        yield tmp_path


def reference(name):
    return f"./mine_torch.py:{name}" if "orch" in name else f"./mine.py:{name}"


def probe(name):
    task = {"function": "and", "sparsity": 2, "context_length": 6, "n_samples": 12}
    network = name not in ("classifier", "regressor", "function", "sampler")
    given = {"iterations": 10, "options": {"inputs": "floats"}} if network else {}
    kind = ProbeTrial()
    params = kind.resolve({**task, "learner": reference(name), "n_validation": 1000, **given})
    return kind.run_cohort([Trial(f"{n}", params, seed) for n, seed in enumerate((5, 5, 6))])


def risk(name):
    few = {"n_samples": 10, "context_length": 3, "restarts": 2, "iterations": 10, "polish": 5}
    sizes = {"class_samples": 20, "test_samples": 20, "network": reference(name)}
    kind = RiskTrial()
    params = kind.resolve({**few, **sizes})
    return kind.run_cohort([Trial(f"{n}", params, seed) for n, seed in enumerate((5, 5, 6))])


def refuses(words, run, name):
    with pytest.raises(InputError, match=words) as told:
        run(name)
    assert re.search(r"\./mine(_torch)?\.py:", str(told.value))
    assert "Model" not in str(told.value)  # an adapter's class says nothing to a user


@pytest.mark.parametrize("form", FORMS)
def test_probe(form):
    name, _, words, _, _ = FORMS[form]
    if form == "torch":
        pytest.importorskip("torch")
    if words is not None:
        refuses(words, probe, name)
        return
    one, same, other = probe(name)
    assert one.metrics == same.metrics
    assert one.metrics.keys() == other.metrics.keys()
    assert 0 <= one.metrics["accuracy"] <= 1
    assert one.metrics["seed"] == 5


@pytest.mark.parametrize("form", FORMS)
def test_risk(form):
    name, _, _, words, _ = FORMS[form]
    if form == "torch":
        pytest.importorskip("torch")
    if words is not None:
        refuses(words, risk, name)
        return
    one, same, other = risk(name)
    assert one == same != other
    parts = sum(one[part] for part in ("generalization", "approximation", "optimization"))
    assert parts == pytest.approx(one["excess"], abs=1e-12)
    assert one["excess"] > 0


@pytest.mark.parametrize("form", FORMS)
def test_coherence(form):
    _, name, _, _, _ = FORMS[form]
    if form == "torch":
        pytest.importorskip("torch")
    target = load_predictor(reference(name))
    assert target.name == reference(name)
    small = {"n_contexts": 2, "n_queries": 2, "n_orders": 3, "n_sequences": 5, "n_paths": 50}
    (row,) = measure_coherence([target], WORLD, [4], n_samples=10, **small).rows
    assert row.order.holds()  # also a network with dropout, which is off
    if form not in ("classifier", "sampler"):
        assert row.distance.value > 0


@pytest.mark.parametrize("form", ["equinox", "linen", "nnx", "pair"])
def test_dropout_is_on_in_training_only(form):
    """Weights drawn by one key, and answers in both modes."""
    import importlib.util

    import jax

    spec = importlib.util.spec_from_file_location("of_mine", "mine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = as_model(getattr(module, FORMS[form][0]), purpose=Purpose("network", "any"))
    batch = np.ones((3, 4, 2), np.float32), np.ones((3, 2), np.float32)
    network = model.start(jax.random.key(0), *batch)
    first, again = network(*batch), network(*batch)
    np.testing.assert_array_equal(first, again)
    assert np.ptp(first, axis=0).max() == 0
    drawn = [np.asarray(network(*batch, key=jax.random.key(seed))) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], first)


@pytest.mark.parametrize("name", ["Wide", "misspelled"])
@pytest.mark.parametrize("run", [probe, risk])
def test_what_cannot_be_trained_is_refused_before_any_trial(name, run):
    words = {"Wide": r"must return .*\[.*7\]", "misspelled": "TypeError.*token_dim"}[name]
    refuses(words, run, name)


def test_sources_are_hashed():
    before = RiskTrial().resolve({"n_samples": 5, "network": "./mine.py:Equinox"})["network_code"]
    assert before == load_learner("./mine.py:Equinox", {"inputs": "floats"}).fingerprint()
    with open("mine.py", "a") as file:
        file.write("# edited\n")
    after = RiskTrial().resolve({"n_samples": 5, "network": "./mine.py:Equinox"})["network_code"]
    assert before != after != ""
    old = RiskTrial().resolve({"n_samples": 5, "network": "./mine.py:Equinox"})
    with pytest.raises(FinettiError, match=r"network ./mine.py:Equinox has changed since"):
        RiskTrial().run_cohort([Trial("0", {**old, "network_code": before}, 0)])


def test_a_trained_instance_starts_from_its_weights(folder):
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    class Mean(eqx.Module):
        weights: jax.Array

        def __call__(self, tokens, mask_token):
            return tokens.mean(axis=0) @ self.weights

    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(30, 3, 2))
    data = tokens, np.zeros((30, 2)), tokens.mean(axis=1) @ [[2.0], [-1.0]]
    start = Mean(jnp.asarray([[2.0], [-1.0]], jnp.float32))
    found = minimize_risk(start, data, seed=0, iterations=1, learning_rate=1e-9, polish=0)
    assert isinstance(found.trained, Mean)
    assert found.risk < 1e-10

    def init(key):
        return jnp.zeros((2, 1), jnp.float32)

    def apply(params, tokens, mask_token):
        return tokens.mean(axis=1) @ params

    pair = minimize_risk((init, apply), data, seed=0, iterations=10)
    assert pair.best_risk < 1e-9  # least squares reach it
    few = {"iterations": 10, "class_samples": 20, "test_samples": 20, "restarts": 1}
    parts = decompose((init, apply), WORLD_OF_PAIRS, 10, seed=0, context_length=3, **few)
    assert parts.excess.value > 0


def test_statistics_of_batches_are_not_trained():
    """An instance that keeps some can be asked, but its risk would be that of other statistics."""
    from flax import nnx

    class Norm(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(1, rngs=rngs)

        def __call__(self, *inputs):
            return self.norm(inputs[0].mean(axis=(1, 2))[:, None])

    data = np.ones((5, 3, 2)), np.zeros((5, 2)), np.ones((5, 1))
    with pytest.raises(InputError, match="Norm keeps BatchStat beside its parameters"):
        minimize_risk(Norm(nnx.Rngs(0)), data, seed=0)
    values, query = np.ones((1, 4, 1)), np.ones((1, 2, 1))
    assert as_predictor(Norm(nnx.Rngs(0))).mean(query, values, values).shape == (1, 2, 1)


WORLD_OF_PAIRS = LinearGaussian(key_dimension=1, value_dimension=1)
