"""The factored engine and the textbook's layer are one function, gradients included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.probe.learners.factored import factored_logits
from finetti.probe.learners.textbook import Rates, draw_masks, textbook_logits
from finetti.probe.learners.transformer import TransformerLearner

HEADS, LENGTH, SAMPLES = 4, 6, 5
BITS = np.random.default_rng(0).integers(2, size=(SAMPLES, LENGTH)).astype(np.uint8)
RATES = {
    "none": Rates(0.0, 0.0, 0.0),
    "embedding": Rates(0.3, 0.0, 0.0),
    "attention": Rates(0.0, 0.3, 0.0),
    "output": Rates(0.0, 0.0, 0.3),
    "attention and output": Rates(0.0, 0.3, 0.2),
    "all": Rates(0.3, 0.2, 0.4),
}


@pytest.fixture(scope="module")
def params():
    """Far from the start, so that nothing is nearly zero or nearly linear."""
    start = TransformerLearner(width=8, n_heads=HEADS).init(jax.random.key(0), LENGTH)
    leaves, tree = jax.tree.flatten(start)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        a.astype(float) + jax.random.normal(k, a.shape) / 2
        for a, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


def textbook(params, key, rates):
    masks = None if key is None else draw_masks(key, rates, BITS, params, HEADS)
    return textbook_logits(params, BITS, masks, HEADS)


def factored(params, key, rates):
    return factored_logits(params, jnp.asarray(BITS), key, rates, HEADS)


def answers_and_gradients(route, params, key, rates):
    """Logits, and the gradient of a sum of them with random weights."""
    weights = jax.random.normal(jax.random.key(2), (SAMPLES, 2))

    def total(params):
        logits = route(params, key, rates)
        return jnp.sum(weights * logits), logits

    gradient, logits = jax.jit(jax.grad(total, has_aux=True))(params)
    return logits, gradient


@pytest.mark.parametrize("name", RATES)
def test_equal_to_the_textbook_under_the_same_masks(params, name):
    key = None if name == "none" else jax.random.key(3)
    pair = [answers_and_gradients(r, params, key, RATES[name]) for r in (textbook, factored)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10), *pair)


def test_the_masks_are_felt(params):
    """Else the test above could compare nothing with nothing."""
    plain = textbook(params, None, RATES["none"])
    for name in ("embedding", "attention", "output"):
        assert not np.allclose(factored(params, jax.random.key(3), RATES[name]), plain, atol=1e-3)


def test_a_cohort_is_its_members(params):
    keys = jax.random.split(jax.random.key(4), 3)
    others = jax.tree.map(lambda a: jnp.stack([a, 0.9 * a, 1.1 * a]), params)
    together = jax.vmap(lambda p, k: factored(p, k, RATES["all"]))(others, keys)
    for index in range(3):
        alone = factored(jax.tree.map(lambda a, i=index: a[i], others), keys[index], RATES["all"])
        np.testing.assert_allclose(together[index], alone, rtol=0, atol=1e-10)
