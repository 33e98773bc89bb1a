"""Lemma 2.2: the generalization gap of a class with log N_∞(ε) ≤ C_F/ε²."""

from finetti.bounds.assumptions import ASSUMED_OF_A_SAMPLE
from finetti.bounds.base import Bound
from finetti.bounds.covering.dudley import dudley_closed, signed_dudley_printed
from finetti.bounds.covering.generalization import gap_terms, printed_gap
from finetti.bounds.fields import norm_field
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, log_of


class CoveringConstantGap(Bound):
    """2L·A·min(1, 12(1 + log(x/3))/x) + 3b√(log(3/δ)/2m),  x = A√(m/C_F)      Lemma 2.2

    A class with log N_∞(ε) ≤ C_F/ε² and outputs of size at most A (A.2–A.5, edelman2022).
    Printed: 4L√(C_F/m)(1 + log x) + 2b√(log(1/δ)/2m), negative for small x (erratum 12).
    ``two_sided`` bounds |gap|; False: log(2/δ) in place of log(3/δ).

    >>> sample = Sample(n_samples=10**6, context_length=1)
    >>> value = CoveringConstantGap(covering_constant=1.0).evaluate(sample)
    >>> round(value.value, 9)     # 0.024(1 + log(1000/3)) + 0.003√(log 60 / 2)
    0.167711815
    """

    name = "S-lemma-2.2"
    title = "from a covering number to the generalization gap"
    statement = "log N_∞ ≤ C_F/ε² gives a gap of order √(C_F/n) log n"
    citation = "Lemma 2.2, edelman2022"
    quantity = "generalization gap"
    printed_kind = "scaling"
    assumes = ASSUMED_OF_A_SAMPLE
    needs_bounded_loss = True

    covering_constant: float = norm_field(1.0)
    output_range: float = norm_field(1.0)
    two_sided: bool = True

    def _evaluate(self, sample: Sample) -> BoundValue:
        logs = (log_of(self.covering_constant), log_of(self.output_range), sample.log_samples)
        if self.form == "printed":
            return printed_gap(self, sample, *signed_dudley_printed(*logs))
        terms = gap_terms(dudley_closed(*logs), sample, two_sided=self.two_sided)
        return self.value(sample, *terms)
