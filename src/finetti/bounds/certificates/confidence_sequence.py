"""Confidence sequences: watch the losses of a frozen predictor, and stop whenever you like."""

import math
from typing import Any

import numpy as np
import scipy

from finetti.bounds.certificates.loss_martingales import (
    BERNSTEIN_RATES,
    CATONI_RATES,
    bernstein_growth,
)
from finetti.core.arguments import as_norm, as_positive, as_real
from finetti.core.errors import InputError, bad_argument

_EVIDENCE = math.log(len(CATONI_RATES) + len(BERNSTEIN_RATES))


class ConfidenceSequence:
    """An upper bound on the risk after every loss, right at all times at once with chance 1 − δ.

    The mean of Catoni's and Bernstein's supermartingales over their rates is one, so that by
    Ville's inequality it exceeds e^L/δ at any time with probability δe^−L at most. Bernstein's
    predictions Y_i are the means of the losses before. Losses may depend on the past; the predictor
    must not change, or the bound is that of the average of the predictors on what they had not
    seen.

    Args:
        delta: δ.
        loss_bound: b, losses lie in [0, b].
        nats: L, of `description_nats`; 0 for a predictor that was fixed before the data.

    >>> sequence = ConfidenceSequence(delta=0.05)
    >>> sequence.update([0.0] * 1000)
    >>> sequence.n_losses, round(sequence.upper, 4)
    (1000, 0.0049)
    """

    def __init__(self, delta: float = 0.05, loss_bound: float = 1.0, nats: float = 0.0):
        owner = "ConfidenceSequence"
        chance = as_real(delta, "delta", owner, "a probability in (0, 1)")
        if not 0 < chance < 1:
            raise bad_argument("delta", owner, "a probability in (0, 1)", delta)
        self.loss_bound = as_positive(loss_bound, "loss_bound", owner)
        self._log_limit = as_norm(nats, "nats", owner) - math.log(chance)
        self.n_losses = 0
        self._sum = 0.0  # of the losses divided by b, as all below
        self._squares = 0.0  # Σ(ℓ_i − Y_i)²

    def update(self, losses: Any) -> None:
        """Take one more loss, or many in their order; losses outside of [0, b] are refused."""
        given = np.atleast_1d(np.asarray(losses, float))
        if given.ndim != 1 or not ((given >= 0) & (given <= self.loss_bound)).all():
            wanted = f"numbers in [0, {self.loss_bound:g}]"
            raise bad_argument(
                "losses", "ConfidenceSequence.update", wanted, _first_bad(self, given)
            )
        scaled = given / self.loss_bound
        before = self._sum + np.concatenate([[0.0], np.cumsum(scaled)[:-1]])[: len(scaled)]
        count = self.n_losses + np.arange(len(scaled))
        # The mean of one made-up loss of 1/2 and those before.
        known = (before + 0.5) / (count + 1)
        self._squares += float(np.sum((scaled - known) ** 2))
        self._sum += float(np.sum(scaled))
        self.n_losses += len(scaled)

    @property
    def mean(self) -> float:
        """The mean loss so far."""
        if not self.n_losses:
            raise InputError("There are no losses yet. Give some to `update`.")
        return self.loss_bound * self._sum / self.n_losses

    @property
    def upper(self) -> float:
        """The bound on the risk so far; b before the first loss."""
        if self.log_evidence(1.0) <= self._log_limit:
            return self.loss_bound
        low = self._sum / self.n_losses
        if self.log_evidence(low) > self._log_limit:  # rounding of a mean near 1
            return self.loss_bound * low
        root = scipy.optimize.brentq(
            lambda risk: self.log_evidence(risk) - self._log_limit, low, 1.0, xtol=1e-13
        )
        return self.loss_bound * float(root)

    def log_evidence(self, risk: float) -> float:
        """log of the mean of the supermartingales if the risk so far were ``risk``·b.

        Above L + ln(1/δ) that risk is refuted.
        """
        n = self.n_losses
        with np.errstate(divide="ignore"):
            catoni = -CATONI_RATES * self._sum - n * np.log1p(risk * np.expm1(-CATONI_RATES))
        rates = BERNSTEIN_RATES
        bernstein = rates * (n * risk - self._sum) - bernstein_growth(rates) * self._squares
        return float(scipy.special.logsumexp(np.concatenate([catoni, bernstein]))) - _EVIDENCE


def _first_bad(sequence: ConfidenceSequence, given: np.ndarray) -> Any:
    if given.ndim != 1:
        return f"shape {given.shape}"
    fits = (given >= 0) & (given <= sequence.loss_bound)
    place = int(np.argmin(fits))
    return f"{given[place]} at place {place}"
