"""Lemma A.15: how far a layer moves with its weights and its tokens."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.lipschitz.edelman_constants import layer_constant, weight_bound
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.networks.projected_transformer import ProjectedLayer
from finetti.attention.networks.weights import as_weights
from finetti.core.forms import Form
from finetti.core.norms import sequence_norm, spectral


def layer_perturbation(
    layer: ProjectedLayer,
    other: ProjectedLayer,
    tokens: ArrayLike,
    other_tokens: ArrayLike,
    form: Form = "derived",
) -> Perturbation:
    """‖g' − ĝ'‖ ≤ p‖g − ĝ‖ + the layer's own error                     Lemma A.15, edelman2022

    with p = L_σB_CB_V(1 + 2C·B_QK r²) and the own error ‖(W_C − Ŵ_C)ᵀσ(Πf(ĝ;Ŵ))ᵀ‖ +
    C r² L_σB_CB_V‖(M − M̂)ĝᵀ‖ + L_σB_C‖(W_V − Ŵ_V)ᵀĝᵀ‖.

    Args:
        layer, other: W and Ŵ.
        tokens, other_tokens: g and ĝ, shape (T, d).
        form: "derived", or "printed" with C = 2 and r = 1.
    """
    owner = "layer_perturbation"
    tokens = as_weights(tokens, "tokens", owner, "(T, d)", (None, None))
    other_tokens = as_weights(other_tokens, "other_tokens", owner, "(T, d)", tokens.shape)
    radius = jnp.maximum(sequence_norm(tokens), sequence_norm(other_tokens))
    factor = layer_constant(
        layer.activation.lipschitz,
        spectral(layer.output_weights),
        spectral(layer.value_weights),
        spectral(layer.score_matrix),
        radius,
        form,
    )
    own = own_error(layer, other, other_tokens, radius, form)
    moved = sequence_norm(layer(tokens) - other(other_tokens))
    bound = factor * sequence_norm(tokens - other_tokens) + own
    return Perturbation(moved, bound, "Lemma A.15, edelman2022", form)


def own_error(
    layer: ProjectedLayer,
    other: ProjectedLayer,
    tokens: Float[Array, "T d"],
    radius: Float[Array, ""],
    form: Form,
) -> Float[Array, ""]:
    """What replacing W by Ŵ in one layer costs on the tokens ĝ, in Lemma A.15."""
    attention = weight_bound(
        value_norm=spectral(layer.value_weights),
        score_matrix_change=sequence_norm(tokens @ (layer.score_matrix - other.score_matrix).T),
        value_change=sequence_norm(tokens @ (layer.value_weights - other.value_weights)),
        radius=radius,
        form=form,
    )
    outside = other.inside(tokens) @ (layer.output_weights - other.output_weights)
    steepness = layer.activation.lipschitz * spectral(layer.output_weights)
    return sequence_norm(outside) + steepness * attention
