"""PAC-Bayes: the risk of a predictor whose weights are drawn around the trained ones."""

import math
from typing import Any, ClassVar

from finetti.bounds import description as fields
from finetti.bounds.certificates.error_counts import upper_relative_entropy
from finetti.bounds.certificates.risk_certificate import INDEPENDENT, RiskCertificate, needed_loss
from finetti.bounds.value import BoundValue, Sample, exp_of, log_of
from finetti.core.arguments import as_norm, as_positive, as_whole


def gaussian_divergence(distance: float, dimension: int, scale: float, prior_scale: float) -> float:
    """KL(N(w, s²I) ‖ N(w₀, σ²I)) = (‖w − w₀‖²/σ² + D(s²/σ² − 1 − ln(s²/σ²)))/2.

    Args:
        distance: ‖w − w₀‖.
        dimension: D, how many weights.
        scale: s, of the weights that are drawn.
        prior_scale: σ, of the prior.

    >>> gaussian_divergence(2.0, 10, 1.0, 1.0)
    2.0
    """
    owner = "gaussian_divergence"
    distance = as_norm(distance, "distance", owner)
    count = as_whole(dimension, "dimension", owner)
    width, prior = (
        as_positive(value, name, owner)
        for name, value in (("scale", scale), ("prior_scale", prior_scale))
    )
    log_ratio = 2 * (math.log(width) - math.log(prior))
    ratio_less_one = math.expm1(log_ratio) if log_ratio < 700 else exp_of(log_ratio)
    spread = ratio_less_one - log_ratio if ratio_less_one < math.inf else math.inf
    moved = distance / prior
    return (moved * moved + count * spread) / 2


class GaussianCertificate(RiskCertificate):
    """kl(R̂_Q ‖ R_Q) ≤ (KL + ln(2√n/δ))/n: the risk of weights drawn from N(w, s²I), on average.

    The prior N(w₀, σ²I) is fixed before the data, up to the ``bits`` and ``choices`` it pays for.

    Args:
        empirical_risk: R̂_Q, the mean loss of drawn weights.
        distance: ‖w − w₀‖.
        dimension: D.
        scale: s.
        prior_scale: σ.
        n_draws: how many weights were drawn to estimate R̂_Q, which half of δ pays for; None where
            it is exact.

    >>> certificate = GaussianCertificate(0.05, distance=3.0, dimension=100)
    >>> round(certificate.evaluate(Sample(10_000, 1)).value, 4)
    0.0618
    """

    name = "F-certificate-gaussian"
    title = "the risk of a randomized predictor by its distance from the prior"
    statement = "kl(Ê[ℓ]/b, risk/b) ≤ (D_KL + D_f + log(2·√n/δ))/n for randomly drawn weights"
    citation = "Certificates, finetti; Maurer (2004)"
    assumes: ClassVar[Any] = (
        INDEPENDENT,
        "the prior was fixed before the data were seen",
        "the risk is that of weights drawn anew for each prediction",
    )

    empirical_risk: float | None = fields.number(None, as_norm)
    distance: float = fields.norm(1.0, as_norm)
    dimension: int = fields.size("width", 1)
    scale: float = fields.number(1.0, as_positive)
    prior_scale: float = fields.number(1.0, as_positive)
    n_draws: int | None = fields.setting(None, as_whole)

    @property
    def divergence(self) -> float:
        """KL, in nats."""
        return gaussian_divergence(self.distance, self.dimension, self.scale, self.prior_scale)

    def _evaluate(self, sample: Sample) -> BoundValue:
        risk = needed_loss(self, sample, "empirical_risk", self.empirical_risk) / sample.loss_bound
        delta = sample.delta
        if self.n_draws is not None:
            delta /= 2
            risk = upper_relative_entropy(risk, -math.log(delta) / self.n_draws)
        odds = math.exp(self.log_odds(sample, delta)) + self.divergence
        odds += math.log(2) + sample.log_samples / 2
        limit = log_of(odds) - sample.log_samples
        found = upper_relative_entropy(risk, exp_of(limit))
        log_found = log_of(found) if found > 1e-300 else limit
        return self.value(sample, math.log(sample.loss_bound) + log_found)
