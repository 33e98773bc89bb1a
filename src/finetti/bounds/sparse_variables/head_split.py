"""Theorem 4.2: the error of a head, shared between its scores and its values at its best."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import optimize

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.covering.linear import log_log_matrix_cover
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.composed import log_log_points
from finetti.bounds.sparse_variables.head_class import HeadClass
from finetti.bounds.sparse_variables.networks import ASSUMED_OF_A_HEAD
from finetti.bounds.value import BoundValue, Term, log_of, summed
from finetti.core.errors import bad_argument
from finetti.core.logspace import log_add

_N_STARTS, _MAX_ABS_LOGIT = 8, 200
_MAX_LOG_RATIO = math.log(1e9)  # beyond, a step is smaller than rounding


def _log_shares(logit: float) -> tuple[float, float]:
    """log α and log(1 − α) for log(α/(1 − α))."""
    return -float(np.logaddexp(0.0, -logit)), -float(np.logaddexp(0.0, logit))


class HeadSplit(Bound):
    """min over α of log N(F_Score; αε/(C L_out B_in B_X)) + log N(F_in; (1−α)ε/L_out)

    Theorem 4.2, edelman2022, with both covers by Lemma 4.5 and the minimum taken numerically;
    Corollary 4.4 takes α = c_QK^{2/3}/γ instead, the best for the leading part (Lemma A.8), so it
    is never smaller. Printed: the same with C = 2, a scaling quantity. Without a readout.

    >>> from finetti.bounds.sparse_variables import HeadCovering
    >>> head = HeadClass(width=8, value_norm=.9, value_column_norm=.7, score_row_norm=.8)
    >>> sample = Sample(n_samples=1000, context_length=50)
    >>> split, closed = (each(head, 0.3).evaluate(sample) for each in (HeadSplit, HeadCovering))
    >>> 0.999 < split.value / closed.value <= 1
    True
    """

    name = "S-thm-4.2"
    title = "the capacity of a head from those of its scores and values"
    statement = "log N_∞ of a head ≤ those of its scores and its values, which share ε at best"
    citation = "Theorem 4.2, edelman2022"
    quantity = "log covering number"
    assumes = ASSUMED_OF_A_HEAD
    printed_kind = "scaling"

    functions: HeadClass = fields.part(HeadClass)
    resolution: float = fields.resolution()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_network(self.functions.shape, self.form)
        if self.functions.scalar:
            got, advice = self.functions.readout_norm, "S-cor-4.4 has the readout."
            raise bad_argument("readout_norm", "HeadSplit", "left out", got, advice)

    def _covers(self, sample: Sample) -> tuple[tuple[float, int, float], ...]:
        """Scores and values: log norm, outputs, and the log of the resolution for all of ε."""
        head = self.functions
        token = log_of(head.token_norm(sample))
        query = token if head.query_norm is None else log_of(head.query_norm + head.position_norm)
        given = head.norm_lipschitz
        constant = softmax_constant(self.form) if given is None else given
        log_resolution = math.log(self.resolution) - log_of(head.out_lipschitz)
        multiplier = log_of(constant) + log_of(head.value_norm) + token + query
        return (
            (log_of(head.score_row_norm), head.width, log_resolution - multiplier),
            (log_of(head.value_column_norm), head.columns, log_resolution),
        )

    def parts(self, log_share: float, log_rest: float, sample: Sample) -> tuple[float, float]:
        """log log N of the scores at α and of the values at 1 − α, for log α and log(1 − α)."""
        head = self.functions
        token = log_of(head.token_norm(sample))
        shares = log_share, log_rest
        covers = [
            (norm, outputs, resolution + share)
            for (norm, outputs, resolution), share in zip(self._covers(sample), shares, strict=True)
        ]
        if self.form == "printed":
            points = log_log_points(sample)
            score, value = (
                2 * (norm + math.log(outputs) + token - resolution) + points
                for norm, outputs, resolution in covers
            )
        else:
            points = head.log_points(sample)
            score, value = (
                log_log_matrix_cover(norm, math.log(outputs), token, resolution, points)
                for norm, outputs, resolution in covers
            )
        return score, value

    def best_share(self, sample: Sample) -> float:
        """log(α/(1 − α)) at the minimum: around Lemma A.8's, which is the leading part's."""
        value, score = self.functions.log_costs(self.functions, sample, "derived")
        if math.isinf(value) or math.isinf(score):
            return 700.0 if math.isinf(value) else -700.0
        center = (score - value) * 2 / 3

        def total(logit: float) -> float:
            return float(log_add(*self.parts(*_log_shares(logit), sample)))

        found: Any = optimize.minimize_scalar(
            total, bounds=(center - 3, center + 3), method="bounded", options={"xatol": 1e-10}
        )
        starts = [center, float(found.x), *self._steps(float(found.x), sample)]
        best = sorted(starts, key=total)[:_N_STARTS]
        for logit in tuple(best):
            score, value = self.parts(*_log_shares(logit), sample)
            if math.isinf(score) or math.isinf(value):  # log(mT) = 0: every share is as good
                break
            # Between two steps both covers are a number over the square of their share: Lemma A.8.
            log_share, log_rest = _log_shares(logit)
            best.append((score + 2 * log_share - value - 2 * log_rest) / 3)
        return min(best, key=total)

    def _steps(self, logit: float, sample: Sample) -> Iterator[float]:
        """The shares near ``logit`` at which one of the ceilings falls by one.

        The covers fall there, so that a minimum may sit on a step. ⌈a/α + 2⌉, a = 4B_∞B_X√d₂/ε, has
        steps at α = a/j.
        A step is worth 1/(j log N), being r of them away costs 3(r/j)²: √j are near enough.
        """
        if self.form == "printed":  # no ceilings
            return
        token, shares = log_of(self.functions.token_norm(sample)), _log_shares(logit)
        for side, (norm, outputs, resolution) in enumerate(self._covers(sample)):
            log_share = shares[side]
            log_ratio = math.log(4) + norm + token + math.log(outputs) / 2 - resolution  # log a
            if log_ratio - log_share > _MAX_LOG_RATIO:
                continue
            here = math.exp(log_ratio - log_share)
            reach = min(math.ceil(math.sqrt(here)) + 2, _MAX_ABS_LOGIT)
            first = max(1, math.floor(here) - reach)
            for j in range(first, math.ceil(here) + reach + 1):
                at = log_ratio - math.log(j)
                if at < -1e-12:
                    moved = at - math.log(-math.expm1(at))
                    yield moved if side == 0 else -moved

    def _evaluate(self, sample: Sample) -> BoundValue:
        logit = self.best_share(sample)
        shares = _log_shares(logit)
        score, value = self.parts(*shares, sample)
        terms = (
            Term("log covering number", None, "W_QK", score),
            Term("log covering number", None, "W_V", value),
        )
        note = f"The scores get the part {math.exp(shares[0]):.4g} of the error."
        return self.value(sample, *summed(terms), notes=(note, *self.functions.notes()))
