"""Positions, the read-out and linear maps."""

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention.networks.token_maps import (
    LinearMap,
    Positions,
    TokenReadout,
)
from finetti.core.errors import InputError

RNG = np.random.default_rng(2)
TOKENS = RNG.normal(size=(2, 5, 4))


def test_a_sequence_gets_the_first_positions():
    positions = Positions(RNG.normal(size=(7, 4)))
    np.testing.assert_array_equal(positions(TOKENS), TOKENS + np.asarray(positions.vectors)[:5])


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
        (lambda: LinearMap(np.ones(3)), "weights"),
        (lambda: LinearMap(np.full((2, 2), np.inf)), "weights"),
        (lambda: TokenReadout(np.ones(4), position=5)(TOKENS), "tokens"),
        (lambda: TokenReadout(jnp.ones((2, 2, 2))), "weights"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=f"`{word}`"):
        call()
