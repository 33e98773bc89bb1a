"""Theorems C.4 and 5.3 and (G.5): how the generalization of paper E's networks scales."""

import math
from dataclasses import dataclass, replace

import numpy as np

from finetti.bounds import description as fields
from finetti.bounds.bound import NO_RESIDUALS, ONE_HEAD, ONE_LAYER, Bound
from finetti.bounds.exchangeability.generalization_error import ComplexityBound, TransformerRisk
from finetti.bounds.exchangeability.layer_constants import summed_norms
from finetti.bounds.exchangeability.layer_coverings import FullTransformerBound
from finetti.bounds.exchangeability.residual_class import (
    FullHeadNorms,
    FullLayerNorms,
    FullTransformer,
)
from finetti.bounds.value import BoundValue, Sample, Term, log_of, summed
from finetti.core.arguments import Form, as_positive
from finetti.core.errors import bad_argument
from finetti.core.numerics.log_number import LogNumber


@dataclass(frozen=True)
class Scales:
    """γ, κ and ζ: how large, how wide and how sharp the layers are      (C.7)–(C.8), zhang2022"""

    growth: LogNumber
    width: LogNumber
    sharpness: LogNumber

    @classmethod
    def of(cls, network: FullTransformer, form: Form) -> "Scales":
        """The largest over the layers."""
        each = [_layer_scales(layer, form) for layer in network.layers]
        return cls(*(max(values) for values in zip(*each, strict=True)))


def _layer_scales(layer: FullLayerNorms, form: Form) -> tuple[LogNumber, LogNumber, LogNumber]:
    """γ_t = max{α^xα^σ, ω^v}, κ_t and ζ_t = (ω^{qk})²ω^v/ω̃^v.

    κ_t = max{(α^xR^σ + α^σR^x)/α̃, R^v/ω̃^v, R^{qk}/ω^{qk}}. Printed: R^{qk}/(ω^{qk}ω^v) for the last
    (erratum 5) and R^v for ω^v in ζ (erratum 8).
    """
    inner = LogNumber.from_float(layer.inner_norm)
    outer = LogNumber.from_float(1.0 if layer.outer_norm is None else layer.outer_norm)
    value_norm, score_norm, value_size, score_size = summed_norms(layer)
    norms = {"inner_norm": inner, "outer_norm": outer}
    norms |= {"value_norm": value_norm, "query_norm": score_norm}
    for name, norm in norms.items():
        if norm.log == -math.inf:
            raise bad_argument(name, "Theorem C.4", "a number: it has layers with norms > 0", 0)
    feed_forward = inner * outer + float(layer.feed_forward_skip)
    heads = value_norm + float(layer.attention_skip)
    sizes = inner * (layer.outer_mixed_norm or 0.0) + outer * layer.inner_mixed_norm
    last = score_size / score_norm
    steep = score_norm**2 / heads * (value_norm if form == "derived" else value_size)
    width = max(
        sizes / feed_forward, value_size / heads, last if form == "derived" else last / value_norm
    )
    return max(inner * outer, value_norm), width, steep


def log_product_limit(network: FullTransformer, input_norm: float, form: Form = "derived") -> float:
    """The log of what (G.5) bounds R_T^trans R_T by, in γ, κ, ζ, T and R_0     (G.5), zhang2022

    Derived, with skips: (2κ/√ζ)√T (1 + ζR_0²(1+γ)^{4T})^{T+1}, from ρ̃_t/ω̃_t ≤ 1 + ζ(α̃_tR_t)² with
    α̃_tR_t ≤ R_0(1+γ)^{2t+1}, and a geometric sum. Printed: (2κ/ζ)(1 + ζR_0(1+γ)^{4T})^{T+3}, with
    R_0 where R_0² belongs.

    >>> network = FullTransformer.uniform(2, 2)       # γ = 1, κ = 1 and ζ = 2, so 2/√2·(1 + 32)²
    >>> round(math.exp(log_product_limit(network, 1.0)), 6) == round(2**0.5 * 33**2, 6)
    True
    """
    scales, layers = Scales.of(network, form), network.n_layers
    squared = 2 if form == "derived" else 1
    inside = (
        scales.sharpness
        * LogNumber.from_float(input_norm) ** squared
        * (scales.growth + 1) ** (4 * layers)
    )
    if form == "printed":
        return (scales.width / scales.sharpness * 2 * (inside + 1) ** (layers + 3)).log
    front = scales.width / scales.sharpness**0.5 * 2 * layers**0.5
    return (front * (inside + 1) ** (layers + 1)).log


