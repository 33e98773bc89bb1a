"""What all bounds of paper E's network share, and Lemma C.8: its cover."""

import math
from dataclasses import replace
from typing import Any

from finetti.bounds import description as fields
from finetti.bounds.bound import FIXED_POSITIONS, IN_THE_TOKENS, NO_LAYER_NORM, RBF_SCORES, Bound
from finetti.bounds.covering.ball_cover import log_count_cover
from finetti.bounds.exchangeability.layer_constants import log_deviation
from finetti.bounds.exchangeability.residual_class import FullTransformer
from finetti.bounds.value import BoundValue, Sample, Term, split_in_proportion, summed

PRINTED = "As printed it is no bound: see errata 5, 6 and 9 of paper E."


class FullTransformerBound(Bound):
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


class FullTransformerCovering(FullTransformerBound):
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
    quantity = "log covering number"
    printed_kind = "unproven"

    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_size, parts = self.log_deviation(sample)
        count = self.n_dimensions
        log_value = float(log_count_cover(count, log_size, math.log(self.resolution)))
        terms = summed(split_in_proportion("log covering number", log_value, parts))[1]
        note = f"{count} dimensions, and log Δ = {log_size:.6g} in log(1 + 2Δ/ε)."
        return self.value(sample, log_value, terms, notes=(note,))
