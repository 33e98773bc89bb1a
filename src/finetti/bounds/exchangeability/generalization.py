"""From covers to generalization: Lemma C.7, Theorem C.5, and Theorem C.4 with its constants."""

import math
from dataclasses import replace

from finetti.bounds.assumptions import ASSUMED_OF_A_SAMPLE
from finetti.bounds.covering.generalization import log_confidence
from finetti.bounds.exchangeability.base import NetworkBound, shared
from finetti.bounds.exchangeability.dudley import (
    ROOT_INTEGRAL,
    Integral,
    log_closed,
    log_quadrature,
)
from finetti.bounds.fields import choice_field
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, log_of, summed

_LOG_2 = math.log(2)
AGGREGATION = "the aggregation after the last layer is 1-Lipschitz in ‖·‖_{r,∞}"


class ComplexityBound(NetworkBound):
    """A bound that starts from the Rademacher complexity of loss ∘ network.

    The paper has ℓ = ‖y − f‖² with ‖y‖, ‖f‖ ≤ 1: loss_bound = loss_lipschitz = 4. The ``integral``
    is "closed", or by "quadrature", which is smaller.
    """

    assumes = (*NetworkBound.assumes, AGGREGATION, *ASSUMED_OF_A_SAMPLE)
    needs_bounded_loss = True

    integral: Integral = choice_field("closed", "quadrature")

    def complexity(self, sample: Sample, log_factor: float = 0.0) -> list[Term]:
        """The summands of the complexity times e^``log_factor``.

        A loss in an interval of length b with Lipschitz constant Λ has, at resolution bε, the
        covering number of the network at resolution bε/Λ. What √log(1 + 2S) adds is shared between
        the matrices like S itself, which is how log S moves with each of them.
        """
        log_size, parts = self.log_deviation(sample)
        log_bound = math.log(sample.loss_bound)
        log_ratio = _LOG_2 + log_size + log_of(sample.loss_lipschitz) - log_bound
        shift = log_factor + log_bound
        if self.integral == "quadrature":
            log_area = log_quadrature(self.n_dimensions, log_ratio, sample.log_samples)
            return shared("complexity, by quadrature", shift + log_area, parts)
        rest = ROOT_INTEGRAL if self.sharp else 2.0
        fine, coarse = log_closed(self.n_dimensions, log_ratio, sample.log_samples, rest)
        every = Term("complexity: √log(1/ε)", log_value=shift + fine)
        return [every, *shared("complexity: √log(1 + 2S)", shift + coarse, parts)]


class TransformerComplexity(ComplexityBound):
    """R̂ ≤ 12D√((4 + H)T)(2 + √log(1 + 2R_T^trans R_T))/√n

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(n_samples=10**8, context_length=100)
    >>> round(TransformerComplexity(network).evaluate(sample).value, 4)  # 0.43445·(2 + √9.2618)
    2.1911
    """

    name = "E-lemma-C.7"
    title = "Rademacher complexity of the full Transformer"
    statement = "R̂ ≤ 12D√((4+H)L)·(2 + √log(1 + 2R_L^trans·R_L))/√n, free of T"
    citation = "Lemma C.7, zhang2022"
    quantity = "Rademacher complexity"
    printed_kind = "unproven"

    def _evaluate(self, sample: Sample) -> BoundValue:
        return self.value(sample, *summed(self.complexity(sample)))


class FullTransformerGap(ComplexityBound):
    """sup_f (E ℓ − Ê ℓ) ≤ b(2R̂ + 3√(log(2/δ)/(2n))), loss in an interval of length b (Mohri et al.)

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)
    >>> round(FullTransformerGap(network).evaluate(sample).value, 4)   # 4(2·0.21911 + 3·1.358e-5)
    1.753
    """

    name = "E-thm-C.5"
    title = "generalization gap of the full Transformer"
    statement = "sup_f (Eℓ − Êℓ) ≤ b(2R̂ + 3√(log(2/δ)/(2n))), free of T"
    citation = "Theorem C.5, zhang2022"
    quantity = "generalization gap"
    printed_kind = "unproven"

    def _evaluate(self, sample: Sample) -> BoundValue:
        confidence = Term("confidence", log_value=log_confidence(sample, two_sided=False))
        return self.value(sample, *summed([*self.complexity(sample, _LOG_2), confidence]))


class TransformerRisk(ComplexityBound):
    """E_gen ≤ b(2R̂ + 3√(log(4/δ)/(2n)) + √(log(2/δ)/(2n))): Theorem C.4 with all constants

    By Lemmas C.7 and C.8, with half of δ for Theorem C.5 and half for Hoeffding's inequality at the
    best function of the class. For a minimizer of the training loss E_gen is its risk above the
    best of the class.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)
    >>> round(TransformerRisk(network).evaluate(sample).value, 4)
    1.7531
    """

    name = "E-thm-C.4-constants"
    title = "generalization error of the full Transformer, with constants"
    statement = "E_gen ≤ b(2R̂ + 3√(log(4/δ)/(2n)) + √(log(2/δ)/(2n))), R̂ of Lemma C.7"
    citation = "Theorem C.4, zhang2022"
    quantity = "generalization error"

    def _evaluate(self, sample: Sample) -> BoundValue:
        half = replace(sample, delta=sample.delta / 2)
        # log √(log(2/δ)/(2n))
        deviation = (math.log(math.log(2 / sample.delta)) - _LOG_2 - sample.log_samples) / 2
        hoeffding = math.log(sample.loss_bound) + deviation
        confidence = [
            Term("confidence", log_value=log_confidence(half, two_sided=False)),
            Term("confidence at the best function", log_value=hoeffding),
        ]
        return self.value(sample, *summed([*self.complexity(sample, _LOG_2), *confidence]))
