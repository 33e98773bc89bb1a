"""Theorem C.4 and (G.5): how the generalization of paper E's network scales."""

import math
from dataclasses import dataclass

from finetti.bounds.exchangeability.base import NetworkBound
from finetti.bounds.exchangeability.generalization import ComplexityBound
from finetti.bounds.exchangeability.network import FullLayerNorms, FullTransformer
from finetti.bounds.exchangeability.positive import Positive, total
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, log_of, summed
from finetti.core.errors import bad_argument
from finetti.core.forms import Form
from finetti.core.logspace import log1pexp


@dataclass(frozen=True)
class Scales:
    """γ, κ and ζ: how large, how wide and how sharp the layers are      (C.7)–(C.8), zhang2022"""

    growth: Positive
    width: Positive
    sharpness: Positive

    @classmethod
    def of(cls, network: FullTransformer, form: Form) -> "Scales":
        """The largest over the layers."""
        each = [_layer_scales(layer, form) for layer in network.layers]
        return cls(*(max(values) for values in zip(*each, strict=True)))


def _layer_scales(layer: FullLayerNorms, form: Form) -> tuple[Positive, Positive, Positive]:
    """γ_t = max{α^xα^σ, ω^v}, κ_t and ζ_t = (ω^{qk})²ω^v/ω̃^v.

    κ_t = max{(α^xR^σ + α^σR^x)/α̃, R^v/ω̃^v, R^{qk}/ω^{qk}}. Printed: R^{qk}/(ω^{qk}ω^v) for the last
    (erratum 5) and R^v for ω^v in ζ (erratum 8).
    """
    inner = Positive.of(layer.inner_norm)
    outer = Positive.of(1.0 if layer.outer_norm is None else layer.outer_norm)
    value_norm = total(head.value_norm for head in layer.heads)
    value_size = total(head.value_mixed_norm for head in layer.heads)
    score_norm = max(Positive.of(head.query_norm) + head.key_norm for head in layer.heads)
    score_size = total(Positive.of(h.query_mixed_norm) + h.key_mixed_norm for h in layer.heads)
    sizes = {"inner_norm": inner, "outer_norm": outer}
    sizes |= {"value_norm": value_norm, "query_norm": score_norm}
    for name, size in sizes.items():
        if size.log == -math.inf:
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
        scales.sharpness * Positive.of(input_norm) ** squared * (scales.growth + 1) ** (4 * layers)
    )
    if form == "printed":
        return (scales.width / scales.sharpness * 2 * (inside + 1) ** (layers + 3)).log
    front = scales.width / scales.sharpness**0.5 * 2 * layers**0.5
    return (front * (inside + 1) ** (layers + 1)).log


def log_rate(
    sizes: tuple[int, int, int], scales: Scales, skips: bool, sample: Sample, form: Form
) -> tuple[float, tuple[Term, ...]]:
    """(D√(HT)/√n)[T√log(2+γ) + √T√log(1+ζR²) + √log(1+κ/√ζ)] + √(log(1/δ)/n)

    ``sizes`` are D, H and T. Without skips log(1+γ). Printed: R for R² and κ/ζ for κ/√ζ, as in
    (G.5). Theorem C.4, zhang2022.
    """
    dimension, n_heads, n_layers = sizes
    squared = 2 if form == "derived" else 1
    front = math.log(dimension) + (math.log(n_heads) + math.log(n_layers) - sample.log_samples) / 2
    steep = scales.sharpness * Positive.of(sample.input_norm) ** squared
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


def _half_log(x: Positive) -> float:
    """log √log(1 + x)."""
    return log_of(float(log1pexp(x.log))) / 2


class TransformerRate(NetworkBound):
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