def log_rate(
    sizes: tuple[int, int, int], scales: Scales, skips: bool, sample: Sample, form: Form
) -> tuple[float, tuple[Term, ...]]:
    """The rate of `TransformerRate` for ``sizes`` D, H and T; without skips log(1+γ).

    Printed: R for R² and κ/ζ for κ/√ζ, as in (G.5).
    """
    dimension, n_heads, n_layers = sizes
    squared = 2 if form == "derived" else 1
    front = math.log(dimension) + (math.log(n_heads) + math.log(n_layers) - sample.log_samples) / 2
    steep = scales.sharpness * LogNumber.from_float(sample.input_norm) ** squared
    wide = scales.width / scales.sharpness ** (1 / squared)
    base = scales.growth + (1.0 if skips else 0.0)
    confidence = (math.log(-math.log(sample.delta)) - sample.log_samples) / 2
    return summed(
        (
            Term("growth γ", log_value=front + math.log(n_layers) + _half_log(base)),
            Term("sharpness ζ", log_value=front + math.log(n_layers) / 2 + _half_log(steep)),
            Term("width κ", log_value=front + _half_log(wide)),
            Term("confidence", log_value=confidence),
        )
    )


def _half_log(x: LogNumber) -> float:
    """log √log(1 + x)."""
    return log_of(float(np.logaddexp(0.0, x.log))) / 2


class TransformerRate(FullTransformerBound):
    """E_gen = O((D√(HT)/√n)[T√log(2+γ) + √T√log(1+ζR_0²) + √log(1+κ/√ζ)] + √(log(1/δ)/n))

    Derived: κ and ζ with errata 5 and 8, R_0² for R_0 and therefore κ/√ζ. It falls when an operator
    norm grows at fixed mixed norms, because κ does; `TransformerRisk` does not.

    In the example γ = κ = 1 and ζ = 2: 0.2(2√log 3 + √log(1 + 1/√2)) + √(log 20)/10.

    >>> network = FullTransformer.uniform(2, 2)
    >>> round(TransformerRate(network).evaluate(Sample(n_samples=100, context_length=10)).value, 6)
    0.738601
    """

    name = "E-thm-C.4"
    title = "how the full Transformer generalizes"
    statement = "E_gen = O(D√(H·L/n)·[L√log(2+γ) + √L√log(1+ζB_X²) + √log(1+κ/√ζ)] + √(log(1/δ)/n))"
    citation = "Theorem C.4, zhang2022"
    quantity = "generalization error"
    derived_kind = "scaling"
    assumes = ComplexityBound.assumes
    needs_bounded_loss = True
    printed_kind = "scaling"

    def _evaluate(self, sample: Sample) -> BoundValue:
        network = self.network
        sizes = network.largest_dimension, network.n_heads, network.n_layers
        scales = Scales.of(network, self.form)
        return self.value(sample, *log_rate(sizes, scales, network.skips, sample, self.form))


