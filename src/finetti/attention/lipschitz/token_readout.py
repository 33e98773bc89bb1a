"""Lemma A.16: how far the scalar output moves."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.networks.self_attention import TokenReadout
from finetti.attention.networks.weights import as_weights
from finetti.core.errors import bad_argument


def readout_perturbation(
    readout: TokenReadout, other: TokenReadout, tokens: ArrayLike, other_tokens: ArrayLike
) -> Perturbation:
    """|wᵀg_[CLS] − ŵᵀĝ_[CLS]| ≤ ‖w‖‖g_[CLS] − ĝ_[CLS]‖ + |(w − ŵ)ᵀĝ_[CLS]|   A.16, edelman2022

    Args:
        readout, other: w and ŵ, scalar read-outs of the same position.
        tokens, other_tokens: g and ĝ, shape (T, d).
    """
    owner = "readout_perturbation"
    tokens = as_weights(tokens, "tokens", owner, "(T, d)", (None, None))
    other_tokens = as_weights(other_tokens, "other_tokens", owner, "(T, d)", tokens.shape)
    for name, module in (("readout", readout), ("other", other)):
        if module.weights.ndim != 1 or module.position != readout.position:
            raise bad_argument(name, owner, "scalar, both of one position", module)
    read, other_read = tokens[readout.position], other_tokens[readout.position]
    moved = jnp.abs(readout(tokens) - other(other_tokens))
    own = jnp.abs((readout.weights - other.weights) @ other_read)
    bound = readout.lipschitz * jnp.linalg.norm(read - other_read) + own
    return Perturbation(moved, bound, "Lemma A.16, edelman2022", "derived")
