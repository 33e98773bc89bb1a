"""Lemmas C.8, C.10 and C.12: covers of paper E's network and of the parts of a layer."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from finetti.bounds import description as fields
from finetti.bounds.bound import FIXED_POSITIONS, IN_THE_TOKENS, NO_LAYER_NORM, RBF_SCORES, Bound
from finetti.bounds.covering.ball_cover import log_count_cover
from finetti.bounds.exchangeability.layer_constants import (
    head_constants,
    layer_constants,
    log_deviation,
)
from finetti.bounds.exchangeability.residual_class import FullTransformer
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, split_in_proportion, summed
from finetti.core.log_number import LogNumber
from finetti.core.logspace import log_sum

PRINTED = "As printed it is no bound: see errata 5, 6 and 9 of paper E."


class NetworkBound(Bound):
    """A bound for the class `FullTransformer`.

    The derived form keeps all that the proofs give: sums over the heads of products of their norms
    (Lemmas C.11 to C.13), the number of parameters, and 1/σ² of Lemma F.1. Printed: norms summed
    over the heads before they are multiplied (C.5), (4 + H)D²T dimensions, and 1.
    """

    assumes = (RBF_SCORES, NO_LAYER_NORM, FIXED_POSITIONS, IN_THE_TOKENS)

    network: FullTransformer = fields.part(FullTransformer)

    @property
    def n_dimensions(self) -> int:
        """The number of parameters; printed (4 + H)D²T, which may be fewer (erratum 9)."""
        network = self.network
        if self.form == "derived":
            return network.n_parameters
        return (4 + network.n_heads) * network.largest_dimension**2 * network.n_layers

    def value(self, sample: Sample, *parts: Any, **options: Any) -> BoundValue:
        """As in `Bound`; a printed form that is none says so."""
        found = super().value(sample, *parts, **options)
        if self.kind != "unproven":
            return found
        return replace(found, notes=(*found.notes, PRINTED))

    def log_deviation(self, sample: Sample) -> tuple[float, tuple[Term, ...]]:
        """log(R_T^trans R_T) and its parts."""
        return log_deviation(self.network, sample.input_norm, self.form)


class CoveringBound(NetworkBound):
    """A log covering number of (a part of) the network, at tokens as long as ``input_norm``."""

    quantity = "log covering number"
    printed_kind = "unproven"

    resolution: float = fields.resolution()

    def _covered(self, sample: Sample, count: int, parts: Sequence[Term]) -> BoundValue:
        """count·log(1 + 2S/ε), S the sum of ``parts``, shared between them like S."""
        log_size = float(log_sum([part.log_value for part in parts]))
        log_value = float(log_count_cover(count, log_size, math.log(self.resolution)))
        terms = summed(split_in_proportion("log covering number", log_value, parts))[1]
        note = f"{count} dimensions, and log Δ = {log_size:.6g} in log(1 + 2Δ/ε)."
        return self.value(sample, log_value, terms, notes=(note,))


class FeedForwardCovering(CoveringBound):
    """log N ≤ 2dd_σ log(1 + 2(α^xR^σ + α^σR^x)R_0/ε) for the first layer's feed-forward part

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
        network = self.network
        first = layer_constants(network, sample.input_norm, self.form)[0]
        single, d = network.layers[0].outer_norm is None, network.dimension
        count = d * d if single else 2 * d * network.hidden_dimension
        parts = [
            Term("Δ", 1, "W_in", (first.inner * first.radius).log),
            Term("Δ", 1, "W_out", (first.outer * first.radius).log),
        ]
        return self._covered(sample, count, parts)


class HeadsCovering(CoveringBound):
    """log N ≤ H(2dd_p + d²) log(1 + 2R·R^mha/ε) for the first layer's heads, R = ``input_norm``

    R^mha = ΣR^v + σ⁻²R²Σω^v(ω^q + ω^k)(R^q + R^k) over the heads. Printed: without ω^v (erratum 5)
    and σ⁻², and (2 + H)D² dimensions, which is enough only if d_pH ≤ D (erratum 9).

    >>> network = FullTransformer.uniform(dimension=2, hidden_dimension=2, bandwidth=4.0)
    >>> heads = HeadsCovering(network, resolution=0.5).evaluate(Sample(1, 1))
    >>> round(heads.value, 6)                                                # 12·log(1 + 4·2)
    26.366695
    """

    name = "E-lemma-C.12"
    title = "covering the heads of a layer"
    statement = "log N_∞ of the heads of a layer ≤ H(2d·d_k + d²)·log(1 + 2Δ/ε)"
    citation = "Lemma C.12, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        network, layer = self.network, self.network.layers[0]
        reach = LogNumber.from_float(sample.input_norm)
        heads = head_constants(layer, reach, network.score_bandwidth, self.form)
        d, n_heads = network.dimension, len(layer.heads)
        count = n_heads * (2 * d * network.head_dimension + d * d)
        if self.form == "printed":
            count = (2 + n_heads) * network.largest_dimension**2
        parts = [
            Term("Δ", 1, "W_V", (heads.reach * heads.values).log),
            Term("Δ", 1, "W_Q, W_K", (heads.reach * heads.scores).log),
        ]
        return self._covered(sample, count, parts)


class FullTransformerCovering(CoveringBound):
    """log N ≤ p·log(1 + 2R_T^trans R_T/ε) with p parameters, free of L

    Printed: R_T^trans with the errata 5 and 6, and (4 + H)D²T for p (erratum 9).

    >>> network = FullTransformer.uniform(dimension=2, hidden_dimension=2, bandwidth=4.0)
    >>> value = FullTransformerCovering(network, resolution=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 6)                      # S = 6·2 + 2·5 = 22, 20·log(1 + 4·22)
    89.772727
    """

    name = "E-lemma-C.8"
    title = "covering the full Transformer"
    statement = "log N_∞ ≤ P·log(1 + 2Δ/ε), free of T"
    citation = "Lemma C.8, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        _, parts = self.log_deviation(sample)
        return self._covered(sample, self.n_dimensions, parts)
