"""Heads against loops over them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.modules.smoother import KernelSmoother
from finetti.attention.modules.softmax import Softmax
from finetti.attention.networks.activations import ACTIVATIONS, Activation, as_activation
from finetti.attention.networks.multihead import MultiHead
from finetti.core.errors import InputError
from finetti.kernels.rbf import RBF

RNG = np.random.default_rng(1)
TOKENS, QUERIES = RNG.normal(size=(9, 6)), RNG.normal(size=(4, 6))
WEIGHTS = (
    RNG.normal(size=(3, 6, 2)),
    RNG.normal(size=(3, 6, 2)),
    RNG.normal(size=(3, 6, 4)),
    RNG.normal(size=(3, 4, 5)),
)
MEMBERS = {
    "softmax": Softmax(),
    "smoother": KernelSmoother(RBF()),
    "cme": ConditionalMean(RBF(), ridge=0.3),
}


@eqx.filter_jit
def read(heads, *arguments):
    return heads(*arguments)


@eqx.filter_jit
def by_loop(attention, activation=lambda x: x):
    total = 0
    for query, key, value, output in zip(*WEIGHTS, strict=True):
        total = (
            total + activation(attention(QUERIES @ query, TOKENS @ key, TOKENS @ value)) @ output
        )
    return total


@pytest.mark.parametrize("activation", ["identity", "relu"])
@pytest.mark.parametrize("name", MEMBERS)
def test_heads_are_a_loop(name, activation):
    heads = MultiHead(*WEIGHTS, MEMBERS[name], activation)
    expected = by_loop(MEMBERS[name], heads.activation)
    np.testing.assert_allclose(read(heads, QUERIES, TOKENS), expected, atol=1e-10)
    if activation == "identity":
        absorbed = read(heads.absorbed(), QUERIES, TOKENS)
        np.testing.assert_allclose(absorbed, expected, atol=1e-10)


def test_a_single_head_is_definition_3_2_word_for_word():
    query, key, value, output = (each[0] for each in WEIGHTS)
    head = MultiHead.single(query, key, value, output, activation="tanh")
    for z, found in zip(QUERIES, read(head, QUERIES, TOKENS), strict=True):
        scores = [z @ query @ key.T @ token for token in TOKENS]
        weights = np.exp(scores) / np.sum(np.exp(scores))
        seen = sum(w * value.T @ token for w, token in zip(weights, TOKENS, strict=True))
        np.testing.assert_allclose(found, output.T @ np.tanh(seen), atol=1e-12)
    np.testing.assert_allclose(head.score_matrices[0], query @ key.T)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_as_steep_as_they_say_and_not_steeper(name):
    activation = as_activation(name, "test")
    slopes = jax.vmap(jax.grad(activation))(jnp.linspace(-6, 6, 100_001))
    assert activation.lipschitz * (1 - 1e-6) <= jnp.abs(slopes).max() <= activation.lipschitz
    assert activation(jnp.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["softmax", "cme"])
def test_masks_and_batches(name):
    heads = MultiHead(*WEIGHTS, MEMBERS[name])
    mask = np.arange(9) < 6
    expected = read(heads, QUERIES, TOKENS[mask])
    np.testing.assert_allclose(read(heads, QUERIES, TOKENS, mask), expected, atol=1e-10)
    per_query = np.stack([mask] * 4)
    np.testing.assert_allclose(read(heads, QUERIES, TOKENS, per_query), expected, atol=1e-10)
    two = np.stack([QUERIES, -QUERIES]), np.stack([TOKENS, TOKENS]), np.stack([mask] * 2)
    batch = read(heads, *two)
    np.testing.assert_allclose(batch[0], expected, atol=1e-10)
    np.testing.assert_allclose(batch[1], read(heads, -QUERIES, TOKENS[mask]), atol=1e-10)


@pytest.mark.parametrize("of_query", [False, True])
def test_a_masked_token_may_hold_anything(of_query):
    heads, mask = MultiHead(*WEIGHTS), np.arange(9) % 3 > 0
    spoiled = np.where(mask[:, None], TOKENS, np.nan)
    given = np.broadcast_to(mask, (4, 9)) if of_query else mask
    found = read(heads, QUERIES, spoiled, given)
    np.testing.assert_allclose(found, read(heads, QUERIES, TOKENS, mask), rtol=1e-12)
    with pytest.raises(InputError, match="NaN"):
        heads(QUERIES, spoiled)


def test_init_is_deterministic_and_defaults_to_equal_shares():
    first, second = (MultiHead.init(jax.random.key(3), 2, 6) for _ in range(2))
    assert first.query_weights.shape == (2, 6, 3)
    assert first.n_heads == 2
    np.testing.assert_array_equal(first.value_weights, second.value_weights)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: MultiHead(WEIGHTS[0][0], *WEIGHTS[1:]), "query_weights"),
        (lambda: MultiHead(WEIGHTS[0], WEIGHTS[1][:2], *WEIGHTS[2:]), "key_weights"),
        (lambda: MultiHead(*WEIGHTS[:2], WEIGHTS[2][:, :4]), "value_weights"),
        (lambda: MultiHead(*WEIGHTS[:3], WEIGHTS[3][:, :3]), "output_weights"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES, TOKENS[:, :3]), "tokens"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES[:, :3], TOKENS), "queries"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES[0], TOKENS), "queries"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES, TOKENS, np.ones(8, bool)), "mask"),
        (lambda: MultiHead(*WEIGHTS)(QUERIES, TOKENS, np.ones(9)), "mask"),
        (lambda: MultiHead.init(jax.random.key(0), 4, 6), "n_heads"),
        (lambda: MultiHead.single(*np.ones((3, 4, 4)), np.ones((3, 4))), "output_weights"),
        (lambda: MultiHead(*WEIGHTS, activation="sigmoid"), "activation"),
        (lambda: Activation("sigmoid", jax.nn.sigmoid, 0.25), "function"),
        (lambda: Activation("none", lambda x: x, 0.0), "lipschitz"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()


def test_an_activation_cannot_be_absorbed():
    with pytest.raises(InputError, match="relu"):
        MultiHead(*WEIGHTS, activation="relu").absorbed()
