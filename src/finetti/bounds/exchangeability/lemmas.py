"""Lemmas C.8 to C.14: how far outputs move with weights and tokens, and the covers that follow."""

import math
from collections.abc import Sequence
from dataclasses import replace

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.exchangeability.base import NetworkBound, shared
from finetti.bounds.exchangeability.chain import links
from finetti.bounds.exchangeability.positive import Positive
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, log_of, summed
from finetti.core.logspace import log1pexp, log_subtract, log_sum
from finetti.core.numbers import as_positive


class HeadsTokenConstant(NetworkBound):
    """ρ = Σω^v + cR²Σ(ω^q + ω^k)²ω^v: how much the first layer's heads stretch a change of tokens

    Printed: c = 1, for the paper's σ². R is the sample's ``input_norm``. The sums are over the
    heads; the chain of layers (C.10) takes products of norms that are already summed, which is
    larger.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(8, n_heads=1)
    >>> round(HeadsTokenConstant(network).evaluate(Sample(1, 1)).value, 9)  # 1 + 2²
    5.0
    """

    name = "E-lemma-C.13"
    title = "Lipschitz constant of the heads in their tokens"
    statement = "heads move ≤ ρ times as far as their tokens, ρ = ΣB_V + c·B_X²·Σ(B_Q+B_K)²·B_V"
    citation = "Lemma C.13, zhang2022"
    quantity = "Lipschitz constant"
    printed_kind = "upper_bound"

    def _evaluate(self, sample: Sample) -> BoundValue:
        if self.form == "printed" and self.network.rbf_constant(sharp=True) > 1:
            raise self.refuse("σ² = 2d_p^{1/s} as printed", "itself, derived.")
        link = self.first_heads(sample)
        scores = log_subtract(link.constant.log, min(link.value_norm, link.constant).log)
        parts = (
            Term("values", 1, "W_V", link.value_norm.log),
            Term("scores", 1, "W_Q, W_K", float(scores)),
        )
        return self.value(sample, link.constant.log, summed(parts)[1])


class MovedBound(NetworkBound):
    """How far outputs move when every matrix moves by ``change`` times its mixed norm."""

    quantity = "deviation of the output"
    printed_kind = "unproven"

    change: float = fields.norm(0.01, as_positive)


class HeadsDeviation(MovedBound):
    """‖MHA(X;W) − MHA(X;Ŵ)‖ ≤ RΣε^v + cR³Σω^v(ω^q + ω^k)(ε^q + ε^k) for the first layer's heads

    with ε = ``change``·R of each matrix. Printed: neither ω^v nor c (erratum 5).

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(8, n_heads=1, norm=2.0)
    >>> round(HeadsDeviation(network, change=0.5).evaluate(Sample(1, 1)).value, 9)  # 1 + 2·4·2
    17.0
    """

    name = "E-lemma-C.11"
    title = "how far the heads move with their weights"
    statement = "heads move ≤ B_X·Ση_V + c·B_X³·ΣB_V(B_Q+B_K)(η_Q+η_K) with their weights"
    citation = "Lemma C.11, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        link = self.first_heads(sample)
        moved = link.reach * self.change
        sizes = (("W_V", link.values), ("W_Q, W_K", link.scores))
        terms = [Term(self.quantity, 1, matrix, (size * moved).log) for matrix, size in sizes]
        return self.value(sample, *summed(terms))


class TransformerDeviation(MovedBound):
    """‖X_T − X̂_T‖ ≤ Σ_t (ρ̃_tε_{t,a} + ε_{t,w}) Π_{τ>t} ρ̃_τα̃_τ, matrix by matrix

    with ε = ``change``·R of each matrix, so that it is ``change``·R_T^trans R_T.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(2, 2, bandwidth=4.0)
    >>> value = TransformerDeviation(network, "sharp", change=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 9)                            # (6·2 + 2·5)/2, as in Lemma C.8
    11.0
    """

    name = "E-lemma-C.14"
    title = "how far the full Transformer moves with its weights"
    statement = "the output moves ≤ Σ over layers of (ρ̃·η_F + η_H)·Π over later layers of ρ̃·α̃"
    citation = "Lemma C.14, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_size, parts = self.log_deviation(sample)
        shift = Positive.of(self.change).log
        moved = [replace(part, log_value=part.log_value + shift) for part in parts]
        return self.value(sample, log_size + shift, moved)


def log_volume(count: float, log_radius: float, log_resolution: float) -> float:
    """log of p·log(1 + 2R/ε): covers a ball of radius R in p dimensions      Lemma C.9, zhang2022

    >>> round(math.exp(log_volume(6, math.log(3.0), math.log(0.5))), 9) == round(
    ...     6 * math.log(13), 9)
    True
    """
    return log_of(count) + log_of(float(log1pexp(math.log(2) + log_radius - log_resolution)))


