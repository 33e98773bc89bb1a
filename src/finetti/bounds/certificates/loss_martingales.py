"""Azuma, Catoni and empirical Bernstein: certificates for losses that may depend on the past."""

import math
from typing import Any, ClassVar

import numpy as np
import scipy

from finetti.bounds import description as fields
from finetti.bounds.certificates.risk_certificate import (
    FIXED_CODE,
    ON_A_SEQUENCE,
    RiskCertificate,
    needed_loss,
)
from finetti.bounds.value import BoundValue, Sample, Term, exp_of, log_of, summed
from finetti.core.arguments import as_norm, as_whole
from finetti.core.errors import bad_argument

# Fixed before any data are seen. Losses are divided by their range b, so these are λ·b.
CATONI_RATES = np.geomspace(1e-3, 30.0, 200)
BERNSTEIN_RATES = np.geomspace(1e-4, 0.99, 200)
GAP_ONLY = "Gap only: it certifies a risk together with the mean loss on these very data."


class SubsampledCertificate(RiskCertificate, kw_only=True):
    """Abstract: the mean loss may be that of some of the data, drawn without replacement.

    Half of δ then pays for the drawing, and every free choice that was made on what was drawn.

    Args:
        subsample: how many of the n losses were evaluated; None for all.
    """

    subsample: int | None = fields.setting(None, as_whole)

    def check(self, sample: Sample) -> None:
        """Refuse a subsample that is larger than the sample."""
        super().check(sample)
        if self.subsample is not None and self.subsample > sample.n_samples:
            wanted = f"at most n_samples, {sample.n_samples}"
            raise bad_argument("subsample", self.name, wanted, self.subsample)

    def main_delta(self, sample: Sample) -> float:
        """The share of δ that is left for the certificate itself."""
        return sample.delta if self.subsample is None else sample.delta / 2

    def log_drawing(self, sample: Sample) -> float:
        """log of b√((ln K + ln(2/δ))/(2n')), what n' losses instead of all n cost; −∞ for all."""
        if self.subsample is None:
            return -math.inf
        odds = math.log(self.choices) + math.log(2 / sample.delta)
        return math.log(sample.loss_bound) + (math.log(odds / 2) - log_of(self.subsample)) / 2


class AzumaGap(SubsampledCertificate):
    """R̄ − R̂ ≤ b√((L + ln(1/δ))/(2n)), for all predictors at once.

    >>> value = AzumaGap(bits=800).evaluate(Sample(10_000, 1))
    >>> round(0.3 + value.value, 9)
    0.468950281
    """

    name = "F-certificate-azuma"
    title = "the gap of one predictor by the length of its description"
    statement = "risk − Ê[ℓ] ≤ b·√((D_f + log(1/δ))/(2n))"
    citation = "Certificates, finetti; Azuma's inequality"
    quantity = "generalization gap"

    def _evaluate(self, sample: Sample) -> BoundValue:
        odds = self.log_odds(sample, self.main_delta(sample))
        log_gap = math.log(sample.loss_bound) + (odds - math.log(2) - sample.log_samples) / 2
        terms = [Term("description and confidence", log_value=log_gap)]
        if self.subsample is not None:
            terms.append(Term("subsample", log_value=self.log_drawing(sample)))
        return self.value(sample, *summed(terms), notes=(GAP_ONLY,))


