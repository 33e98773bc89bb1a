"""The general head against loops, and its constants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention.networks.activations import ACTIVATIONS, Activation, as_activation
from finetti.attention.networks.head import Head
from finetti.attention.networks.head_parts import (
    BilinearScore,
    LinearMap,
    Normalization,
    Score,
    SoftmaxNormalization,
)
from finetti.core.errors import InputError

RNG = np.random.default_rng(0)
TOKENS, QUERY = RNG.normal(size=(7, 5)), RNG.normal(size=(4, 5))
QUERY_WEIGHTS, KEY_WEIGHTS, VALUE_WEIGHTS = RNG.normal(size=(3, 5, 2))
OUTPUT_WEIGHTS = RNG.normal(size=(2, 6))
HEAD = Head.transformer(QUERY_WEIGHTS, KEY_WEIGHTS, VALUE_WEIGHTS, OUTPUT_WEIGHTS, "tanh")


def by_loop(tokens, query):
    """Definition 3.2 word for word."""
    scores = [query @ QUERY_WEIGHTS @ KEY_WEIGHTS.T @ token for token in tokens]
    weights = np.exp(scores) / np.sum(np.exp(scores))
    read = sum(w * VALUE_WEIGHTS.T @ token for w, token in zip(weights, tokens, strict=True))
    return OUTPUT_WEIGHTS.T @ np.tanh(read)


def test_transformer_head_is_the_definition():
    out = HEAD(TOKENS, QUERY)
    np.testing.assert_allclose(out, [by_loop(TOKENS, q) for q in QUERY], atol=1e-12)
    np.testing.assert_allclose(HEAD(TOKENS, QUERY[0]), by_loop(TOKENS, QUERY[0]), atol=1e-12)


def test_batches_and_query_axes():
    tokens = np.stack([TOKENS, TOKENS[::-1] + 1])
    queries = RNG.normal(size=(2, 3, 4, 5))
    out = HEAD(tokens, queries)
    assert out.shape == (2, 3, 4, 6)
    for b in range(2):
        np.testing.assert_allclose(out[b, 1, 2], by_loop(tokens[b], queries[b, 1, 2]), atol=1e-12)
    assert HEAD.weights(tokens, queries).shape == (2, 3, 4, 7)
    np.testing.assert_allclose(HEAD.weights(tokens, queries).sum(axis=-1), 1, atol=1e-12)


def test_a_masked_token_counts_as_deleted():
    mask = np.array([True, False, True, True, False, True, True])
    kept = HEAD(TOKENS[mask], QUERY)
    np.testing.assert_allclose(HEAD(TOKENS, QUERY, mask), kept, atol=1e-12)
    per_query = np.stack([mask] * 4)
    np.testing.assert_allclose(HEAD(TOKENS, QUERY, per_query), kept, atol=1e-12)
    assert (HEAD.weights(TOKENS, QUERY, mask)[:, ~mask] == 0).all()


class Distance(Score):
    def __call__(self, tokens, queries):
        return -jnp.sum((queries[:, None, :] - tokens[None, :, :]) ** 2, axis=-1)


class Even(Normalization):
    def __call__(self, scores, mask=None):
        return jnp.full_like(scores, 1 / scores.shape[-1])

    def lipschitz(self, form="derived"):
        return 0.0


def test_every_part_can_be_replaced():
    plain = LinearMap(np.eye(5))
    even = Head(Distance(), Even(), plain, plain)
    np.testing.assert_allclose(
        even(TOKENS, QUERY), np.tile(TOKENS.mean(axis=0), (4, 1)), atol=1e-12
    )
    assert even.norm_lipschitz("printed") == 0
    near = Head(Distance(), SoftmaxNormalization(), plain, plain)
    np.testing.assert_allclose(near(100 * TOKENS, 100 * TOKENS), 100 * TOKENS, atol=1e-9)


def test_constants_are_those_of_assumption_4_1():
    np.testing.assert_allclose(HEAD.out_lipschitz, np.linalg.norm(OUTPUT_WEIGHTS, 2))
    np.testing.assert_allclose(HEAD.in_growth, np.linalg.norm(VALUE_WEIGHTS, 2))
    assert HEAD.norm_lipschitz() == 1
    assert HEAD.norm_lipschitz("printed") == 2
    gelu = LinearMap(OUTPUT_WEIGHTS, "gelu")
    ratio = float(gelu.lipschitz) / np.linalg.norm(OUTPUT_WEIGHTS, 2)
    np.testing.assert_allclose(ratio, 1.1289041452)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_as_steep_as_they_say_and_not_steeper(name):
    activation = as_activation(name, "test")
    slopes = jax.vmap(jax.grad(activation))(jnp.linspace(-6, 6, 100_001))
    assert activation.lipschitz * (1 - 1e-6) <= jnp.abs(slopes).max() <= activation.lipschitz
    assert activation(jnp.zeros(3)).tolist() == [0, 0, 0]


def test_gradients_reach_every_weight():
    @jax.jit
    def loss(head):
        return jnp.sum(head(jnp.asarray(TOKENS), jnp.asarray(QUERY)) ** 2)

    gradient = jax.grad(loss)(HEAD)
    leaves = jax.tree.leaves(gradient)
    assert len(leaves) == 4
    weights, step = jax.tree.flatten(HEAD)[0], 1e-6
    structure = jax.tree.structure(HEAD)
    for index, leaf in enumerate(leaves):
        moved = [w.at[0, 0].add(step) if i == index else w for i, w in enumerate(weights)]
        back = [w.at[0, 0].add(-step) if i == index else w for i, w in enumerate(weights)]
        rise = loss(structure.unflatten(moved)) - loss(structure.unflatten(back))
        np.testing.assert_allclose(leaf[0, 0], rise / (2 * step), rtol=1e-5, atol=1e-8)


def test_precision_is_the_widest():
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), HEAD)
    assert half(TOKENS.astype(np.float32), QUERY.astype(np.float32)).dtype == jnp.float32
    assert half(TOKENS, QUERY).dtype == jnp.float64


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: HEAD(TOKENS[0], QUERY), "tokens"),
        (lambda: HEAD(TOKENS[:0], QUERY), "tokens"),
        (lambda: HEAD(TOKENS * np.nan, QUERY), "tokens"),
        (lambda: HEAD(TOKENS[None], QUERY), "query"),
        (lambda: HEAD(TOKENS, QUERY, np.ones(7)), "mask"),
        (lambda: HEAD(TOKENS, QUERY, np.ones(6, bool)), "mask"),
        (lambda: BilinearScore(QUERY_WEIGHTS, KEY_WEIGHTS[:, :1]), "key_weights"),
        (lambda: LinearMap(np.ones(3)), "weights"),
        (lambda: LinearMap(np.full((2, 2), np.inf)), "weights"),
        (lambda: LinearMap(np.ones((2, 2)), "sigmoid"), "activation"),
        (lambda: Activation("sigmoid", jax.nn.sigmoid, 0.25), "function"),
        (lambda: Activation("none", lambda x: x, 0.0), "lipschitz"),
        (lambda: HEAD.norm_lipschitz("exact"), "form"),
        (
            lambda: Head.transformer(QUERY_WEIGHTS, KEY_WEIGHTS, VALUE_WEIGHTS, np.ones((3, 2))),
            "output_weights",
        ),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()


@pytest.mark.parametrize("of_query", [False, True])
def test_a_masked_token_may_hold_anything(of_query):
    mask = np.array([True, True, False, True, True, False, True])
    spoiled = np.where(mask[:, None], TOKENS, np.nan)
    given = np.broadcast_to(mask, (4, 7)) if of_query else mask
    np.testing.assert_allclose(HEAD(spoiled, QUERY, given), HEAD(TOKENS, QUERY, mask), rtol=1e-12)
    with pytest.raises(InputError, match="`tokens`"):
        HEAD(spoiled, QUERY)
