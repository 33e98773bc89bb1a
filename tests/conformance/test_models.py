"""Every form of model through probe, risk and coherence: it runs, or one sentence refuses it."""

import importlib.util
import os
import re
import subprocess
import sys

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
import optax
from flax import linen, nnx
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier

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
    def optimizer(self, learning_rate=0.01):
        return optax.adam(learning_rate)

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
linen_instance = Linen()
classifier = LogisticRegression()
regressor = Ridge()
def perceptron(penalty="l1"):
    return SGDClassifier("perceptron", penalty=penalty)

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
from finetti.torch import Attention
class Torch(torch.nn.Module):
    def __init__(self, out_dimension=2):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(1, out_dimension), torch.nn.Dropout(0.5)
    def forward(self, *inputs):
        mean = sum(x.float().mean(dim=tuple(range(1, x.ndim))) for x in inputs)
        return self.dropout(self.linear(mean[:, None]))
torch_one = lambda: Torch(1)
class TorchAttention(torch.nn.Module):
    def __init__(self, out_dimension=2):
        super().__init__()
        self.attention = Attention(4, 2, batch_first=True)
        self.linear = torch.nn.Linear(4, out_dimension)
    def forward(self, first, *rest):
        numbers = first.to(self.linear.weight.dtype).reshape(len(first), -1, 1)
        tokens = numbers * torch.arange(1, 5)
        return self.linear(self.attention(tokens, tokens, tokens)[0].mean(1))
torch_attention_one = lambda: TorchAttention(1)
def norm(out_dimension=2):
    return torch.nn.BatchNorm1d(out_dimension)
class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1, bias=False)
    def forward(self, tokens, mask_token):
        return self.linear(tokens.mean(dim=1))