class MatrixBallCovering(Bound):
    """log N({‖M‖_{r,s} ≤ R}, ε) ≤ d₁d₂ log(1 + 2R/ε) for d₂ rows and d₁ columns       Lemma C.9

    >>> value = MatrixBallCovering(2, 3, mixed_norm=3.0, resolution=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 6)                                                # 6·log 13
    15.389696
    """

    name = "E-lemma-C.9"
    title = "covering a ball of matrices"
    statement = "log N ≤ d·d_k·log(1 + 2R_W/ε) for d×d_k matrices with mixed norms ≤ R_W"
    citation = "Lemma C.9, zhang2022"
    quantity = "log covering number"
    printed_kind = "upper_bound"

    rows: int = fields.size("width")
    columns: int = fields.size("head_width")
    mixed_norm: float = fields.norm(1.0)
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_radius, log_resolution = log_of(self.mixed_norm), math.log(self.resolution)
        count = self.rows * self.columns
        terms = (
            Term("number of entries", log_value=math.log(count)),
            Term("log(1 + 2R_W/ε)", log_value=log_volume(1, log_radius, log_resolution)),
        )
        return self.value(sample, log_volume(count, log_radius, log_resolution), terms)


class CoveringBound(NetworkBound):
    """A log covering number of (a part of) the network, at tokens as long as ``input_norm``."""

    quantity = "log covering number"
    printed_kind = "unproven"

    resolution: float = fields.resolution()

    def _covered(self, sample: Sample, count: int, parts: Sequence[Term]) -> BoundValue:
        """count·log(1 + 2S/ε), S the sum of ``parts``, shared between them like S."""
        log_resolution = math.log(self.resolution)
        log_size = float(log_sum([part.log_value for part in parts]))
        log_value = log_volume(count, log_size, log_resolution)
        terms = summed(shared("log covering number", log_value, parts))[1]
        note = f"{count} dimensions, and log Δ = {log_size:.6g} in log(1 + 2Δ/ε)."
        return self.value(sample, log_value, terms, notes=(note,))


class FeedForwardCovering(CoveringBound):
    """log N ≤ 2dd_σ log(1 + 2(α^xR^σ + α^σR^x)R_0/ε) for the first layer's feed-forward part

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(dimension=2, hidden_dimension=3)
    >>> sample = Sample(n_samples=1, context_length=1)
    >>> round(FeedForwardCovering(network, resolution=0.5).evaluate(sample).value, 6)   # 12·log 9
    26.366695
    """

    name = "E-lemma-C.10"
    title = "covering a feed-forward part"
    statement = "log N_∞ of a feed-forward part ≤ 2d·d_ff·log(1 + 2(B_in·R_out + B_out·R_in)·B_X/ε)"
    citation = "Lemma C.10, zhang2022"
    printed_kind = "upper_bound"

    def _evaluate(self, sample: Sample) -> BoundValue:
        network, first = self.network, links(self.network, sample.input_norm, self.rule)[0]
        single = network.layers[0].outer_norm is None
        d = network.dimension
        count = d * d if single else 2 * d * network.hidden_dimension
        parts = [
            Term("Δ", 1, "W_in", (first.inner * first.radius).log),
            Term("Δ", 1, "W_out", (first.outer * first.radius).log),
        ]
        return self._covered(sample, count, parts)


class HeadsCovering(CoveringBound):
    """log N ≤ (2 + H)D² log(1 + 2R·R^mha/ε) for the first layer's heads, R = ``input_norm``

    R^mha = ΣR^v + cR²Σω^v(ω^q + ω^k)(R^q + R^k) over the heads. Printed: without ω^v (erratum 5).
    The dimensions are at least H(2dd_p + d²), which (2 + H)D² is only if d_pH ≤ D (erratum 9), and
    equal to it if sharp.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(dimension=2, hidden_dimension=2, bandwidth=4.0)
    >>> heads = HeadsCovering(network, "sharp", resolution=0.5).evaluate(Sample(1, 1))
    >>> round(heads.value, 6)                                                # 12·log(1 + 4·2)
    26.366695
    """

    name = "E-lemma-C.12"
    title = "covering the heads of a layer"
    statement = "log N_∞ of the heads of a layer ≤ (2 + H)D²·log(1 + 2Δ/ε)"
    citation = "Lemma C.12, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        network, heads = self.network, self.first_heads(sample)
        d, n_heads = network.dimension, len(network.layers[0].heads)
        exact = n_heads * (2 * d * network.head_dimension + d * d)
        printed = (2 + n_heads) * network.largest_dimension**2
        count = exact if self.sharp else printed if self.form == "printed" else max(printed, exact)
        parts = [
            Term("Δ", 1, "W_V", (heads.reach * heads.values).log),
            Term("Δ", 1, "W_Q, W_K", (heads.reach * heads.scores).log),
        ]
        return self._covered(sample, count, parts)


class FullTransformerCovering(CoveringBound):
    """log N ≤ (4 + H)D²T log(1 + 2R_T^trans R_T/ε), free of L

    Printed: R_T^trans with the errata 5 and 6. Sharp: the number of parameters for (4 + H)D²T.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(dimension=2, hidden_dimension=2, bandwidth=4.0)
    >>> value = FullTransformerCovering(network, "sharp", resolution=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 6)                      # S = 6·2 + 2·5 = 22, 20·log(1 + 4·22)
    89.772727
    """

    name = "E-lemma-C.8"
    title = "covering the full Transformer"
    statement = "log N_∞ ≤ (4 + H)D²L·log(1 + 2Δ/ε), free of T"
    citation = "Lemma C.8, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        _, parts = self.log_deviation(sample)
        return self._covered(sample, self.n_dimensions, parts)
