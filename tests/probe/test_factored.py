"""The factored engine and the textbook's layer are one function, gradients included."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.probe.cls_attention import dropped_tokens
from finetti.probe.cls_attention.table_attention import _spread
from finetti.probe.learners import factored_transformer as engine
from finetti.probe.learners.factored_transformer import factored_logits
from finetti.probe.learners.paper_transformer import TransformerLearner
from finetti.probe.learners.textbook_transformer import Rates, draw_masks, textbook_logits

HEADS, LENGTH, SAMPLES = 4, 6, 6
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
    learner = TransformerLearner(width=8, n_heads=HEADS)
    start = jax.eval_shape(lambda: learner.init(jax.random.key(0), LENGTH))
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(scale=0.5, size=a.shape)), start)


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
        return jnp.sum(weights.astype(logits.dtype) * logits), logits

    gradient, logits = jax.jit(jax.grad(total, has_aux=True))(params)
    return logits, gradient


def check_equal(first, second):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10), first, second)


@pytest.mark.parametrize("name", RATES)
def test_equal_to_the_textbook_under_the_same_masks(params, name, monkeypatch):
    # Blocks of two samples: there are several, as at any size that matters.
    monkeypatch.setattr(dropped_tokens, "BLOCK_BYTES", 2 * (LENGTH + 1) * 8 * 8)
    key = None if name == "none" else jax.random.key(3)
    wanted = answers_and_gradients(textbook, params, key, RATES[name])
    check_equal(answers_and_gradients(factored, params, key, RATES[name]), wanted)
    # Else the masks could be ones.
    plain = wanted[0] if key is None else jax.jit(textbook, static_argnums=2)(params, None, None)
    assert np.allclose(wanted[0], plain, atol=1e-3) == (name == "none")


def test_masks_that_would_repeat_are_refused():
    """Entries are numbered by 32 bits: (m, n, d) of more than 2³² would wrap around."""
    shape = jax.ShapeDtypeStruct
    sizes = (8, 8), (8,), (2**27, 1, 8), (2**27, 8)
    arrays = *(shape(size, jnp.float32) for size in sizes), shape((2, 2), jnp.uint32)
    attend = functools.partial(dropped_tokens.dropped_attention, rates=(0.1, 0.0))
    with pytest.raises(InputError, match="at most 67108864 samples, whose masks do not repeat"):
        jax.eval_shape(attend, *arrays)


def test_a_validation_in_chunks_is_the_same(params, monkeypatch):
    whole = answers_and_gradients(factored, params, None, RATES["none"])
    monkeypatch.setattr(engine, "CHUNK", 4)
    check_equal(answers_and_gradients(factored, params, None, RATES["none"]), whole)


def test_a_cohort_is_its_members(params):
    keys = jax.random.split(jax.random.key(4), 2)
    others = jax.tree.map(lambda a: jnp.stack([a, 0.9 * a]), params)
    one = jax.jit(lambda p, k: answers_and_gradients(factored, p, k, RATES["all"]))
    together = jax.jit(jax.vmap(one))(others, keys)
    for index in range(2):
        member = jax.tree.map(lambda a, i=index: a[i], others)
        alone = one(member, keys[index])
        check_equal(jax.tree.map(lambda a, i=index: a[i], together), alone)


def sharper(params, factor):
    """The same network with scores ``factor`` times as large."""
    (layer,) = params["layers"]
    query = jax.tree.map(lambda leaf: factor * leaf, layer["query"])
    return params | {"layers": [layer | {"query": query}]}


@pytest.mark.parametrize("name", ["none", "attention"])
def test_equal_however_sharp_the_attention_is(params, name):
    """In float32, whose squares end at e^±88: scores that spread over 10 to 600."""
    _, tables = engine._tables(params, HEADS)
    spread = float(jnp.max(_spread(tables)))
    key = None if name == "none" else jax.random.key(3)
    routes = {
        dtype: jax.jit(lambda p, route=route: answers_and_gradients(route, p, key, RATES[name]))
        for dtype, route in ((jnp.float32, factored), (jnp.float64, textbook))
    }
    for wanted in (10, 50, 80, 110, 140, 600):
        sharp = sharper(params, wanted / spread)
        found, exact = (
            jax.tree.leaves(route(jax.tree.map(lambda a, d=dtype: a.astype(d), sharp)))
            for dtype, route in routes.items()
        )
        for one, other in zip(found, exact, strict=True):
            # Scores are rounded to a half of 6e-8 times themselves, and so are all answers.
            tolerance = 2e-6 * wanted * max(1.0, float(jnp.abs(other).max()))
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
