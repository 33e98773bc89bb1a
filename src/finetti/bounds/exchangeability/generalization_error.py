"""From covers to generalization: Lemma C.7, Theorem C.5, and Theorem C.4 with its constants."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from finetti.bounds.bound import ASSUMED_OF_A_SAMPLE
from finetti.bounds.covering.ball_cover import log_count_cover
from finetti.bounds.covering.dudley import LOG_3, LOG_12, dudley_quadrature, log_confidence
from finetti.bounds.exchangeability.layer_coverings import FullTransformerBound
from finetti.bounds.value import BoundValue, Sample, Term, log_of, split_in_proportion, summed
from finetti.core.arguments import as_norm
from finetti.core.checked_fields import checked

AGGREGATION = "the aggregation after the last layer is 1-Lipschitz in the longest token"
_LOG_2 = math.log(2)


def log_closed(n_dimensions: int, log_size: float, log_samples: float) -> tuple[float, float]:
    """The two parts of (12√p/√n)(2 + √log(1 + 2S)), as logarithms             Lemma C.7, zhang2022

    log N(ε) ≤ p·log(1 + 2S/ε) ≤ p(log(1 + 2S) + log(1/ε)) on (0, 1], and the root of a sum is at
    most the sum of roots; ∫√log(1/ε) = √π/2, for which the paper puts 2. S is e^``log_size``.

    >>> parts = log_closed(4, math.log((math.e - 1) / 2), math.log(576.0))
    >>> [round(math.exp(part), 9) for part in parts]                          # 12·2/24·(2 + 1)
    [2.0, 1.0]
    """
    front = LOG_12 + (log_of(n_dimensions) - log_samples) / 2
    return front + _LOG_2, front + log_of(float(np.logaddexp(0.0, _LOG_2 + log_size))) / 2


class ComplexityBound(FullTransformerBound):
    """A bound that starts from the Rademacher complexity of loss ∘ network.

    The paper has ℓ = ‖y − f‖² with ‖y‖, ‖f‖ ≤ 1: loss_bound = loss_lipschitz = 4.
    """

    assumes = (*FullTransformerBound.assumes, AGGREGATION, *ASSUMED_OF_A_SAMPLE)
    needs_bounded_loss = True

    def complexity(self, sample: Sample, log_factor: float = 0.0) -> list[Term]:
        """The summands of the complexity times e^``log_factor``.

        A loss in an interval of length b with Lipschitz constant Λ has, at resolution bε, the
        covering number of the network at resolution bε/Λ. It is shared between the matrices like S,
        which is how log S moves with each of them; printed, only √log(1 + 2S) is.
        """
        log_size, parts = self.log_deviation(sample)
        log_bound = math.log(sample.loss_bound)
        log_size += log_of(sample.loss_lipschitz) - log_bound
        shift, p = log_factor + log_bound, self.n_dimensions
        if self.form == "printed":
            fine, coarse = log_closed(p, log_size, sample.log_samples)
            every = Term("complexity: √log(1/ε)", log_value=shift + fine)
            return [every, *split_in_proportion("complexity: √log(1 + 2Δ)", shift + coarse, parts)]
        if log_size == -math.inf:  # one function
            return [Term("complexity", log_value=-math.inf)]
        cover = partial(log_count_cover, p, log_size)
        found = dudley_quadrature(cover, 0.0, sample.log_samples)
        return split_in_proportion("complexity", shift + found.log_value, parts)


class TransformerComplexity(ComplexityBound):
    """R̂ ≤ inf_ξ 4ξ + (12/√n)∫_ξ¹ √(p·log(1 + 2R_T^trans R_T/ε)) dε with p parameters

    Printed: 12D√((4 + H)T)(2 + √log(1 + 2R_T^trans R_T))/√n, from ξ = 0 and simpler roots.

    In the example ρ̃ = 1 + 4(1 + 2²·2²/8) = 13, S = 13·16 + 2·(4·8 + 2²·4·2·16/8) = 400,
    p = 2·64·128 + 4·(2·64·16 + 64²) = 40960, and the best ξ is next to 0.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(n_samples=10**8, context_length=100)
    >>> round(TransformerComplexity(network).evaluate(sample).value, 4)  # 0.242863·2.766927
    0.672
    """

    name = "E-lemma-C.7"
    title = "Rademacher complexity of the full Transformer"
    statement = "Rad ≤ (12/√n) times the integral of √(P·log(1 + 2Δ/ε)) over ε, free of T"
    citation = "Lemma C.7, zhang2022"
    quantity = "Rademacher complexity"
    printed_kind = "unproven"

    def _evaluate(self, sample: Sample) -> BoundValue:
        return self.value(sample, *summed(self.complexity(sample)))


class FullTransformerGap(ComplexityBound):
    """sup_f (E ℓ − Ê ℓ) ≤ b(2R̂ + 3√(log(2/δ)/(2n))), loss in an interval of length b (Mohri et al.)

    A class that was chosen after training adds its ``post_hoc`` to log(2/δ): `bounds.RadiusGrid`.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)
    >>> round(FullTransformerGap(network).evaluate(sample).value, 4)   # 4(2·0.0672 + 3·1.358e-5)
    0.5378
    """

    name = "E-thm-C.5"
    title = "generalization gap of the full Transformer"
    statement = "Eℓ − Êℓ ≤ b(2·Rad + 3√(log(2/δ)/(2n))) for all networks, free of T"
    citation = "Theorem C.5, zhang2022"
    quantity = "generalization gap"
    printed_kind = "unproven"

    post_hoc: float = checked(as_norm, 0.0)

    def _evaluate(self, sample: Sample) -> BoundValue:
        sure = log_confidence(sample, two_sided=False, post_hoc=self.post_hoc)
        confidence = Term("confidence", log_value=sure)
        return self.value(sample, *summed([*self.complexity(sample, _LOG_2), confidence]))


class TransformerRisk(ComplexityBound):
    """E_gen ≤ b(2R̂ + 3√(log(4/δ)/(2n)) + √(log(2/δ)/(2n))): Theorem C.4 with all constants

    By Lemmas C.7 and C.8, with half of δ for Theorem C.5 and half for Hoeffding's inequality at the
    best function of the class; a class that was chosen after training adds its ``post_hoc`` to both
    logarithms (`bounds.RadiusGrid`). For a minimizer of the training loss E_gen is its risk above
    the best of the class.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)
    >>> round(TransformerRisk(network).evaluate(sample).value, 6)
    0.537819
    """

    name = "E-thm-C.4-constants"
    title = "generalization error of the full Transformer, with constants"
    statement = "E_gen ≤ b(2·Rad + 3√(log(4/δ)/(2n)) + √(log(2/δ)/(2n))), Rad of Lemma C.7"
    citation = "Theorem C.4, zhang2022"
    quantity = "generalization error"

    post_hoc: float = checked(as_norm, 0.0)

    def _evaluate(self, sample: Sample) -> BoundValue:
        half = replace(sample, delta=sample.delta / 2)
        uniform = log_confidence(half, two_sided=False, post_hoc=self.post_hoc)
        # A single function needs no 3.
        best = log_confidence(sample, two_sided=False, post_hoc=self.post_hoc) - LOG_3
        confidence = [
            Term("confidence", log_value=uniform),
            Term("confidence at the best function", log_value=best),
        ]
        return self.value(sample, *summed([*self.complexity(sample, _LOG_2), *confidence]))