"""
WORLD = LinearGaussian(key_dimension=2, value_dimension=1, noise_variance=0.5)
NO_MODEL = "is called to make a model"
REFUSED = "must be (an?|a class)"
# What probe and risk load, what coherence loads; the words of a refusal, None where it runs.
FORMS = {
    "equinox": ("Equinox", "equinox_one", None, None, None),
    "linen": ("Linen", "linen_one", None, None, None),
    "nnx": ("Nnx", "nnx_one", None, None, None),
    "pair": ("pair", "pair_one", None, None, None),
    "torch": ("Torch", "torch_one", None, None, None),
    "torch-attention": ("TorchAttention", "torch_attention_one", None, None, None),
    "classifier": ("classifier", "classifier", None, REFUSED, None),
    "regressor": ("regressor", "regressor", None, REFUSED, None),
    "function": ("function", "function", NO_MODEL, NO_MODEL, None),
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
    if form.startswith("torch"):
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
    if form.startswith("torch"):
        pytest.importorskip("torch")
    if words is not None:
        refuses(words, risk, name)
        return
    one, same, other = risk(name)
    assert one == same != other
    parts = sum(one[part] for part in ("generalization", "approximation", "optimization"))
    assert parts == pytest.approx(one["excess"], abs=1e-12)
    assert one["excess"] > 0
    known = "Equinox" if form == "equinox" else reference(name)
    assert one["bound_note"].endswith(f"this is {known}.")


@pytest.mark.parametrize("form", FORMS)
def test_coherence(form):
    _, name, _, _, _ = FORMS[form]
    if form.startswith("torch"):
        pytest.importorskip("torch")
    target = load_predictor(reference(name))
    assert target.name == reference(name)
    small = {"n_contexts": 2, "n_queries": 2, "n_orders": 3, "n_sequences": 5, "n_paths": 50}
    (row,) = measure_coherence([target], WORLD, [4], n_samples=10, **small).rows
    assert row.order.holds()  # also a network with dropout, which is off
    if form not in ("classifier", "sampler"):
        assert row.distance.value > 0


def imported(file):
    spec = importlib.util.spec_from_file_location("of_mine", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("form", ["equinox", "linen", "nnx", "pair", "torch"])
def test_dropout_is_on_in_training_only(form):
    """Weights drawn by one key, and answers in both modes."""
    import jax

    file, name = reference(FORMS[form][0]).split(":")
    model = as_model(getattr(imported(file), name), purpose=Purpose("network", "any"))
    model = model.in_jax() if form == "torch" else model
    batch = np.ones((3, 4, 2), np.float32), np.ones((3, 2), np.float32)
    network = model.start(jax.random.key(0), *batch)
    first, again = network(*batch), network(*batch)
    np.testing.assert_array_equal(first, again)
    assert np.ptp(first, axis=0).max() == 0
    drawn = [np.asarray(network(*batch, key=jax.random.key(seed))) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], first)


BITS = np.random.default_rng(0).integers(2, size=(40, 8)).astype(np.uint8)
LABELS = BITS[:, 1] & BITS[:, 6]


@pytest.mark.parametrize("form", ["equinox", "linen", "nnx", "pair"])
def test_networks_run_together_under_vmap(form):
    import jax

    learner = load_learner(reference(FORMS[form][0]), {"inputs": "floats"})
    keys = jax.random.split(jax.random.key(0), 3)

    def logits(key):
        return learner.apply(learner.init(key, 8), BITS, jax.random.fold_in(key, 1))

    together, alone = jax.jit(jax.vmap(logits))(keys), jax.jit(logits)
    np.testing.assert_allclose(together, np.stack([alone(key) for key in keys]), atol=1e-5)
    assert not np.allclose(together[0], together[1], atol=1e-3)


def test_one_logit_is_that_of_label_one():
    import jax

    learner = load_learner("./mine.py:pair", {"inputs": "floats", "out_dimension": 1})
    params = learner.init(jax.random.key(0), 8)
    logits = learner.apply(params, BITS, None)
    assert logits.shape == (40, 2)
    assert (logits[:, 0] == 0).all()
    expected = BITS.mean(axis=1) * float(params["weight"][0])
    np.testing.assert_allclose(logits[:, 1], expected, atol=1e-6)


def test_a_pytorch_module_is_minimized_by_its_own_gradients():
    """Linear in the mean token: the minimum is least squares, from every start."""
    mine, rng = imported("mine_torch.py"), np.random.default_rng(0)
    tokens, answers = rng.normal(size=(40, 3, 2)), rng.normal(size=(40, 1))
    means, data = tokens.mean(axis=1), (tokens, np.zeros((40, 2)), answers)
    least = np.mean((answers - means @ np.linalg.lstsq(means, answers)[0]) ** 2)
    module = mine.Mean()
    before = module.linear.weight.detach().numpy().copy()
    found = minimize_risk(module, data, seed=0, restarts=2, slots=2, iterations=60)
    assert found.best_risk == pytest.approx(least, rel=1e-6)
    assert found.slope < 1e-4
    np.testing.assert_array_equal(module.linear.weight.detach().numpy(), before)
    start = minimize_risk(module, data, seed=0, iterations=1, learning_rate=1e-12, polish=0)
    np.testing.assert_allclose(start.trained.params["linear.weight"], before, rtol=1e-6)
    miss = answers - means @ before.T
    assert start.risk == pytest.approx(float(np.mean(miss**2)), rel=1e-5)
    with pytest.raises(InputError, match="norm keeps BatchNorm1d beside its parameters"):
        minimize_risk(mine.norm, data, seed=0)
    # A user's process has x64 off, also in the threads that ask PyTorch; the polish has it on.
    np.savez("data.npz", *data)
    code = (
        "import numpy as np, mine_torch; from finetti.risk import minimize_risk; "
        "data = np.load('data.npz').values(); "
        "print(minimize_risk(mine_torch.Mean(), tuple(data), seed=0, iterations=20).best_risk)"
    )
    path = os.pathsep.join([".", *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert run.returncode == 0, run.stderr.decode()
    assert float(run.stdout) == pytest.approx(least, rel=1e-6)


def test_an_instance_without_weights_is_a_recipe_too():
    import jax

    given = {"inputs": "floats", "learning_rate": 0.05}
    learner = load_learner("./mine.py:linen_instance", given)
    assert learner.settings()["learning_rate"] == 0.05
    assert learner.init(jax.random.key(0), 8)["Dense_0"]["kernel"].shape == (1, 2)


@pytest.mark.parametrize("name", ["classifier", "perceptron"])
def test_an_estimator_is_fitted_anew_for_every_trial(name):
    learner = load_learner(f"./mine.py:{name}")
    first = learner.fit(BITS, LABELS, seed=2**62)
    before = first.predict(BITS)
    assert (before == LABELS).mean() >= 0.95
    second = learner.fit(1 - BITS, LABELS, seed=1)
    assert second.estimator is not first.estimator
    assert (first.predict(BITS) == before).all()


def test_the_seed_reaches_every_part_of_an_estimator():
    learner = load_learner("./mine.py:perceptron")
    states = [learner.fit(BITS, LABELS, s).estimator.random_state for s in (3, 3, 2**32 + 4)]
    assert states == [3, 3, 4]
    default = load_learner("sklearn.linear_model:Perceptron")  # whose own default is 0
    again = load_learner("sklearn.linear_model:Perceptron", default.settings())
    assert [each.fit(BITS, LABELS, 5).estimator.random_state for each in (default, again)] == [5, 5]
    nested = load_learner("rf_mlp", {"n_neurons": 20})
    one, same, other = (nested.fit(BITS, LABELS, s).estimator[-1].coef_ for s in (3, 3, 4))
    assert (one == same).all()
    assert (one != other).any()


def test_labels_that_are_all_the_same_need_no_estimator():
    for label in (0, 1):
        fitted = load_learner("l1").fit(BITS, np.full(len(BITS), label, np.uint8), seed=0)
        assert (fitted.predict(BITS) == label).all()


NEW_FORM = """
from dataclasses import dataclass
from typing import ClassVar
import jax
from finetti.models.model import JaxNetwork

