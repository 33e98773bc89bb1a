"""When a learner finds the rule, and how suddenly: from the traces of its trials."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy

from finetti.core.errors import bad_argument
from finetti.core.plain_data import field_values, to_plain
from finetti.core.statistics.intervals import Interval
from finetti.display import Card, Displayable, Table, format_interval
from finetti.probe.analysis.trial_tables import Frame, iterate_groups

START, END = 0.60, 0.95  # between these accuracies lies the transition, unless START is no news


@dataclass(frozen=True)
class Transitions(Displayable):
    """Times of transition, of every run; see `transition_times`.

    Args:
        by: the columns that tell groups of runs apart.
        level: the validation accuracy that counts as found.
        runs: one row per run: ``solved_at`` (∞ if never), ``started_at`` and ``ended_at`` (accuracy
            ``start`` and 0.95), ``abruptness`` (the time between), ``last_step``.
        confidence: of the interval of the median.
        start: the accuracy at which a transition begins.
    """

    by: tuple[str, ...]
    level: float
    runs: Frame
    confidence: float = 0.95
    start: float = START

    @property
    def summary(self) -> Frame:
        """Per group: runs, solved, the median time with its interval, fastest, slowest run, and the
        median abruptness of the runs that had a transition."""
        rows = []
        for key, runs in iterate_groups(self.runs, self.by):
            times = np.sort(runs["solved_at"].to_numpy(np.float64))
            interval = median_interval(times, self.confidence)
            sharp = runs["abruptness"][np.isfinite(runs["abruptness"])]
            rows.append(
                {
                    **dict(zip(self.by, key, strict=True)),
                    "runs": len(times),
                    "solved": int(np.isfinite(times).sum()),
                    "median": float(times[(len(times) - 1) // 2]),
                    "low": interval.low,
                    "high": interval.high,
                    "fastest": float(times[0]),
                    "slowest": float(times[-1]),
                    "abruptness": float(sharp.median()) if len(sharp) else math.nan,
                    "last_step": int(runs["last_step"].max()),
                }
            )
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a time that was not reached is "Infinity"."""
        return to_plain(field_values(self, "summary"))

    def __card__(self) -> Card:
        rows = tuple(
            (*(row[name] for name in self.by), f"{row['solved']} of {row['runs']}",
             format_interval(row["median"], (row["low"], row["high"])),
             row["fastest"], row["slowest"],
             None if math.isnan(row["abruptness"]) else row["abruptness"])
            for row in self.summary.to_dict("records")
        )  # fmt: skip
        columns = (*self.by, "solved", "median step", "fastest", "slowest")
        columns = (*columns, f"steps {100 * self.start:.3g} → {100 * END:.3g} %")
        note = (
            "∞: not within the steps of the run." if np.isinf(self.runs["solved_at"]).any() else ""
        )
        title = f"First check with accuracy above {self.level:g}"
        return Card(title, (), (Table("", columns, rows),), (note,) if note else ())


def transition_times(
    table: Frame,
    level: float = 0.99,
    by: Sequence[str] | None = None,
    confidence: float = 0.95,
    start: float = START,
) -> Transitions:
    """The step at which each run's validation accuracy first exceeds ``level``, and how abruptly.

    Args:
        table: one row per run with context_length and ``trace``, a mapping with the lists ``step``
            and ``accuracy``: ``study.table(details=True)`` of trials that note their accuracy.
        level: accuracy that counts as found.
        by: columns that tell groups of runs apart; by default context_length, and those of learner
            and n_samples that vary.
        confidence: of the interval of the median.
        start: accuracy at which a transition begins; above that of a constant answer, see
            `transition_start`.

    >>> trace = {"step": [10, 20, 30, 40], "accuracy": [0.5, 0.55, 0.7, 1.0]}
    >>> table = pd.DataFrame({"context_length": [10], "trace": [trace]})
    >>> transition_times(table).runs[["solved_at", "abruptness"]].values.tolist()
    [[40.0, 10.0]]
    """
    owner = "transition_times"
    if by is None:
        by = [name for name in ("learner", "context_length", "n_samples") if _varies(table, name)]
    absent = [name for name in (*by, "context_length", "trace") if name not in table]
    if absent:
        wanted = f"one row per run, with a column {absent[0]}"
        raise bad_argument("table", owner, wanted, f"the columns {', '.join(map(str, table))}")
    if not 0 < level < 1:
        raise bad_argument("level", owner, "in (0, 1)", level)
    if not 0 < start < END:
        raise bad_argument("start", owner, f"in (0, {END})", start)
    kept = [name for name in table.columns if name in (*by, "seed", "replicate")]
    rows = []
    for (_, row), trace in zip(table[kept].iterrows(), table["trace"], strict=True):
        if not isinstance(trace, Mapping) or not {"step", "accuracy"} <= set(trace):
            advice = 'Run the trials with trace = ["accuracy"].'
            raise bad_argument("table", owner, "traces with step and accuracy", trace, advice)
        rows.append({**row.to_dict(), **_transition(trace, level, start)})
    return Transitions(tuple(by), level, pd.DataFrame(rows), confidence, start)


def transition_start(chance: float) -> float:
    """The accuracy at which a transition begins, if ``chance`` is that of a constant answer.

    0.60, or, where that is no news, halfway from chance to the end.

    >>> transition_start(0.5), round(transition_start(0.875), 4)
    (0.6, 0.9125)
    """
    return START if chance < START else min((chance + END) / 2, 0.999 * END)


def _varies(table: Frame, name: str) -> bool:
    return name in table and (name == "context_length" or table[name].nunique() > 1)


def _transition(
    trace: Mapping[str, Sequence[float]], level: float, start_level: float
) -> dict[str, float]:
    steps = np.asarray(trace["step"], np.float64)
    accuracy = np.asarray(trace["accuracy"], np.float64)

    def first(reached: np.ndarray) -> float:
        return float(steps[reached.argmax()]) if reached.any() else math.inf

    solved, end = first(accuracy > level), first(accuracy >= END)
    start = first(accuracy >= start_level)
    sharp = end - start if math.isfinite(end) else math.inf
    return {
        "solved_at": solved,
        "started_at": start,
        "ended_at": end,
        "abruptness": sharp,
        "last_step": int(steps[-1]) if len(steps) else 0,
    }


def median_interval(ordered: np.ndarray, confidence: float = 0.95) -> Interval:
    """An interval of the median from order statistics, whatever the distribution.

    ``[x_(k+1), x_(n−k)]`` with the largest k for which P(Binomial(n, ½) ≤ k) ≤ (1 − confidence)/2;
    [0, ∞] where n is too small for any. ∞ among the values is one of them.

    >>> median_interval(np.arange(1.0, 11.0)).low, median_interval(np.arange(1.0, 11.0)).high
    (2.0, 9.0)
    """
    n = len(ordered)
    k = int(scipy.stats.binom.ppf((1 - confidence) / 2, n, 0.5))
    k -= int(scipy.stats.binom.cdf(k, n, 0.5) > (1 - confidence) / 2)
    if k < 0:
        return Interval(0.0, math.inf, confidence, "order statistics")
    return Interval(float(ordered[k]), float(ordered[n - 1 - k]), confidence, "order statistics")
