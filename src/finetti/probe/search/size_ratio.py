"""Two searches compared: how many times as many samples one learner needs as another."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.statistics.intervals import Interval, percentile_interval
from finetti.display import format_interval, format_number
from finetti.probe.analysis.critical_size import CriticalSize


@dataclass(frozen=True)
class SizeRatio:
    """Critical size of the second learner divided by that of the first, at one context length.

    Args:
        learners: first and second.
        context_length: T.
        value: None if one of the sizes is censored, or the interval open on both sides.
        interval: 0 and ∞ where the sizes tried do not tell.
    """

    learners: tuple[str, str]
    context_length: int
    value: float | None
    interval: Interval

    @property
    def text(self) -> str:
        """The ratio with its interval, or that it is not known."""
        ends = (float(f"{self.interval.low:.3g}"), float(f"{self.interval.high:.3g}"))
        if self.value is None:
            return f"not known [{format_number(ends[0])}, {format_number(ends[1])}]"
        return format_interval(float(f"{self.value:.3g}"), ends)


def size_ratio(
    learners: tuple[str, str], context_length: int, first: CriticalSize, second: CriticalSize
) -> SizeRatio:
    """The ratio of two critical sizes from their posteriors, which are taken as independent.

    A size that may lie beyond those tried may be anywhere there: the interval is that of the
    least and of the largest ratio that is possible for each pair of draws.

    >>> def size(m):
    ...     drawn = np.log(m) + np.linspace(-0.1, 0.1, 41)
    ...     return CriticalSize(m, Interval(0, 1, 0.95, ""), 0.5, "", "", 10.0, 100.0, drawn)
    >>> size_ratio(("a", "b"), 20, size(20.0), size(40.0)).text
    '2 [1.7, 2.35]'
    >>> size_ratio(("a", "b"), 20, size(20.0), size(95.0)).text
    '4.75 [4.05, ∞]'
    >>> size_ratio(("a", "b"), 20, size(20.0), size(10.5)).text
    '0.525 [0, 0.616]'
    """
    (first_low, first_high), (second_low, second_high) = _ends(first), _ends(second)
    confidence = first.interval.confidence
    # All pairs: the draws of one seed are in step, as those of two learners must not be.
    least = np.subtract.outer(second_low, first_high)
    largest = np.subtract.outer(second_high, first_low)
    low = percentile_interval(least.ravel(), confidence, observed=True).low
    high = percentile_interval(largest.ravel(), confidence, observed=True).high
    value, known = None, math.isfinite(low) or math.isfinite(high)
    if first.value is not None and second.value is not None and known:
        value = second.value / first.value
    return SizeRatio(
        learners,
        context_length,
        value,
        Interval(math.exp(low), math.exp(high), confidence, "posterior"),
    )


def _ends(size: CriticalSize) -> tuple[Any, Any]:
    """The least and the largest log m that each draw stands for."""
    drawn, low, high = size.log_replicates, math.log(size.m_min), math.log(size.m_max)
    least = np.where(drawn < low, -np.inf, np.minimum(drawn, high))
    return least, np.where(drawn > high, np.inf, np.maximum(drawn, low))
