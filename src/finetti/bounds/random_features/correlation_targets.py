"""Functions of correlations and the biased model: a norm that is free of d."""

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.random_features.arc_cosine_series import as_degree
from finetti.bounds.random_features.polynomial_targets import Target, check_coefficients
from finetti.bounds.random_features.target_norms import (
    ASSUMED_OF_RANDOM_HEADS,
    BIASED_HEADS,
    NONZERO_TARGET,
    attention_terms,
)
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, log_of, summed


@lru_cache(maxsize=1024)
def log_hermite_norm(coefficients: tuple[float, ...], terms: int) -> tuple[float, tuple[Term, ...]]:
    """log Σ_m G_m² (m+2)! 4^{m+2}/(m+3) for F(t) = Σ a_k t^k, and its parts

    G_L(t) = √(2π) F(t) Σ_{j ≤ L} t^{2j}/(2^j j!) = Σ_m G_m He_m(t)

    so that φ(t)G_L(t) is F with e^{t²/2} cut after L terms, and He_m φ costs (m+2)! 4^{m+2}/(m+3).
    Derived from the biased kernel of fu2023.

    >>> log_norm, _ = log_hermite_norm((0.0, 1.0), 1)  # G₁ = 2.5√(2π), G₃ = 0.5√(2π)
    >>> round(math.exp(log_norm) / (2 * math.pi), 6)  # 6.25·6·64/4 + 0.25·120·1024/6
    5720.0
    """
    logs, signs = _log_cut_series(coefficients, terms)
    found = []
    for m in range(len(logs)):
        # t^n = Σ_k n!/(2^k k! (n − 2k)!) He_{n−2k}
        k = np.arange((len(logs) - 1 - m) // 2 + 1)
        n = m + 2 * k
        factors = special.gammaln(n + 1) - k * math.log(2) - special.gammaln(k + 1)
        factors = factors - math.lgamma(m + 1) + logs[n]
        log_abs = special.logsumexp(factors, b=signs[n], return_sign=True)[0]
        cost = math.lgamma(m + 3) + (m + 2) * math.log(4) - math.log(m + 3)
        found.append(Term(f"He_{m}", log_value=2 * float(log_abs) + cost))
    return summed(found)


def _log_cut_series(
    coefficients: tuple[float, ...], terms: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log |g_n| and the signs of √(2π) F(t) Σ_{j ≤ L} t^{2j}/(2^j j!) = Σ g_n t^n, at any L."""
    orders = np.arange(terms + 1)
    size = len(coefficients) + 2 * terms
    rows = np.full((len(coefficients), size), -math.inf)
    for k, a in enumerate(coefficients):
        exponential = -orders * math.log(2) - special.gammaln(orders + 1)
        rows[k, k : k + 2 * terms + 1 : 2] = log_of(abs(a)) + exponential
    signs = np.sign(np.asarray(coefficients, dtype=np.float64))[:, None]
    found: Any = special.logsumexp(rows, axis=0, b=signs, return_sign=True)
    return found[0] + math.log(2 * math.pi) / 2, found[1]


def truncation_error(terms: int, radius: float = 1.0, form: str = "derived") -> float:
    """ε_L: how far φ(t)G_L(t) is from F(t), relative to F, for |t| ≤ ``radius``

    Derived: P(Poisson(radius²/2) > L), exactly. Printed (stated): radius^{2L+2}/(2^{L+1}(L+1)!).

    >>> round(truncation_error(1), 4), round(truncation_error(1, form="printed"), 4)
    (0.0902, 0.125)
    """
    rate = radius * radius / 2
    if form == "derived":
        return float(special.gammainc(terms + 1, rate))
    return math.exp((terms + 1) * log_of(rate) - math.lgamma(terms + 2))


@lru_cache(maxsize=256)
def largest_value(coefficients: tuple[float, ...], radius: float = 1.0) -> float:
    """‖F‖_∞ on [−radius, radius] of a polynomial, from the roots of its derivative.

    >>> largest_value((0.0, -1.0, 0.0, 1.0), 2.0)
    6.0
    """
    polynomial = np.polynomial.Polynomial(coefficients)
    roots = np.asarray(polynomial.deriv().roots())
    inside = np.clip(roots[np.abs(roots.imag) < 1e-9].real, -radius, radius)
    return float(np.abs(polynomial(np.concatenate([inside, [-radius, radius]]))).max())


class CorrelationTarget(fields.Description):
    """f*(x) = (1/N) Σ_i F(⟨x₀, Sx_i⟩)⟨β, x_i⟩, F(t) = Σ_k a_k t^k, for heads with the mean S.

    Args:
        coefficients: a_k.
        target_norm: ‖β‖.
        mean_norm: ‖S‖, the operator norm of the heads' mean; 1 for the identity.
    """

    coefficients: tuple[float, ...] = fields.setting((0.0, 1.0), check_coefficients)
    target_norm: float = fields.norm(1.0)
    mean_norm: float = fields.number(1.0)

    def log_norm(self, terms: int) -> float:
        """The log of ‖β‖² Σ_m G_m² (m+2)! 4^{m+2}/(m+3)."""
        return log_hermite_norm(self.coefficients, terms)[0] + 2 * log_of(self.target_norm)

    def error(self, terms: int) -> float:
        """ε_L‖F‖_∞‖β‖: how far the truncated function is from f* at most."""
        largest = largest_value(self.coefficients, float(self.mean_norm))
        return truncation_error(terms, self.mean_norm) * largest * self.target_norm


class BiasedBound(Bound):
    """A number that belongs to a function of correlations f* and to L ≥ 1 terms of e^{t²/2}."""

    assumes = (*ASSUMED_OF_RANDOM_HEADS, BIASED_HEADS)

    target: CorrelationTarget = fields.part(CorrelationTarget)
    terms: int = fields.setting(1, partial(as_degree, least=1))


class BiasedNorm(BiasedBound):
    """‖φG_L(⟨x₀,x⟩)⟨β,x⟩‖² ≤ ‖β‖² Σ_m G_m² (m+2)! 4^{m+2}/(m+3), free of d

    The function differs from f* by at most ε_L‖F‖_∞‖β‖, which a note says. The paper's own B(f*, L)
    is not known well enough to print.

    >>> norm = BiasedNorm(CorrelationTarget((0.0, 1.0)), terms=2)
    >>> value = norm.evaluate(Sample(n_samples=100, context_length=16))
    >>> f"{value.value:.2e}", value.notes
    ('1.42e+06', ('It is within 0.01439 of the target, uniformly.',))
    """

    name = "R-norm-brfa"
    title = "norm of a function of correlations for biased heads"
    statement = "B_BRFA ≤ ‖β‖²·Σ G_j²·(j+2)!·4^(j+2)/(j+3), free of d"
    citation = "biased random-feature attention (derived), fu2023"
    quantity = "squared norm"

    def _evaluate(self, sample: Sample) -> BoundValue:
        note = f"It is within {self.target.error(self.terms):.4g} of the target, uniformly."
        _, parts = log_hermite_norm(self.target.coefficients, self.terms)
        return self.value(sample, self.target.log_norm(self.terms), parts, notes=(note,))


class BiasedAdvantage(BiasedBound):
    """B_RFA/B_BRFA: how many times more samples the unbiased heads' bound asks for

    A ratio of two upper bounds, which cross only at large d or degree: below 1 it does not mean
    that the bias hurts.

    >>> ratio = BiasedAdvantage(CorrelationTarget((0.0, 1.0)), dimension=16)
    >>> ratio.evaluate(Sample(n_samples=100, context_length=16)).value < 0.01
    True
    """

    name = "R-ratio-brfa"
    title = "samples of unbiased over samples of biased heads"
    statement = "B_RFA/B_BRFA for a function of correlations, growing like d^p"
    citation = "biased random-feature attention (derived), fu2023"
    quantity = "ratio of sample sizes"
    derived_kind = "scaling"

    dimension: int = fields.size("width", 64)

    def _evaluate(self, sample: Sample) -> BoundValue:
        if self.target.mean_norm != 1.0:
            raise self.refuse("heads with the mean S = I", "R-norm-brfa, for any S.")
        unbiased = Target.correlation_series(
            self.target.coefficients, self.dimension, self.target.target_norm
        )
        attention, _ = attention_terms(unbiased)
        biased = self.target.log_norm(self.terms)
        if attention == -math.inf:
            raise self.refuse(NONZERO_TARGET, "R-norm-rfa and R-norm-brfa, which are 0.")
        terms = (Term("B_RFA", log_value=attention), Term("1/B_BRFA", log_value=-biased))
        return self.value(sample, attention - biased, terms)
