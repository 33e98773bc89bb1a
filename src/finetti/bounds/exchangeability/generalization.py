"""From covers to generalization: Lemma C.7, Theorem C.5, and Theorem C.4 with its constants."""

import math
from dataclasses import replace
from typing import Literal

from scipy import integrate

from finetti.bounds import description as fields
from finetti.bounds.bound import ASSUMED_OF_A_SAMPLE
from finetti.bounds.covering.dudley import log_confidence
from finetti.bounds.description import checked
from finetti.bounds.exchangeability.base import NetworkBound, shared
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, log_of, summed
from finetti.core.logspace import log1pexp, log_add, log_expm1
from finetti.core.numbers import as_norm, smallest_of

Integral = Literal["closed", "quadrature"]
AGGREGATION = "the aggregation after the last layer is 1-Lipschitz in the longest token"
_LOG_12, _LOG_4, _LOG_2 = math.log(12), math.log(4), math.log(2)
ROOT_INTEGRAL = math.sqrt(math.pi) / 2  # ∫₀¹ √log(1/ε) dε


def log_closed(
    n_dimensions: int, log_ratio: float, log_samples: float, rest: float = 2.0
) -> tuple[float, float]:
    """The two parts of (12√p/√n)(``rest`` + √log(1 + A)), as logarithms       Lemma C.7, zhang2022

    log N(ε) ≤ p log(1 + A/ε) ≤ p(log(1 + A) + log(1/ε)) on (0, 1], and the root of a sum is at most
    the sum of roots; ∫√log(1/ε) = √π/2, for which the paper puts 2. A is e^``log_ratio``.

    >>> parts = log_closed(4, math.log(math.e - 1), math.log(576.0))
    >>> [round(math.exp(part), 9) for part in parts]                          # 12·2/24·(2 + 1)
    [2.0, 1.0]
    """
    front = _LOG_12 + (log_of(n_dimensions) - log_samples) / 2
    return front + math.log(rest), front + log_of(float(log1pexp(log_ratio))) / 2


def log_quadrature(n_dimensions: int, log_ratio: float, log_samples: float) -> float:
    """log inf_ξ (4ξ + (12/√n)∫_ξ¹ √(p log(1 + A/ε)) dε), by quadrature  Lemma C.7, zhang2022

    The best ξ has p log(1 + A/ξ) = n/9: ξ = A/(e^{n/(9p)} − 1). At most 1, which is trivial for
    functions with values in [0, 1].

    >>> by_quadrature = log_quadrature(4, 0.0, math.log(1e4))
    >>> closed = log_add(*log_closed(4, 0.0, math.log(1e4), ROOT_INTEGRAL))
    >>> bool(by_quadrature < closed)
    True
    """
    log_p = log_of(n_dimensions)
    if log_p == -math.inf or log_ratio == -math.inf:
        return -math.inf
    exponent = log_samples - math.log(9) - log_p
    steep = float(log_expm1(math.exp(exponent))) if exponent < 700 else math.inf
    log_cut = smallest_of(0.0, log_ratio - steep)
    front = _LOG_12 + (log_p - log_samples) / 2
    if log_cut == 0.0:
        return 0.0
    # ε = e^{−u}: the integrand is smooth, and nothing is left after u = 745
    area, _ = integrate.quad(
        lambda u: math.sqrt(float(log1pexp(log_ratio + u))) * math.exp(-u),
        0.0,
        min(-log_cut, 745.0),
        points=(1.0, 10.0, 50.0) if -log_cut > 50.0 else None,
        epsabs=0.0,
        epsrel=1e-12,
        limit=400,
    )
    return smallest_of(0.0, float(log_add(_LOG_4 + log_cut, front + log_of(area))))


class ComplexityBound(NetworkBound):
    """A bound that starts from the Rademacher complexity of loss ∘ network.

    The paper has ℓ = ‖y − f‖² with ‖y‖, ‖f‖ ≤ 1: loss_bound = loss_lipschitz = 4. The ``integral``
    is "closed", or by "quadrature", which is smaller.
    """

    assumes = (*NetworkBound.assumes, AGGREGATION, *ASSUMED_OF_A_SAMPLE)
    needs_bounded_loss = True

    integral: Integral = fields.choice("closed", "quadrature")

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
        return [every, *shared("complexity: √log(1 + 2Δ)", shift + coarse, parts)]


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
    statement = "Rad ≤ 12D√((4+H)L)·(2 + √log(1 + 2Δ))/√n, free of T"
    citation = "Lemma C.7, zhang2022"
    quantity = "Rademacher complexity"
    printed_kind = "unproven"

    def _evaluate(self, sample: Sample) -> BoundValue:
        return self.value(sample, *summed(self.complexity(sample)))


class FullTransformerGap(ComplexityBound):
    """sup_f (E ℓ − Ê ℓ) ≤ b(2R̂ + 3√(log(2/δ)/(2n))), loss in an interval of length b (Mohri et al.)

    A class that was chosen after training adds its ``post_hoc`` to log(2/δ): `beyond.Strata`.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)
    >>> round(FullTransformerGap(network).evaluate(sample).value, 4)   # 4(2·0.21911 + 3·1.358e-5)
    1.753
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
    logarithms (`beyond.Strata`). For a minimizer of the training loss E_gen is its risk above the
    best of the class.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(64, 128, n_layers=1, n_heads=4, mixed_norm=8.0)
    >>> sample = Sample(10**10, 100, loss_lipschitz=4.0, loss_bound=4.0)
    >>> round(TransformerRisk(network).evaluate(sample).value, 4)
    1.7531
    """

    name = "E-thm-C.4-constants"
    title = "generalization error of the full Transformer, with constants"
    statement = "E_gen ≤ b(2·Rad + 3√(log(4/δ)/(2n)) + √(log(2/δ)/(2n))), Rad of Lemma C.7"
    citation = "Theorem C.4, zhang2022"
    quantity = "generalization error"

    post_hoc: float = checked(as_norm, 0.0)

    def _evaluate(self, sample: Sample) -> BoundValue:
        half = replace(sample, delta=sample.delta / 2)
        # log √(log(2/δ)/(2n))
        inside = math.log(2 / sample.delta) + self.post_hoc
        deviation = (math.log(inside) - _LOG_2 - sample.log_samples) / 2
        hoeffding = math.log(sample.loss_bound) + deviation
        confidence = [
            Term("confidence", log_value=log_confidence(half, "derived", False, self.post_hoc)),
            Term("confidence at the best function", log_value=hoeffding),
        ]
        return self.value(sample, *summed([*self.complexity(sample, _LOG_2), *confidence]))
