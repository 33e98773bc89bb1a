"""Theorem 5.3: one head after one layer of a network, without skips."""

from typing import Any

from finetti.bounds import fields
from finetti.bounds.assumptions import NO_RESIDUALS, ONE_HEAD, ONE_LAYER
from finetti.bounds.base import Bound
from finetti.bounds.exchangeability.base import Constants
from finetti.bounds.exchangeability.generalization import ComplexityBound, TransformerRisk
from finetti.bounds.exchangeability.measure import measure_network
from finetti.bounds.exchangeability.network import FullHeadNorms, FullLayerNorms, FullTransformer
from finetti.bounds.exchangeability.positive import Positive
from finetti.bounds.exchangeability.rates import Scales, log_rate
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue
from finetti.core.errors import UnsupportedError
from finetti.core.forms import Form
from finetti.core.numbers import as_positive


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

    @classmethod
    def from_weights(cls, network: Any) -> "SingleAttention":
        """The smallest class with a network of one layer, one head, no skips, no A^σ."""
        measured = measure_network(network)
        layer = measured.layers[0]
        single = measured.n_layers == measured.n_heads == 1 and layer.outer_norm is None
        if not single or measured.skips:
            raise UnsupportedError(
                "Theorem 5.3 is about one layer of one head, without skips and with outer=None; "
                f"this network has {measured.n_layers} layers of {measured.n_heads} heads"
                f"{' and skips' if measured.skips else ''}. Nearest bound: E-thm-C.4-constants."
            )
        head = layer.heads[0]
        return cls(
            measured.dimension,
            measured.head_dimension,
            max(head.query_norm, head.key_norm, head.value_norm),
            max(head.query_mixed_norm, head.key_mixed_norm, head.value_mixed_norm),
            layer.inner_norm,
            layer.inner_mixed_norm,
        )

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

        Printed: κ = max{R^nn/α, R^attn/ω, R^attn/ω²} (erratum 5) and ζ = ωR^attn (erratum 8).
        """
        alpha, omega = Positive.of(self.feed_forward_norm), Positive.of(self.attention_norm)
        inner, size = Positive.of(self.feed_forward_size), Positive.of(self.attention_size)
        widths = [inner / alpha, size / omega]
        if form == "printed":
            widths.append(size / omega**2)
        steep = omega**2 if form == "derived" else omega * size
        return Scales(max(alpha, omega), max(widths), steep)


class SingleBound(Bound):
    """A bound for the class `SingleAttention`."""

    quantity = "generalization error"
    needs_bounded_loss = True
    assumes = (ONE_LAYER, ONE_HEAD, NO_RESIDUALS, *ComplexityBound.assumes)

    attention: SingleAttention = fields.part(SingleAttention)

    @classmethod
    def from_weights(cls, network: Any, **others: Any) -> "SingleBound":
        """The bound for the smallest class that contains a network."""
        return cls(SingleAttention.from_weights(network), **others)


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
    """Theorem 5.3 with all constants: Theorem C.4's at H = T = 1 without skips

    By Theorem C.5 and Lemmas C.7 and C.8, zhang2022.

    >>> bound = SingleRisk(SingleAttention(64, 16, attention_size=4.0, feed_forward_size=8.0))
    >>> bound.evaluate(Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)).vacuous
    False
    """

    name = "E-thm-5.3-constants"
    title = "generalization error of a single attention, with constants"
    statement = "E_gen ≤ Theorem C.4 with constants, at H = L = 1 without skips"
    citation = "Theorem 5.3, zhang2022"

    constants: Constants = fields.setting("paper")  # checked by `TransformerRisk`

    def _evaluate(self, sample: Sample) -> BoundValue:
        route = TransformerRisk(self.attention.as_network(), self.constants).evaluate(sample)
        return self.value(sample, route.log_value, route.terms, notes=route.notes)
