"""Certificates for independent losses: the binomial tail of 0–1 losses, and its relaxation."""

import math
from typing import Any, ClassVar

import numpy as np
import scipy

from finetti.bounds import description as fields
from finetti.bounds.certificates.risk_certificate import (
    FIXED_CODE,
    INDEPENDENT,
    RiskCertificate,
    needed_loss,
)
from finetti.bounds.value import BoundValue, Sample, exp_of, log_of
from finetti.core.arguments import as_norm, as_whole
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of


class RelativeEntropyCertificate(RiskCertificate):
    """The largest R with kl(R̂/b ‖ R/b) ≤ (L + ln(1/δ))/n.

    Args:
        empirical_risk: R̂, the mean loss.

    >>> certificate = RelativeEntropyCertificate(0.02, bits=800)
    >>> round(certificate.evaluate(Sample(10_000, 1)).value, 9)
    0.106476388
    """

    name = "F-certificate-kl"
    title = "the risk of one predictor by the relative entropy to its mean loss"
    statement = "kl(Ê[ℓ]/b, risk/b) ≤ (D_f + log(1/δ))/n"
    citation = "Certificates, finetti; Chernoff's inequality"
    assumes: ClassVar[Any] = (INDEPENDENT, FIXED_CODE)

    empirical_risk: float | None = fields.number(None, as_norm)

    def _evaluate(self, sample: Sample) -> BoundValue:
        risk = needed_loss(self, sample, "empirical_risk", self.empirical_risk)
        log_limit = self.log_odds(sample) - sample.log_samples
        found = upper_relative_entropy(risk / sample.loss_bound, exp_of(log_limit))
        log_found = log_of(found) if found > 1e-300 else log_limit
        return self.value(sample, math.log(sample.loss_bound) + log_found)


class BinomialCertificate(RiskCertificate):
    """The largest R with P(Bin(n, R) ≤ k) ≥ δe^−L, for k errors among n: nothing is given away.

    Args:
        error_rate: k/n; k is the nearest whole number.

    >>> certificate = BinomialCertificate(0.02, bits=800)
    >>> round(certificate.evaluate(Sample(10_000, 1)).value, 9)
    0.106105402
    """

    name = "F-certificate-binomial"
    title = "the error rate of one predictor by its number of errors"
    statement = "risk ≤ the largest rate at which so few errors have probability δ·exp(−D_f)"
    citation = "Certificates, finetti; Clopper and Pearson (1934)"
    assumes: ClassVar[Any] = (INDEPENDENT, FIXED_CODE, "each loss is 0 or b")

    error_rate: float | None = fields.number(None, as_norm)

    def _evaluate(self, sample: Sample) -> BoundValue:
        rate = needed_loss(self, sample, "error_rate", self.error_rate) / sample.loss_bound
        log_limit = -math.exp(self.log_odds(sample))
        found = _largest_rate(rate, sample.n_samples, log_limit)
        return self.value(sample, math.log(sample.loss_bound) + log_of(found))


def _largest_rate(rate: float, n: int, log_limit: float) -> float:
    """R at which log P(Bin(n, R) ≤ nR̂) is ``log_limit``."""
    limit = math.exp(math.log(-log_limit) - math.log(n))
    if n > 2**53:  # more than floats count: Chernoff's bound, which is as sharp there
        return upper_relative_entropy(rate, limit)
    errors = round(rate * n)
    if errors >= n:
        return 1.0
    if errors == 0:  # (1 − R)^n
        return -math.expm1(-limit)
    high = upper_relative_entropy(errors / n, limit)  # Chernoff: at least as large

    def excess(found: float) -> float:
        return log_binomial_tail(errors, n, found) - log_limit

    if high >= 1 or excess(high) >= 0:
        return high
    # At k/n the tail is about 1/2, which is below δ where δ is nearly 1.
    low = errors / n
    while excess(low) < 0:
        low /= 2
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-15))


def log_binomial_tail(errors: int, n: int, rate: float) -> float:
    """log P(Bin(n, R) ≤ k), also where the probability is too small for a float.

    >>> round(log_binomial_tail(0, 1000, 0.9), 9) == round(1000 * math.log(0.1), 9)
    True
    """
    owner = "log_binomial_tail"
    errors = as_whole(errors, "errors", owner, least=0)
    n = as_whole(n, "n", owner)
    if errors >= n:
        return 0.0
    # Going down from k, each probability is at most `ratio` times the one before.
    ratio = errors * (1 - rate) / ((n - errors + 1) * rate)
    if ratio >= 1:
        return float(np.log(scipy.stats.binom.cdf(errors, n, rate)))
    steep = -math.log(ratio) if ratio > 0 else math.inf
    terms = min(errors + 1, math.ceil(40 / (steep + 1e-7)) + 2)
    counts = np.arange(errors - terms + 1, errors + 1)
    return float(scipy.special.logsumexp(scipy.stats.binom.logpmf(counts, n, rate)))


def upper_relative_entropy(mean: float, limit: float) -> float:
    """The largest q in [p, 1] with kl(p ‖ q) = p ln(p/q) + (1 − p) ln((1 − p)/(1 − q)) ≤ c.

    >>> upper_relative_entropy(0.0, math.log(2)), upper_relative_entropy(1.0, 0.1)
    (0.5, 1.0)
    """
    owner = "upper_relative_entropy"
    p = as_norm(mean, "mean", owner)
    if p > 1:
        raise bad_argument("mean", owner, "a mean of losses in [0, 1]", mean)
    if limit < 0 or math.isnan(limit):
        raise bad_argument("limit", owner, "a number ≥ 0", limit)
    if p == 1 or limit == math.inf:
        return 1.0
    if p == 0:
        return -math.expm1(-limit)

    def excess(rest: float) -> float:  # by ln(1 − q): digits where q is nearly 1
        q = -math.expm1(rest)
        return p * (math.log(p) - math.log(q)) + (1 - p) * (math.log1p(-p) - rest) - limit

    high = math.log1p(-p)
    low = high - (limit + math.log(2)) / (1 - p) - 1.0
    found = float(scipy.optimize.brentq(excess, low, high, xtol=1e-300, rtol=1e-15))
    return largest_of(p, -math.expm1(found))
