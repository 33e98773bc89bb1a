"""Networks run together, estimators are fitted anew; tests/conformance has what all forms do."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.probe import load_learner, make_rule

MATERIAL = Path(__file__).parent / "material"


def mine(name, options=None):
    return load_learner(f"./learners_of_mine.py:{name}", options, directory=MATERIAL)


@pytest.fixture(autouse=True)
def as_users_have_it():
    """JAX's own defaults: these files are written for them, not for the strict rules of tests."""
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        yield


@pytest.fixture(scope="module")
def sample():
    task = make_rule("and", 2, 8).draw(np.random.default_rng(0))
    return task.sample(np.random.default_rng(1), 40)


@pytest.mark.parametrize(("name", "options"), [("Mixer", {}), ("Graph", {"inputs": "floats"})])
def test_networks_run_together_under_vmap(name, options, sample):
    bits, _ = sample
    learner = mine(name, options)
    keys = jax.random.split(jax.random.key(0), 3)

    def logits(key):
        return learner.apply(learner.init(key, 8), bits, jax.random.fold_in(key, 1))

    together = jax.jit(jax.vmap(logits))(keys)
    alone = jax.jit(logits)
    assert jnp.allclose(together, jnp.stack([alone(key) for key in keys]), atol=1e-5)
    assert not jnp.allclose(together[0], together[1], atol=1e-3)


@pytest.mark.parametrize(("name", "least"), [("neighbors", 0.85), ("perceptron", 0.95)])
def test_an_estimator_is_fitted_anew_for_every_trial(name, least, sample):
    bits, labels = sample
    learner = mine(name)
    first = learner.fit(bits, labels, seed=2**62)
    before = first.predict(bits)
    assert (before == labels).mean() >= least
    second = learner.fit(1 - bits, labels, seed=1)
    assert second.estimator is not first.estimator
    assert (first.predict(bits) == before).all()


def test_the_seed_reaches_every_part_of_an_estimator(sample):
    learner = mine("perceptron")
    states = [learner.fit(*sample, seed=s).estimator.random_state for s in (3, 3, 2**32 + 4)]
    assert states == [3, 3, 4]
    default = load_learner("sklearn.linear_model:Perceptron")  # whose own default is 0
    again = load_learner("sklearn.linear_model:Perceptron", default.settings())
    assert [each.fit(*sample, seed=5).estimator.random_state for each in (default, again)] == [5, 5]
    nested = load_learner("rf_mlp", {"n_neurons": 20})
    one, same, other = (nested.fit(*sample, seed=s).estimator[-1].coef_ for s in (3, 3, 4))
    assert (one == same).all()
    assert (one != other).any()


def test_labels_that_are_all_the_same_need_no_estimator(sample):
    bits, _ = sample
    for label in (0, 1):
        fitted = load_learner("l1").fit(bits, np.full(len(bits), label, np.uint8), seed=0)
        assert (fitted.predict(bits) == label).all()


def test_an_instance_without_weights_is_a_recipe_too():
    learner = mine("dense", {"inputs": "floats", "learning_rate": 0.05})
    assert learner.settings()["learning_rate"] == 0.05
    assert learner.init(jax.random.key(0), 8)["Dense_0"]["kernel"].shape == (8, 4)


def test_one_logit_is_that_of_label_one(sample):
    bits, _ = sample
    learner = mine("pair", {"inputs": "floats"})
    params = learner.init(jax.random.key(0), 8)
    logits = learner.apply(params, bits, None)
    assert logits.shape == (40, 2)
    assert (logits[:, 0] == 0).all()
    expected = bits.astype(np.float32) @ np.asarray(params["weight"])
    assert np.allclose(logits[:, 1], expected, atol=1e-6)
