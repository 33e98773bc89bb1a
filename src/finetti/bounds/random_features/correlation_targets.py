"""Functions of correlations and the biased model: a norm that is free of d."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from numpy.polynomial import hermite_e

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.random_features.polynomial_targets import check_coefficients
from finetti.bounds.random_features.target_norms import ASSUMED_OF_RANDOM_HEADS, BIASED_HEADS
from finetti.bounds.value import BoundValue, Sample, Term, log_of, summed
from finetti.core.arguments import as_whole
from finetti.core.errors import bad_argument

MAX_SERIES_TERMS = 60  # more are within 1e-90 of the target, and their powers lose digits


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
    exponential = np.zeros(2 * terms + 1)
    exponential[::2] = np.cumprod([1.0, *(1 / (2 * np.arange(1, terms + 1)))])
    series = math.sqrt(2 * math.pi) * np.convolve(coefficients, exponential)
    found = []
    for m, size in enumerate(hermite_e.poly2herme(series)):
        cost = math.lgamma(m + 3) + (m + 2) * math.log(4) - math.log(m + 3)
        found.append(Term(f"He_{m}", log_value=2 * log_of(abs(float(size))) + cost))
    return summed(found)


def truncation_error(terms: int, radius: float = 1.0, form: str = "derived") -> float:
    """ε_L: how far φ(t)G_L(t) is from F(t), relative to F, for |t| ≤ ``radius``

    Derived: P(Poisson(radius²/2) > L), exactly. Printed (stated): radius^{2L+2}/(2^{L+1}(L+1)!).

    >>> round(truncation_error(1), 4), round(truncation_error(1, form="printed"), 4)
    (0.0902, 0.125)
    """
    rate = radius * radius / 2
    if form == "derived":
        return float(scipy.special.gammainc(terms + 1, rate))
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


def _as_terms(value: Any, name: str, owner: str) -> int:
    terms = as_whole(value, name, owner)
    if terms > MAX_SERIES_TERMS:
        raise bad_argument(name, owner, f"at most {MAX_SERIES_TERMS}", terms)
    return terms


class BiasedBound(Bound):
    """A number that belongs to a function of correlations f* and to L ≥ 1 terms of e^{t²/2}."""

    assumes = (*ASSUMED_OF_RANDOM_HEADS, BIASED_HEADS)

    target: CorrelationTarget = fields.part(CorrelationTarget)
    terms: int = fields.setting(1, _as_terms)


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
