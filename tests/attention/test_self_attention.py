"""Self-attention, positions, [CLS] and the read-out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.self_attention import (
    ClassToken,
    Positions,
    SelfAttention,
    TokenReadout,
)
from finetti.core.errors import InputError

RNG = np.random.default_rng(2)
TOKENS = RNG.normal(size=(2, 5, 4))


def test_y_is_row_softmax_of_x():
    """Y = σ(RowSoftmax(XW_Q(XW_K)ᵀ)XW_V)W_C, Section 3.2, edelman2022."""
    query, key, value = RNG.normal(size=(3, 4, 3))
    output = RNG.normal(size=(3, 4))
    layer = SelfAttention(
        MultiHead(query[None], key[None], value[None], output[None], activation="relu")
    )
    for tokens, out in zip(TOKENS, layer(TOKENS), strict=True):
        scores = tokens @ query @ (tokens @ key).T
        rows = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        expected = np.maximum(rows @ tokens @ value, 0) @ output
        np.testing.assert_allclose(out, expected, atol=1e-12)


def test_without_positions_the_order_does_not_matter_with_them_it_does():
    layer = SelfAttention(MultiHead(*RNG.normal(size=(3, 1, 4, 4))))
    cls, readout = ClassToken(RNG.normal(size=4)), TokenReadout(RNG.normal(size=4))
    positions = Positions(RNG.normal(size=(7, 4)))
    order = [3, 1, 4, 0, 2]
    plain = jax.jit(lambda tokens: readout(layer(cls(tokens))))
    np.testing.assert_allclose(plain(TOKENS[:, order]), plain(TOKENS), atol=1e-12)
    placed = jax.jit(lambda tokens: readout(layer(positions(cls(tokens)))))
    assert (np.abs(placed(TOKENS[:, order]) - placed(TOKENS)) > 1e-3).all()
    np.testing.assert_array_equal(cls(TOKENS)[:, 1:], TOKENS)
    np.testing.assert_array_equal(positions(TOKENS)[0], TOKENS[0] + positions.vectors[:5])


def test_readout_of_any_position_as_number_or_vector():
    w = RNG.normal(size=(4, 2))
    np.testing.assert_allclose(TokenReadout(w, position=-1)(TOKENS), TOKENS[:, -1] @ w)
    np.testing.assert_allclose(TokenReadout(w[:, 0])(TOKENS), TOKENS[:, 0] @ w[:, 0])
    np.testing.assert_allclose(TokenReadout(w[:, 0]).lipschitz, np.linalg.norm(w[:, 0]))
    np.testing.assert_allclose(TokenReadout(w).lipschitz, np.linalg.norm(w, 2))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Positions(np.ones((3, 4)))(TOKENS), "tokens"),
        (lambda: Positions(np.ones((9, 3)))(TOKENS), "tokens"),
        (lambda: Positions(np.ones(3)), "vectors"),
        (lambda: ClassToken(np.ones((1, 4))), "vector"),
        (lambda: ClassToken(np.ones(4))(TOKENS[0, 0]), "tokens"),
        (lambda: TokenReadout(np.ones(4), position=5)(TOKENS), "tokens"),
        (lambda: TokenReadout(jnp.ones((2, 2, 2))), "weights"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()