def recognize(factory, built):
    return Polynomial(factory) if isinstance(built, str) else None

@dataclass(frozen=True, eq=False)
class Polynomial(JaxNetwork):
    form: ClassVar[str] = "a polynomial"
    def init(self, key, *example):
        outputs = self.factory.sizes(*example).get("out_dimension", 1)
        return jax.random.normal(key, (outputs,), "float32")
    def apply(self, params, *inputs, key=None):
        axes = tuple(range(1, inputs[0].ndim))
        return inputs[0].mean(axis=axes)[:, None] ** len(self.factory.build()) * params[None]
"""


def test_a_new_kind_of_model_is_one_file(folder, monkeypatch):
    """Here a string: its file serves all three commands, which know nothing of it."""
    from finetti.models import model_loading

    (folder / "polynomial_model.py").write_text(NEW_FORM)
    name = "finetti.models.polynomial_model"
    spec = importlib.util.spec_from_file_location(name, folder / "polynomial_model.py")
    monkeypatch.setitem(sys.modules, name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(sys.modules[name])
    monkeypatch.setattr(model_loading, "FORMS", ("polynomial_model", *model_loading.FORMS))
    with open("mine.py", "a") as file:
        file.write("def polynomial():\n    return 'xx'\n")
    one, same, _ = probe("polynomial")
    assert one.metrics == same.metrics
    one, same, _ = risk("polynomial")
    assert one == same
    target = load_predictor("./mine.py:polynomial")
    small = {"n_contexts": 2, "n_queries": 2, "n_orders": 3, "n_sequences": 5}
    (row,) = measure_coherence([target], WORLD, [4], **small).rows
    assert row.order.holds()
    assert row.distance.value > 0


@pytest.mark.parametrize("name", ["Wide", "misspelled"])
@pytest.mark.parametrize("run", [probe, risk])
def test_what_cannot_be_trained_is_refused_before_any_trial(name, run):
    words = {
        "Wide": r"must return .*\[.*7\]",
        "misspelled": f"{NO_MODEL}.*'token_dim' has no value",
    }[name]
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
