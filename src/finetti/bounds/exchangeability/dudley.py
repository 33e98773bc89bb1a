"""Lemma C.7: Dudley's integral for covers that grow like a power of 1/ε."""

import math
from typing import Literal

from scipy import integrate

from finetti.bounds.value import log_of
from finetti.core.logspace import log1pexp, log_add, log_expm1

Integral = Literal["closed", "quadrature"]
_LOG_12, _LOG_4 = math.log(12), math.log(4)
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
    log_cut = min(0.0, log_ratio - steep)
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
    return min(0.0, float(log_add(_LOG_4 + log_cut, front + log_of(area))))