class SingleAttention(fields.Description):
    """F_attn: agg ∘ attn(W_q^⊤nn(x), W_k^⊤nn(x), W_v^⊤nn(x)), nn(x) = ReLU(Ax)    (5.1), zhang2022

    Assumption 5.1: one bound ω for the spectral and one R^attn for the Frobenius norms of W_q, W_k
    and W_v.

    Args:
        dimension: d of a token.
        head_dimension: d_p.
        attention_norm, attention_size: ω and R^attn.
        feed_forward_norm, feed_forward_size: α and R^nn of A.
    """

    dimension: int = fields.size("width")
    head_dimension: int = fields.size("head_width")
    attention_norm: float = fields.norm(1.0, as_positive)
    attention_size: float = fields.norm(1.0, as_positive, like="attention_norm")
    feed_forward_norm: float = fields.norm(1.0, as_positive)
    feed_forward_size: float = fields.norm(1.0, as_positive, like="feed_forward_norm")

    def as_network(self) -> FullTransformer:
        """The same class as a `FullTransformer` with H = T = 1 and σ² = d_p of (5.4)."""
        omega, size = self.attention_norm, self.attention_size
        layer = FullLayerNorms(
            (FullHeadNorms(omega, omega, omega, size, size, size),),
            inner_norm=self.feed_forward_norm,
            outer_norm=None,
            inner_mixed_norm=self.feed_forward_size,
            outer_mixed_norm=None,
            feed_forward_skip=False,
            attention_skip=False,
        )
        sizes = self.dimension, self.dimension, self.head_dimension
        return FullTransformer(*sizes, (layer,), bandwidth=float(self.head_dimension))

    def scales(self, form: Form) -> Scales:
        """γ = max{α, ω}, κ = max{R^nn/α, R^attn/ω}, ζ = ω².

        Printed: κ = max{R^nn/α, R^attn/ω, R^attn/ω²} (erratum 5) and ζ = ωR^attn (erratum 8). They
        are those of `as_network`, but for ζ, where the paper has ω^q + ω^k = ω.
        """
        found = Scales.of(self.as_network(), form)
        return replace(found, sharpness=found.sharpness / 4)


class SingleBound(Bound):
    """A bound for the class `SingleAttention`."""

    quantity = "generalization error"
    needs_bounded_loss = True
    assumes = (ONE_LAYER, ONE_HEAD, NO_RESIDUALS, *ComplexityBound.assumes)

    attention: SingleAttention = fields.part(SingleAttention)


class SingleRate(SingleBound):
    """E_gen = O((D/√n)[√log(1+γ) + √log(1+ζR²) + √log(1+κ/√ζ)] + √(log(1/δ)/n)), free of L

    Printed: R for R², κ/ζ for κ/√ζ, and other κ and ζ (see `SingleAttention.scales`).

    The value may fall when ``attention_norm`` grows at a fixed ``attention_size``, because κ does:
    a property of the scaling form, as in `TransformerRate`. `SingleRisk` never falls.

    It is Theorem C.4's rate where ω^q + ω^k = ω^v = ω, which is how the paper gets it. With the
    three norms all ω, as Assumption 5.1 allows, ζ of Theorem C.4 is 4ω²; the factor belongs to the
    constant that a scaling quantity leaves out, and `SingleRisk` keeps it.

    >>> import math
    >>> bound = SingleRate(SingleAttention(4, 2), form="printed")
    >>> round(bound.evaluate(Sample(1600, 10, delta=1 / math.e)).value, 6)  # 0.1·3·√log 2 + 1/40
    0.274766
    """

    name = "E-thm-5.3"
    title = "how a single attention generalizes"
    statement = (
        "E_gen = O((D/√n)·[√log(1+γ) + √log(1+ζB_X²) + √log(1+κ/√ζ)] + √(log(1/δ)/n)), free of T"
    )
    citation = "Theorem 5.3, zhang2022"
    derived_kind = "scaling"
    printed_kind = "scaling"

    def _evaluate(self, sample: Sample) -> BoundValue:
        sizes = max(self.attention.dimension, self.attention.head_dimension), 1, 1
        scales = self.attention.scales(self.form)
        return self.value(sample, *log_rate(sizes, scales, False, sample, self.form))


class SingleRisk(SingleBound):
    """Theorem 5.3 with all constants: `TransformerRisk` at H = T = 1 without skips

    >>> bound = SingleRisk(SingleAttention(64, 16, attention_size=4.0, feed_forward_size=8.0))
    >>> bound.evaluate(Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)).vacuous
    False
    """

    name = "E-thm-5.3-constants"
    title = "generalization error of a single attention, with constants"
    statement = "E_gen ≤ Theorem C.4 with constants, at H = L = 1 without skips"
    citation = "Theorem 5.3, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        route = TransformerRisk(self.attention.as_network()).evaluate(sample)
        return self.value(sample, route.log_value, route.terms, notes=route.notes)