class CatoniCertificate(SubsampledCertificate):
    """R̄ ≤ b·min_λ [1 − exp(−λR̂/b − (L + ln(|Λ|/δ))/n)]/(1 − e^−λ), |Λ| = 200 rates.

    Since e^−λℓ ≤ 1 − ℓ(1 − e^−λ) on [0, 1] and the logarithm is concave.

    Args:
        empirical_risk: R̂, the mean loss on the data that were counted.

    >>> value = CatoniCertificate(0.3, bits=800).evaluate(Sample(10_000, 1))
    >>> round(value.value, 9)
    0.466397476
    """

    name = "F-certificate-catoni"
    title = "the risk of one predictor by its losses and its description"
    statement = "risk ≤ b·min over η of (1 − exp(−η·Ê[ℓ]/b − (D_f + log(200/δ))/n))/(1 − exp(−η))"
    citation = "Certificates, finetti; Catoni's inequality"

    empirical_risk: float | None = fields.number(None, as_norm)

    def _evaluate(self, sample: Sample) -> BoundValue:
        risk = needed_loss(self, sample, "empirical_risk", self.empirical_risk)
        drawing = self.log_drawing(sample)
        risk = risk / sample.loss_bound + math.exp(drawing - math.log(sample.loss_bound))
        delta = self.main_delta(sample) / len(CATONI_RATES)
        log_cost = self.log_odds(sample, delta) - sample.log_samples
        cost = CATONI_RATES * risk + exp_of(log_cost)
        # 1 − e^−x is x where x is too small for a float.
        logs = np.where(cost > 1e-300, log_one_minus_exp(np.maximum(cost, 1e-300)), log_cost)
        log_value = float(np.min(logs - log_one_minus_exp(CATONI_RATES)))
        return self.value(sample, math.log(sample.loss_bound) + log_value)


class BernsteinGap(RiskCertificate):
    """R̄ − R̂ ≤ min_λ [(L + ln(|Λ|/δ))/(λn) + ψ(λ)V̂/λ], ψ(λ) = (−ln(1 − λb) − λb)/b².

    V̂ = mean (ℓ_i − Y_i)², where Y_i in [0, b] is known before ℓ_i: the model's own expected loss,
    or the mean of the losses before.

    Args:
        variance: V̂; by default its largest value, b².

    >>> value = BernsteinGap(0.02, bits=800).evaluate(Sample(10_000, 1))
    >>> round(0.3 + value.value, 9)
    0.39209017
    """

    name = "F-certificate-bernstein"
    title = "the gap of one predictor by the variance of its losses and its description"
    statement = (
        "risk − Ê[ℓ] ≤ min over η of (D_f + log(200/δ))/(η·n) − V·(log(1 − η·b) + η·b)/(η·b²)"
    )
    citation = "Certificates, finetti; empirical Bernstein"
    quantity = "generalization gap"
    assumes: ClassVar[Any] = (
        ON_A_SEQUENCE,
        FIXED_CODE,
        "`variance` is around predictions that were known before each loss",
    )

    variance: float | None = fields.norm(None, as_norm)

    def _evaluate(self, sample: Sample) -> BoundValue:
        span = sample.loss_bound
        variance = span**2 if self.variance is None else self.variance
        if variance > span**2:
            wanted = f"at most {span**2:g}, the square of the range of the loss"
            raise bad_argument("variance", self.name, wanted, f"{variance:g}")
        log_cost = self.log_odds(sample, sample.delta / len(BERNSTEIN_RATES)) - sample.log_samples
        logs = np.logaddexp(
            log_cost - np.log(BERNSTEIN_RATES),
            np.log(bernstein_growth(BERNSTEIN_RATES) / BERNSTEIN_RATES)
            + log_of(variance / span**2),
        )
        best = int(np.argmin(logs))
        rate, scale = BERNSTEIN_RATES[best], math.log(span)
        parts = (
            Term("description and confidence", log_value=scale + log_cost - math.log(rate)),
            Term(
                "variance",
                log_value=scale
                + math.log(bernstein_growth(rate) / rate)
                + log_of(variance / span**2),
            ),
        )
        return self.value(sample, *summed(parts), notes=(GAP_ONLY,))


def bernstein_growth(rates: Any) -> Any:
    """ψ(λ) = −ln(1 − λ) − λ, at b = 1, for 0 ≤ λ < 1; λ²/2 + λ³/3 + … without cancellation.

    >>> round(float(bernstein_growth(0.5)), 12) == round(math.log(2) - 0.5, 12)
    True
    """
    rates = np.asarray(rates, float)
    series = sum(rates**power / power for power in range(2, 12))
    return np.where(rates < 0.02, series, -np.log1p(-rates) - rates)


def log_one_minus_exp(cost: Any) -> Any:
    """log(1 − e^−x) for x > 0."""
    return np.log(-scipy.special.expm1(-np.asarray(cost, float)))
