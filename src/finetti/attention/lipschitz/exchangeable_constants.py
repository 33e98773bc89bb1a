"""The constants of paper E's perturbation lemmas, as formulas of norms. Needs no JAX.

Attention is softmax over −‖q − k‖²/(2σ²), with ``bandwidth`` σ² fixed. ω_q, ω_k, ω_v are operator
norms of the weights, R the length of the longest token. The paper prints its lemmas for
σ² = 2d_p^{1/s} and bounds 1/σ² by 1 there; the derived forms keep 1/σ² and hold for any bandwidth.
"""

from collections.abc import Iterable
from typing import Any

from finetti.attention.networks.softmax_constants import check_exponent
from finetti.core.arguments import Form, check_form


def rbf_constant(
    bandwidth: Any, head_dimension: int, r: float = 2.0, form: Form = "derived"
) -> Any:
    """c of F.1: ‖Δsoftmax(q, K)‖₁ ≤ c(‖q‖_r + ‖K‖_{r,∞})‖ΔK‖_{r,∞}, zhang2022.

    Derived: c = σ⁻²·d_p^{max(0, 1 − 2/r)} from C = 1 for softmax and Hölder, sharp for every r and
    σ². Printed: 1, for σ² = 2d_p^{1/s} only.

    >>> rbf_constant(2.0, 16), rbf_constant(2.0, 16, r=4.0)
    (0.5, 2.0)
    """
    check_form(form, "rbf_constant")
    check_exponent(r, "rbf_constant")
    if form == "printed":
        return 1.0
    return float(head_dimension) ** max(0.0, 1.0 - 2.0 / r) / bandwidth


def heads_weight_bound(
    value_changes: Iterable[Any],
    query_key_norms: Iterable[Any],
    query_key_changes: Iterable[Any],
    value_norms: Iterable[Any],
    radius: Any,
    bandwidth: Any,
    form: Form = "derived",
) -> Any:
    """RΣε_v + σ⁻²R³Σ ω_v(ω_q + ω_k)(ε_q + ε_k) over the heads             Lemma C.11, zhang2022

    Printed: without σ⁻² and without ω_v, which (F.10)–(F.11) contain (erratum 5). Each argument
    has one number per head; ``query_key_norms`` are ω_q + ω_k, ``query_key_changes`` ε_q + ε_k.
    """
    check_form(form, "heads_weight_bound")
    total = 0.0
    for value_change, norm, change, value_norm in zip(
        value_changes, query_key_norms, query_key_changes, value_norms, strict=True
    ):
        second = norm * change * radius**3
        total = total + radius * value_change
        total = total + (second if form == "printed" else second * value_norm / bandwidth)
    return total


def heads_token_constant(
    value_norms: Iterable[Any],
    query_key_norms: Iterable[Any],
    radius: Any,
    bandwidth: Any,
    form: Form = "derived",
) -> Any:
    """ρ = Σω_v + σ⁻²R²Σ(ω_q + ω_k)²ω_v over the heads                     Lemma C.13, zhang2022

    Printed: without σ⁻², for σ² = 2d_p^{1/s}.

    >>> heads_token_constant([1.0], [2.0], radius=1.0, bandwidth=2.0)
    3.0
    """
    check_form(form, "heads_token_constant")
    width = 1.0 if form == "printed" else bandwidth
    total = 0.0
    for value_norm, norm in zip(value_norms, query_key_norms, strict=True):
        total = total + value_norm * (1 + norm**2 * radius**2 / width)
    return total


def residual_radii(
    token_radius: Any, feed_forward_constants: Iterable[Any], head_constants: Iterable[Any]
) -> tuple[Any, ...]:
    """R_0, …, R_T: R_{t+1} = ω̃_t α̃_t R_t, how long tokens can be before layer t (C.6, G.6)."""
    radii = [token_radius]
    for feed_forward, heads in zip(feed_forward_constants, head_constants, strict=True):
        radii.append(radii[-1] * feed_forward * heads)
    return tuple(radii)


def residual_deviation(
    feed_forward_changes: Iterable[Any],
    head_changes: Iterable[Any],
    feed_forward_constants: Iterable[Any],
    head_constants: Iterable[Any],
) -> Any:
    """Σ_t (ρ̃_t ε_{t,a} + ε_{t,w}) Π_{τ>t} ρ̃_τ α̃_τ                        Lemma C.14, zhang2022

    The deviation after T layers when layer t's feed-forward part errs by ε_{t,a} and its heads by
    ε_{t,w}; α̃ and ρ̃ are the Lipschitz constants of the two parts.
    """
    total = 0.0
    layers = zip(
        feed_forward_changes, head_changes, feed_forward_constants, head_constants, strict=True
    )
    for feed_forward_change, head_change, feed_forward, heads in layers:
        total = heads * (feed_forward * total + feed_forward_change) + head_change
    return total
