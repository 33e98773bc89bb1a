"""The constants of paper S's perturbation lemmas, as formulas of norms. Needs no JAX.

‖·‖ is the spectral norm; a sequence is measured by its longest row. All arguments may be numbers or
arrays of any kind. ``radius`` is r: every token has length at most r (the paper prints r = 1).
"""

from collections.abc import Sequence
from typing import Any

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.core.arguments import Form, check_form
from finetti.core.arrays import namespace
from finetti.core.errors import bad_argument


def softmax_distance(score_distance: Any) -> Any:
    """2 tanh(δ/2), the largest ‖softmax(θ) − softmax(θ')‖₁ at ‖θ − θ'‖_∞ = δ (ours)."""
    return 2 * namespace(score_distance).tanh(score_distance / 2)


def head_bound(
    score_change: Any,
    value_change: Any,
    radius: Any,
    in_growth: Any,
    out_lipschitz: Any,
    norm_lipschitz: Any,
) -> Any:
    """C_Norm L_out B_in B_X ‖ΔScore‖_∞ + L_out ‖Δφ_in‖_{2,∞}          Lemma 4.3, edelman2022"""
    return out_lipschitz * (norm_lipschitz * in_growth * radius * score_change + value_change)


def weight_bound(
    value_norm: Any,
    score_matrix_change: Any,
    value_change: Any,
    radius: Any = 1.0,
    form: Form = "derived",
) -> Any:
    """C‖W_V‖ r² ‖(M − M̂)Zᵀ‖_{2,∞} + ‖(W_V − Ŵ_V)ᵀZᵀ‖_{2,∞}          Lemma A.13, edelman2022

    Printed: C = 2 and r ≤ 1; Theorem A.17 uses it for longer tokens too (erratum 10).
    """
    check_form(form, "weight_bound")
    scale = radius**2 if form == "derived" else 1.0
    return softmax_constant(form) * scale * value_norm * score_matrix_change + value_change


def token_constant(
    value_norm: Any, score_norm: Any, radius: Any = 1.0, form: Form = "derived"
) -> Any:
    """‖W_V‖(1 + 2C‖M‖r²): by how much attention can move its tokens apart, A.14, edelman2022.

    Printed: C = 2 and r = 1.

    >>> token_constant(1.0, 1.0), token_constant(1.0, 1.0, form="printed")
    (3.0, 5.0)
    """
    check_form(form, "token_constant")
    scale = radius**2 if form == "derived" else 1.0
    return value_norm * (1 + 2 * softmax_constant(form) * score_norm * scale)


def layer_constant(
    activation_lipschitz: Any,
    output_norm: Any,
    value_norm: Any,
    score_norm: Any,
    radius: Any = 1.0,
    form: Form = "derived",
) -> Any:
    """p = L_σ B_C B_V (1 + 2C·B_QK r²), what one layer multiplies a deviation by (A.15)."""
    constant = token_constant(value_norm, score_norm, radius, form)
    return activation_lipschitz * output_norm * constant


def layer_radii(
    token_radius: Any,
    activation_lipschitz: Any,
    output_norms: Sequence[Any],
    value_norms: Sequence[Any],
) -> tuple[Any, ...]:
    """r_1, …, r_{L+1}: r_1 = B_X, q_i = min(1, B_V r_i), r_{i+1} = min(1, L_σ B_C q_i).

    How long the rows of g^{(i)} can be, layer by layer.
    """
    radii = [token_radius]
    for output_norm, value_norm in zip(output_norms, value_norms, strict=True):
        inside = _at_most_one(value_norm * radii[-1])
        radii.append(_at_most_one(activation_lipschitz * output_norm * inside))
    return tuple(radii)


def amplifications(factors: Sequence[Any], form: Form = "derived") -> tuple[Any, ...]:
    """What becomes of an error made in layer i: A_i = Π_{j>i} p_j, the layers AFTER it (A.17).

    Printed: α_i = Π_{j<i} p_j, the layers before it (erratum 2).

    >>> amplifications((2.0, 3.0, 5.0)), amplifications((2.0, 3.0, 5.0), "printed")
    ((15.0, 5.0, 1.0), (1.0, 2.0, 6.0))
    """
    check_form(form, "amplifications")
    if not factors:
        raise bad_argument("factors", "amplifications", "one number per layer", "none")
    ordered = list(factors) if form == "printed" else list(reversed(factors))
    products: list[Any] = [1.0]
    for factor in ordered[:-1]:
        products.append(products[-1] * factor)
    return tuple(products if form == "printed" else reversed(products))


def _at_most_one(value: Any) -> Any:
    xp = namespace(value)
    return xp.minimum(value, xp.ones_like(value))
