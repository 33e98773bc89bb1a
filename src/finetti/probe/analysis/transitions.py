"""When a learner finds the rule, and how suddenly: from the traces of its trials."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy

from finetti.core.errors import bad_argument
from finetti.core.numbers import json_number
from finetti.core.statistics import Interval
from finetti.display.card import Card, Table
from finetti.display.numbers import format_interval
from finetti.display.shown import Shown
from finetti.probe.analysis.trial_tables import Frame, groups_of, plain_records

START, END = 0.60, 0.95  # between these accuracies lies the transition


@dataclass(frozen=True)
class Transitions(Shown):
    """Times of transition, of every run; see `transition_times`.

    Args:
        by: the columns that tell groups of runs apart.
        level: the validation accuracy that counts as found.
        runs: one row per run: ``solved_at`` (∞ if never), ``started_at`` and ``ended_at`` (accuracy
            0.60 and 0.95), ``abruptness`` (the time between), ``last_step``.
    """

    by: tuple[str, ...]
    level: float
    runs: Frame
    confidence: float = 0.95

    @property
    def summary(self) -> Frame:
        """Per group: runs, solved, the median time with its interval, fastest, slowest run, and the
        median abruptness of the runs that had a transition."""
        rows = []
        for key, runs in groups_of(self.runs, self.by):
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

        def rows(table: Frame) -> list[dict[str, Any]]:
            return [
                {k: json_number(v) if isinstance(v, float) else v for k, v in row.items()}
                for row in plain_records(table)
            ]

        return {"level": self.level, "runs": rows(self.runs), "summary": rows(self.summary)}

    def __card__(self) -> Card:
        rows = tuple(
            (*(row[name] for name in self.by), f"{row['solved']} of {row['runs']}",
             format_interval(row["median"], (row["low"], row["high"])),
             row["fastest"], row["slowest"],
             None if math.isnan(row["abruptness"]) else row["abruptness"])
            for row in self.summary.to_dict("records")
        )  # fmt: skip
        columns = (*self.by, "solved", "median step", "fastest", "slowest", "steps 60 → 95 %")
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
) -> Transitions:
    """The step at which each run's validation accuracy first exceeds ``level``, and how abruptly.

    Args:
        table: one row per run with context_length and ``trace``, a mapping with the lists ``step``
            and ``accuracy``: ``study.table(details=True)`` of trials that note their accuracy.
        level: accuracy that counts as found.
        by: columns that tell groups of runs apart; by default context_length, and those of learner
            and n_samples that vary.
        confidence: of the interval of the median.

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
    kept = [name for name in table.columns if name in (*by, "seed", "replicate")]
    rows = []
    for (_, row), trace in zip(table[kept].iterrows(), table["trace"], strict=True):
        if not isinstance(trace, Mapping) or not {"step", "accuracy"} <= set(trace):
            advice = 'Run the trials with trace = ["accuracy"].'
            raise bad_argument("table", owner, "traces with step and accuracy", trace, advice)
        rows.append({**row.to_dict(), **_transition(trace, level)})
    return Transitions(tuple(by), level, pd.DataFrame(rows), confidence)


def _varies(table: Frame, name: str) -> bool:
    return name in table and (name == "context_length" or table[name].nunique() > 1)


def _transition(trace: Mapping[str, Sequence[float]], level: float) -> dict[str, float]:
    steps = np.asarray(trace["step"], np.float64)
    accuracy = np.asarray(trace["accuracy"], np.float64)

    def first(reached: np.ndarray) -> float:
        return float(steps[reached.argmax()]) if reached.any() else math.inf

    solved, start, end = first(accuracy > level), first(accuracy >= START), first(accuracy >= END)
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
