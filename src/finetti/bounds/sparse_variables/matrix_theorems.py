"""Lemmas 2.2 and 4.5: linear maps, and from a covering number to the gap."""

import math

from finetti.bounds import description as fields
from finetti.bounds.bound import ASSUMED_OF_A_SAMPLE, Bound
from finetti.bounds.covering.dudley import (
    dudley_closed,
    gap_terms,
    printed_gap,
)
from finetti.bounds.covering.linear_covering import best_refined_cover, log_log_linear_cover
from finetti.bounds.value import BoundValue, Sample, Term, log_of


class LinearCovering(Bound):
    """What both lemmas share: a norm of the weights, ε, and N = mT points of length B_X."""

    quantity = "log covering number"

    weight_norm: float = fields.norm(1.0)
    resolution: float = fields.resolution()
    outputs: int = fields.size("width", 1)

    def logs(self, sample: Sample) -> tuple[float, float, float]:
        """log B_X, log ε, log N."""
        points = sample.log_samples + sample.log_context
        return log_of(sample.input_norm), math.log(self.resolution), points

    def covered(self, sample: Sample, log_value: float, *notes: str) -> BoundValue:
        """All of it is due to one matrix."""
        term = Term(self.quantity, None, "W", log_value, 1.0)
        return self.value(sample, log_value, (term,), notes=notes)


class LinearMapCovering(LinearCovering):
    """log N_∞ ≤ 36 (d₂B_∞B_X/ε)² log(2⌈4B_∞B_X√d₂/ε + 2⌉N + 1)             Lemma 4.5, edelman2022

    The class {x ↦ Wᵀx, ‖W‖_{2,∞} ≤ B_∞}, B_∞ the largest norm of the d₂ columns (``outputs``) of W.
    For one column it is Lemma A.10 (Zhang 2002, Theorem 4).
    Printed: (d₂B_∞B_X)²/ε² · log N, a scaling quantity.

    >>> sample = Sample(n_samples=1000, context_length=50, input_norm=1.5)
    >>> round(LinearMapCovering(0.7, 0.1, outputs=8).evaluate(sample).value, 5)
    4142674.82713
    """

    name = "S-lemma-4.5"
    title = "the capacity of a linear map, by its columns"
    statement = "log N_∞ of x ↦ Wᵀx with columns of length ≤ B_col: 36(d_out·B_col·B_X/ε)²"
    citation = "Lemma 4.5, edelman2022"
    printed_kind = "scaling"

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_input, log_resolution, log_points = self.logs(sample)
        log_outputs = math.log(self.outputs)
        log_ratio = log_outputs + log_of(self.weight_norm) + log_input - log_resolution
        if self.form == "printed":
            return self.covered(sample, 2 * log_ratio + log_of(log_points))
        found = log_log_linear_cover(log_ratio, log_outputs, log_points)
        return self.covered(sample, float(found))


class RefinedMatrixCovering(LinearCovering):
    """log N_∞ ≤ log C(n+d₂, d₂) + 36(1+d₂/n)²(B₁B_X/ε)² log(…N + 1), the best n = d₂2^j

    The class {x ↦ Wᵀx, ‖W‖_{2,1} ≤ B₁}: what the proof of Lemma 4.5, edelman2022, gives when the
    column budgets are rounded up (erratum 8). Without the factor d₂² of `LinearMapCovering`. B₁ is
    the sum of the norms of the d₂ columns, n the units that they share, of which the best is taken.

    >>> sample = Sample(n_samples=1000, context_length=50, input_norm=1.5)
    >>> wide = LinearMapCovering(2.0, 0.1, outputs=8).evaluate(sample).value
    >>> round(wide / RefinedMatrixCovering(2.0, 0.1, outputs=8).evaluate(sample).value, 1)
    68.0
    """

    name = "S-lemma-4.5-refined"
    title = "the capacity of a linear map, by the sum of its columns"
    statement = "log N_∞ of x ↦ Wᵀx with columns of length ≤ B_sum together: about 36(B_sum·B_X/ε)²"
    citation = "Lemma 4.5 refined, edelman2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_norm = log_of(self.weight_norm)
        log_value, best = best_refined_cover(log_norm, self.outputs, *self.logs(sample))
        return self.covered(sample, log_value, f"The columns share {best} units.")


class CoveringConstantGap(Bound):
    """2L·A·min(1, 12(1 + log(x/3))/x) + 3b√(log(3/δ)/2m),  x = A√(m/C_F)      Lemma 2.2

    A class with log N_∞(ε) ≤ C_F/ε² and outputs of size at most A (A.2–A.5, edelman2022).
    Printed: 4L√(C_F/m)(1 + log x) + 2b√(log(1/δ)/2m), negative for small x (erratum 12).

    >>> value = CoveringConstantGap(covering_constant=1.0).evaluate(Sample(10**6, 1))
    >>> round(value.value, 9)     # 0.024(1 + log(1000/3)) + 0.003√(log 60 / 2)
    0.167711815
    """

    name = "S-lemma-2.2"
    title = "from a covering number to the generalization gap"
    statement = "log N_∞ ≤ C_N/ε² gives a gap of order √(C_N/n)·log n"
    citation = "Lemma 2.2, edelman2022"
    quantity = "generalization gap"
    printed_kind = "scaling"
    assumes = ASSUMED_OF_A_SAMPLE
    needs_bounded_loss = True

    covering_constant: float = fields.norm(1.0)
    output_range: float = fields.norm(1.0)

    def _evaluate(self, sample: Sample) -> BoundValue:
        logs = (log_of(self.covering_constant), log_of(self.output_range), sample.log_samples)
        if self.form == "printed":
            return printed_gap(self, sample, *logs)
        return self.value(sample, *gap_terms(dudley_closed(*logs), sample))
