"""Lemma A.13: how far attention moves with its weights."""

from jax.typing import ArrayLike

from finetti.attention.lipschitz.edelman_constants import weight_bound
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.networks.projected_transformer import ProjectedLayer
from finetti.attention.networks.weights import as_weights
from finetti.core.forms import Form
from finetti.core.norms import sequence_norm, spectral


def attention_weight_perturbation(
    layer: ProjectedLayer, other: ProjectedLayer, tokens: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖f(Z;W) − f(Z;Ŵ)‖ ≤ C‖W_V‖r²‖(M − M̂)Zᵀ‖ + ‖(W_V − Ŵ_V)ᵀZᵀ‖   Lemma A.13, edelman2022

    f is the attention of a layer before its projections, M = W_QW_Kᵀ, r the longest token, and
    sequences are measured by their longest row. Printed: C = 2 and r = 1 (erratum 10).

    Args:
        layer, other: W and Ŵ.
        tokens: Z, shape (T, d).
        form: "derived" or "printed".
    """
    owner = "attention_weight_perturbation"
    tokens = as_weights(tokens, "tokens", owner, "(T, d)", (None, None))
    bound = weight_bound(
        value_norm=spectral(layer.value_weights),
        score_matrix_change=sequence_norm(tokens @ (layer.score_matrix - other.score_matrix).T),
        value_change=sequence_norm(tokens @ (layer.value_weights - other.value_weights)),
        radius=sequence_norm(tokens),
        form=form,
    )
    moved = sequence_norm(layer.attend(tokens) - other.attend(tokens))
    return Perturbation(moved, bound, "Lemma A.13, edelman2022", form)
