"""Which trials to run next, in order to find the critical number of samples with few of them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.arguments import as_whole
from finetti.core.errors import bad_argument
from finetti.core.numerics.random_keys import generator
from finetti.core.statistics.intervals import Interval
from finetti.display import Card, Displayable, Table
from finetti.probe.analysis.critical_size import Censored, CriticalSize
from finetti.probe.search.curve_posterior import REACH, Counts, CurvePosterior, curve_posterior
from finetti.probe.search.trial_allocation import allocate_trials

History = Iterable[tuple[int, int, int]]

N_REPLICATES = 500
MOST_CANDIDATES = 60
LEAST_PER_DOUBLING, MOST_PER_DOUBLING = 8, 128
STEP_OF_ODDS = 0.7  # between neighboring numbers of samples, in logits
MIN_BATCH = 4
TAIL = 0.025  # of the posterior, beyond which thresholds are not told apart
PRUNED = 1e-6  # curves of less weight than this times the largest do not decide anything


@dataclass(frozen=True)
class SearchResult(Displayable):
    """The smallest number of samples with P(success) ≥ level, as far as the trials tell.

    Args:
        size: the posterior median with an equal-tailed interval, or why it is censored; its
            ``log_replicates`` are drawn from the posterior, so that `fit_laws` takes it.
        stopped: ``precise``, ``censored``, ``budget``, or ``unfinished``.
        trials: how many there were.
        history: rows (samples, trials, successes).
    """

    size: CriticalSize
    stopped: str
    trials: int
    history: tuple[tuple[int, int, int], ...]

    def __card__(self) -> Card:
        card = self.size.__card__()
        fields = (*card.fields, ("stopped", self.stopped), ("trials", self.trials))
        table = Table("", ("samples", "trials", "successes"), self.history)
        return Card(card.title, fields, (table,), card.notes)


@dataclass(frozen=True)
class SearchDesign:
    """A sequential design: brackets the threshold, then puts the trials where they tell most.

    Bracketing multiplies (or divides) the samples by ``growth`` until a few trials succeed on one
    side and fail on the other. After that every round takes the trials that reduce the variance of
    the threshold most (`allocate_trials`), under the posterior of all curves, ceilings included.
    The design decides by the counts alone, so that an interrupted search takes the same way again.

    Args:
        minimum, maximum: the range of samples.
        start: where to begin, for example an information bound; ``minimum`` unless given.
        level: of the success probability.
        confidence: of the interval.
        ratio: ends when high/low of the interval is at most this.
        max_trials: ends after so many.
        batch: the most trials of a round, or a fourth of all so far if that is more.
        bracket_trials, growth: trials per step while bracketing, and the size of a step.

    >>> design = SearchDesign(minimum=10, maximum=1000, start=40)
    >>> design.propose([])
    [(40, 3)]
    >>> design.propose([(40, 3, 0)]), design.propose([(40, 3, 3)])
    ([(80, 3)], [(20, 3)])
    >>> sum(count for _, count in design.propose([(40, 3, 0), (80, 3, 3)]))
    12
    """

    minimum: int = 10
    maximum: int = 10_000
    start: int | None = None
    level: float = 0.5
    confidence: float = 0.95
    ratio: float = 1.2
    max_trials: int = 400
    batch: int = 12
    bracket_trials: int = 3
    growth: float = 2.0

    def __post_init__(self) -> None:
        owner = "SearchDesign"
        for name in ("minimum", "maximum", "max_trials", "batch", "bracket_trials"):
            as_whole(getattr(self, name), name, owner)
        if self.maximum <= self.minimum:
            raise bad_argument("maximum", owner, f"above minimum={self.minimum}", self.maximum)
        if self.start is not None and not self.minimum <= self.start <= self.maximum:
            within = f"from minimum={self.minimum} to maximum={self.maximum}"
            raise bad_argument("start", owner, within, self.start)
        for name in ("level", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise bad_argument(name, owner, "in (0, 1)", getattr(self, name))
        for name in ("ratio", "growth"):
            if not 1 < getattr(self, name) < math.inf:
                raise bad_argument(name, owner, "a finite number > 1", getattr(self, name))

    def propose(self, history: History) -> list[tuple[int, int]]:
        """The next trials as (samples, count), by the rows (samples, trials, successes) so far.

        Empty when the search has ended.
        """
        counts = self._counts(history)
        left = self.max_trials - int(counts.trials.sum())
        if left <= 0:
            return []
        step = self._bracket(counts)
        if step is not None:
            return [(step, min(left, self.bracket_trials))]
        posterior = self._posterior(counts)
        if self._stopped(posterior, counts) != "unfinished":
            return []
        # A long search takes longer rounds: a fourth of what is known can wait for its analysis.
        return self._batch(posterior, min(left, max(self.batch, int(counts.trials.sum()) // 4)))

    def result(self, history: History, seed: int = 0) -> SearchResult:
        """Estimate the threshold from rows (samples, trials, successes) of a search or a grid.

        Results that are used together, as those of several context lengths are in a law, have
        different seeds: their replicates must not be in step.
        """
        counts = self._counts(history)
        posterior = self._posterior(counts)
        stopped, total = self._stopped(posterior, counts), int(counts.trials.sum())
        return SearchResult(self._size(posterior, seed), stopped, total, counts.rows)

    def _size(self, posterior: CurvePosterior, seed: int) -> CriticalSize:
        low, high = math.log(self.minimum), math.log(self.maximum)
        shares = (np.arange(N_REPLICATES) + 0.5) / N_REPLICATES
        drawn = np.clip([posterior.quantile(each) for each in shares], low - REACH, high + REACH)
        generator("search", seed).shuffle(drawn)
        censored, reason = self._censored(posterior), ""
        if censored == "right":
            reason = f"success {self.level:g} is not reached up to m_max = {self.maximum}"
        elif censored == "left":
            reason = f"success {self.level:g} is already passed at m_min = {self.minimum}"
        # Of a threshold that may be in the range, one that is.
        median = math.exp(min(max(posterior.quantile(0.5), low), high))
        value, interval = None if censored else median, self._interval(posterior)
        ends = self.minimum, self.maximum
        return CriticalSize(value, interval, self.level, censored, reason, *ends, drawn)

    def _counts(self, history: History) -> Counts:
        rows = list(history)
        for n_samples, trials, successes in rows:
            if n_samples < 1 or not 0 <= successes <= trials:
                requirement = "rows (samples ≥ 1, trials, successes ≤ trials)"
                row = (n_samples, trials, successes)
                raise bad_argument("history", "SearchDesign", requirement, row)
        return Counts.of(rows)

    def _posterior(self, counts: Counts) -> CurvePosterior:
        return curve_posterior(counts, self.level, math.log(self.minimum), math.log(self.maximum))

    def _bracket(self, counts: Counts) -> int | None:
        """Return the next sample size while bracketing; None if both sides are known."""
        if not len(counts.n_samples):
            return self.start or self.minimum
        reached = counts.successes >= self.level * counts.trials
        low, high = counts.n_samples[[0, -1]].tolist()
        if not reached.any() and high < self.maximum:
            return min(self.maximum, math.ceil(high * self.growth))
        if reached.all() and low > self.minimum:
            return max(self.minimum, math.floor(low / self.growth))
        return None

    def _interval(self, posterior: CurvePosterior) -> Interval:
        """Return the credible interval in samples, open where it leaves the range."""
        tail = (1 - self.confidence) / 2
        low, high = (math.exp(posterior.quantile(q)) for q in (tail, 1 - tail))
        low = low if low >= self.minimum else 0.0
        high = high if high <= self.maximum else math.inf
        return Interval(low, high, self.confidence, "posterior")

    def _censored(self, posterior: CurvePosterior) -> Censored:
        tail = (1 - self.confidence) / 2
        if posterior.cumulative(math.log(self.maximum)) < tail:
            return "right"
        return "left" if posterior.cumulative(math.log(self.minimum)) > 1 - tail else ""

    def _stopped(self, posterior: CurvePosterior, counts: Counts) -> str:
        interval = self._interval(posterior)
        if interval.low > 0 and interval.high <= self.ratio * interval.low:
            return "precise"
        if self._censored(posterior):
            return "censored"
        return "budget" if counts.trials.sum() >= self.max_trials else "unfinished"

    def _batch(self, posterior: CurvePosterior, most: int) -> list[tuple[int, int]]:
        """The trials of a round, no more than the interval seems to need."""
        low, high = posterior.quantile(TAIL), posterior.quantile(1 - TAIL)
        high = min(high, math.log(self.maximum) + REACH)
        kept = posterior.kept(PRUNED)
        m = self._candidates(low, high, float(kept.weight @ kept.slope))
        # Not to let the few curves far away decide, for which the variance has a weakness.
        threshold = np.clip(kept.crossing, low, max(low, high))
        interval, share = self._interval(posterior), 0.0
        if interval.low > 0 and interval.high < math.inf:
            share = (math.log(self.ratio) / math.log(interval.high / interval.low)) ** 2
        least = min(most, MIN_BATCH)
        taken, _ = allocate_trials(
            kept.weight, threshold, kept.success(np.log(m)), share, least, most
        )
        return [(int(each), int(count)) for each, count in zip(m, taken, strict=True) if count]

    def _candidates(self, low: float, high: float, slope: float) -> Any:
        """Numbers of samples about the threshold, and beyond as far as the slope is wide.

        They are powers of 2^(1/j), so that trials gather in few cells, with j = 8, 16, … as the
        slope asks for.
        """
        low, high = low - 2 / slope, max(low, high) + 2 / slope
        fine = min(MOST_PER_DOUBLING, max(LEAST_PER_DOUBLING, slope * math.log(2) / STEP_OF_ODDS))
        step = math.log(2) / 2 ** math.ceil(math.log2(fine))
        while (high - low) / step > MOST_CANDIDATES:
            step *= 2
        powers = np.exp(step * np.arange(math.floor(low / step), math.ceil(high / step) + 1))
        return np.unique(np.clip(np.rint(powers), self.minimum, self.maximum).astype(np.int64))
