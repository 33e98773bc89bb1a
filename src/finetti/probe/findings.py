"""What a probe found: the analysis of its trials beside the bounds, and why trials failed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from finetti.core.statistics import Interval
from finetti.probe.analysis.analysis import Analysis, analyze
from finetti.probe.analysis.comparison import LearnerComparison, compare_learners
from finetti.probe.analysis.critical import CriticalSize
from finetti.probe.analysis.transitions import Transitions, transition_times
from finetti.probe.experiment import Experiment
from finetti.probe.information import InformationBounds, information_bounds
from finetti.probe.search.driver import SearchReport
from finetti.show import Table, format_interval
from finetti.studies.outcome import DONE

REASONS: tuple[str, ...] = ("solved", "ambiguous", "not fitted", "not generalized")
AHEAD = 10  # times the longest context: where the laws are asked


@dataclass(frozen=True)
class Findings:
    """The results of a probe: plain data (`to_dict`), and tables for people (`tables`).

    Args:
        experiment: what was asked.
        trials: one row per stored trial, with its details: `Experiment.table`.
        level: of the critical sample size.
        searches: learner → what its search found, if it was one.
    """

    experiment: Experiment
    trials: pd.DataFrame
    level: float = 0.5
    searches: Mapping[str, SearchReport] = field(default_factory=dict)

    @cached_property
    def done(self) -> pd.DataFrame:
        """The trials that ended without an error."""
        return self.trials.loc[self.trials["state"] == DONE] if len(self.trials) else self.trials

    @cached_property
    def analysis(self) -> Analysis | None:
        """Curves, critical sizes and laws; None online, or if no trial is done."""
        if self.experiment.online or not len(self.done):
            return None
        found = analyze(self.done, self.level, by=("learner",))
        if not self.searches:
            return found
        # The posterior of a search knows in which order its trials were chosen.
        sizes = {
            (learner, length): result.size
            for learner, report in self.searches.items()
            for length, result in report.results.items()
        }
        laws = {(learner,): report.laws for learner, report in self.searches.items()}
        return replace(found, sizes={**found.sizes, **sizes}, laws={**found.laws, **laws})

    @cached_property
    def bounds(self) -> dict[int, InformationBounds]:
        """Per context length: what no learner can do."""
        lengths = self.experiment.context_lengths
        return {T: information_bounds(self.experiment.rule(T), self.level) for T in lengths}

    @cached_property
    def comparisons(self) -> tuple[LearnerComparison, ...]:
        """The first learner with each of the others, on the same data."""
        first, *others = self.experiment.learners
        if self.analysis is None or not others:
            return ()
        found = set(self.done["learner"])
        return tuple(
            compare_learners(self.done, first, other, level=self.level)
            for other in others
            if {first, other} <= found
        )

    @cached_property
    def traced(self) -> pd.DataFrame:
        """The trials that kept their training curves."""
        if not len(self.done):
            return self.done
        kept = [bool(trace and "accuracy" in trace) for trace in self.done["trace"]]
        return self.done.loc[kept]

    @cached_property
    def transitions(self) -> Transitions | None:
        """When the runs found the rule, and how suddenly; None without training curves."""
        if not len(self.traced):
            return None
        sizes = () if self.experiment.online else ("n_samples",)
        return transition_times(self.traced, by=("learner", "context_length", *sizes))

    @property
    def reasons(self) -> list[dict[str, Any]]:
        """How many trials of each cell were solved, and why the others were not."""
        if not len(self.done):
            return []
        names = ("learner", "context_length", "n_samples")
        counts: dict[tuple[Any, ...], dict[str, Any]] = {}
        columns = (self.done[name] for name in (*names, "reason"))
        for learner, length, samples, reason in zip(*columns, strict=True):
            size = None if self.experiment.online else int(samples)
            cell = (learner, int(length), size)
            new = {**dict(zip(names, cell, strict=True)), **dict.fromkeys(REASONS, 0)}
            counts.setdefault(cell, new)[reason] += 1
        return list(counts.values())

    @property
    def headline(self) -> str:
        """What was found, in one line."""
        title = self.experiment.title
        if not len(self.done):
            return f"{title}: no trial is done"
        if self.analysis is None:
            told = [
                f"{row['solved']} of {sum(row[each] for each in REASONS)} runs of {row['learner']} "
                f"at T = {row['context_length']}"
                for row in self.reasons
            ]
            return f"{title}, learned online: {', '.join(told)}"
        # The longest context says most; the others stand in the table.
        longest = max(length for _, length in self.analysis.sizes)
        told = [
            f"{name} needs {_whole(size)}"
            for (name, length), size in self.analysis.sizes.items()
            if length == longest
        ]
        return f"{title} among {longest}: {', '.join(told)} samples"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        return () if self.analysis is None else self.analysis.__card__().notes

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "headline": self.headline,
            "settings": self.experiment.to_dict(),
            "trials": {
                # A search knows how many it needs when it has ended.
                "all": len(self.trials) if self.searches else self.experiment.n_trials,
                "done": len(self.done),
                "failed": len(self.trials) - len(self.done),
            },
            "searches": [
                {"learner": learner, **report.to_dict()}
                for learner, report in self.searches.items()
            ],
            "analysis": self.analysis and self.analysis.to_dict(),
            "information": [
                {
                    "context_length": length,
                    "counting": each.counting,
                    "packing": each.packing,
                    "first_order": each.first_order,
                }
                for length, each in self.bounds.items()
            ],
            "comparisons": [each.to_dict() for each in self.comparisons],
            "transitions": self.transitions and self.transitions.to_dict(),
            "reasons": self.reasons,
        }

    def tables(self) -> list[Table]:
        """What people read at the end of a run."""
        tables: list[Table] = []
        if self.analysis is not None:
            tables += [self.search_table()] if self.searches else self.success_tables()
            tables += [self.critical_table(), *self.law_tables()]
            tables += self.comparison_tables(cells=False)
        if self.transitions is not None and self.experiment.online:
            tables += self.transition_tables()
        return [table for table in tables if table.rows]

    def success_tables(self) -> list[Table]:
        """Per learner: one row per sample size, one column per context length."""
        assert self.analysis is not None
        tables = []
        for learner, cells in self.analysis.success.groupby("learner"):
            lengths = sorted({int(each) for each in cells["context_length"]})
            found = {
                (row["context_length"], row["n_samples"]): _share(
                    row["rate"], Interval(row["low"], row["high"], 0.95, "wilson")
                )
                for row in cells.to_dict("records")
            }
            rows = [
                (size, *(found.get((length, size)) for length in lengths))
                for size in sorted({int(each) for each in cells["n_samples"]})
            ]
            counts = sorted({int(each) for each in cells["trials"]})
            trials = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
            title = f"Success of {learner} [95 % interval], {trials} trials per cell"
            tables.append(Table(title, ("samples m", *(f"T = {T}" for T in lengths)), tuple(rows)))
        return tables

    def search_table(self) -> Table:
        """What the searches say, and how many trials they took."""
        rows = [
            (learner, length, result.size.text, result.trials, result.stopped)
            for learner, report in self.searches.items()
            for length, result in report.results.items()
        ]
        columns = ("learner", "T", f"m at success {self.level:g}", "trials", "stopped")
        return Table("Search", columns, tuple(rows))

    def critical_table(self) -> Table:
        """Critical sample size per learner and context length, beside what nobody can do."""
        assert self.analysis is not None
        rows = []
        for (learner, length), size in self.analysis.sizes.items():
            bound, curve = self.bounds[length], self.analysis.curves.get((learner, length))
            ratio = None if size.value is None else f"{size.value / bound.first_order:.2f}"
            ceiling = curve and _share(curve.ceiling, curve.ceiling_interval)
            first_order = round(bound.first_order, 1)
            rows.append((learner, length, size.text, bound.packing, first_order, ratio, ceiling))
        reached = f"m at success {self.level:g}"
        bounds = ("no learner below", "first order", "m / first order")
        columns = ("learner", "T", reached, *bounds, "ceiling")
        return Table("Critical sample size", columns, tuple(rows))

    def law_tables(self) -> list[Table]:
        """Per learner: both laws, what they say of the longest context without it, and ahead."""
        assert self.analysis is not None
        tables = []
        for (learner,), laws in self.analysis.laws.items():
            for table in laws.__card__().tables:
                ahead = AHEAD * max(laws.points)
                told = [
                    format_interval(value, (ends.low, ends.high))
                    for value, ends in laws.predict(ahead).values()
                ]
                rows = ((*row, each) for row, each in zip(table.rows, told, strict=True))
                columns = (*table.columns, f"at T = {ahead}")
                tables.append(Table(f"{table.title} of {learner}", columns, tuple(rows)))
        return tables

    def comparison_tables(self, cells: bool = True) -> list[Table]:
        """All pairs of learners over all cells; then per pair, ``cells`` and critical sizes."""
        rows = [
            (
                f"{each.learners[1]} − {each.learners[0]}",
                _share(each.difference, each.interval),
                each.p_value,
                each.detectable,
            )
            for each in self.comparisons
        ]
        columns = ("learners", "difference in success", "p", "detectable")
        tables = [Table("Learners on the same data", columns, tuple(rows))]
        for each in self.comparisons:
            names = " and ".join(each.learners)
            by_cell, *others = each.__card__().tables
            tables += [
                replace(table, title=f"{table.title}: {names}")
                for table in ([by_cell] if cells else []) + others
            ]
        return tables

    def transition_tables(self) -> list[Table]:
        """When the runs found the rule."""
        assert self.transitions is not None
        card = self.transitions.__card__()
        return [replace(table, title=card.title) for table in card.tables]


def _whole(size: CriticalSize) -> str:
    """A critical sample size as a title has it: nobody takes half a sample."""
    low, high = float(size.interval.low), float(size.interval.high)
    ends = [str(round(each)) if math.isfinite(each) else "∞" for each in (low, high)]
    if size.value is None:
        return f"more than {size.m_max:.0f}" if size.censored == "right" else f"≤ {size.m_min:.0f}"
    return f"{round(size.value)} [{ends[0]}, {ends[1]}]"


def _share(value: float, interval: Interval) -> str:
    """A share with its interval, as two digits tell it."""
    ends = (round(float(interval.low), 2), round(float(interval.high), 2))
    return format_interval(round(value, 2), ends)
