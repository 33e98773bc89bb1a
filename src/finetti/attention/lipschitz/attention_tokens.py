"""Lemma A.14: how far attention moves with its tokens."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.edelman_constants import token_constant
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.networks.projected_transformer import ProjectedLayer
from finetti.attention.networks.weights import as_weights
from finetti.core.forms import Form
from finetti.core.norms import sequence_norm, spectral


def attention_token_perturbation(
    layer: ProjectedLayer, tokens: ArrayLike, other: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖f(Z;W) − f(Ẑ;W)‖ ≤ ‖W_V‖(1 + 2C‖M‖r²)‖Z − Ẑ‖                   Lemma A.14, edelman2022

    f is the attention of a layer before its projections, M = W_QW_Kᵀ, r the longest token of both
    sequences, and sequences are measured by their longest row. Printed: C = 2 and r = 1.

    Args:
        layer: W.
        tokens, other: Z and Ẑ, shape (T, d).
        form: "derived" or "printed".
    """
    owner = "attention_token_perturbation"
    tokens = as_weights(tokens, "tokens", owner, "(T, d)", (None, None))
    other = as_weights(other, "other", owner, "(T, d)", tokens.shape)
    radius = jnp.maximum(sequence_norm(tokens), sequence_norm(other))
    constant = token_constant(
        spectral(layer.value_weights), spectral(layer.score_matrix), radius, form
    )
    moved = sequence_norm(layer.attend(tokens) - layer.attend(other))
    bound = constant * sequence_norm(tokens - other)
    return Perturbation(moved, bound, "Lemma A.14, edelman2022", form)
