"""The result of a probe: the analysis of its trials beside the bounds, and why trials failed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import pandas as pd

from finetti.core.plain_data import field_values, to_plain
from finetti.core.statistics.intervals import Interval
from finetti.display import Table, format_interval
from finetti.probe.analysis.critical_size import CriticalSize
from finetti.probe.analysis.learner_comparison import LearnerComparison, compare_learners
from finetti.probe.analysis.probe_analysis import Analysis, analyze
from finetti.probe.analysis.transitions import Transitions, transition_start, transition_times
from finetti.probe.probe_experiment import ProbeExperiment
from finetti.probe.search.search_rounds import SearchReport
from finetti.probe.search.size_ratio import SizeRatio, size_ratio
from finetti.probe.tasks.information import InformationBounds, information_bounds
from finetti.studies.experiment import ExperimentResult

REASONS: tuple[str, ...] = ("solved", "ambiguous", "not fitted", "not generalized")
EXTRAPOLATION_FACTOR = 10  # times the longest context: where the laws are asked


@dataclass(frozen=True)
class ProbeFindings(ExperimentResult):
    """The result of a probe: the analysis of its trials; its page is drawn by `ProbeResult`.

    Args:
        experiment: what was asked.
        trials: one row per stored trial, with its details: `ProbeExperiment.table`.
        searches: learner → what its search found so far; None if the trials are a grid.
    """

    noun: ClassVar[str] = "probe"
    page_name: ClassVar[str] = "probe.html"
    part_column: ClassVar[str] = "learner"
    cell_columns: ClassVar[tuple[str, ...]] = ("context_length", "n_samples")

    experiment: ProbeExperiment
    searches: Mapping[str, SearchReport] | None = None

    @property
    def level(self) -> float:
        """Success probability at the critical sample size."""
        return self.experiment.level

    @cached_property
    def analysis(self) -> Analysis | None:
        """Curves, critical sizes and laws; None online, or if no trial is done."""
        if self.experiment.online or not len(self.done):
            return None
        # The posterior of a search knows in which order its trials were chosen.
        searched = {
            (learner, length): each.size
            for learner, report in (self.searches or {}).items()
            for length, each in report.results.items()
        }
        found = analyze(self.done, self.level, by=("learner",), sizes=searched)
        rank = self.experiment.learners.index  # as they were given, in all tables and charts
        sizes = sorted(found.sizes.items(), key=lambda item: (rank(item[0][0]), item[0][1]))
        laws = sorted(found.laws.items(), key=lambda item: rank(item[0][0]))
        return replace(found, sizes=dict(sizes), laws=dict(laws))

    @cached_property
    def bounds(self) -> dict[int, InformationBounds]:
        """Per context length: what no learner can do."""
        lengths = self.experiment.context_lengths
        return {T: information_bounds(self.experiment.rule(T), self.level) for T in lengths}

    @cached_property
    def comparisons(self) -> tuple[LearnerComparison, ...]:
        """The first learner with each of the others, on the same data; none of searches.

        The few sizes that two searches have in common are where one of them is far from its
        threshold: see `ratios`.
        """
        first, *others = self.experiment.learners
        if self.analysis is None or self.searches is not None or not others:
            return ()
        found = set(self.done["learner"])
        return tuple(
            compare_learners(self.done, first, other, level=self.level)
            for other in others
            if {first, other} <= found
        )

    @cached_property
    def ratios(self) -> tuple[SizeRatio, ...]:
        """Critical sizes of the other learners over that of the first, of searches."""
        first, *others = self.experiment.learners
        searches = self.searches or {}
        return tuple(
            size_ratio((first, other), length, result.size, searches[other].results[length].size)
            for other in others
            if {first, other} <= set(searches)
            for length, result in searches[first].results.items()
        )

    @property
    def wanted(self) -> int:
        """Return the number of trials; a search knows it when it has ended."""
        return len(self.trials) if self.searches is not None else self.experiment.n_trials

    @property
    def partial(self) -> str:
        """Describe what has run, if it is not all: trials of a grid, or an unfinished search."""
        if self.searches is None:
            return super().partial
        ended = {
            learner
            for learner, report in self.searches.items()
            if all(each.stopped != "unfinished" for each in report.results.values())
        }
        left = [each for each in self.experiment.learners if each not in ended]
        return f"the search of {', '.join(left)} has not ended" if left else ""

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
        by, level = ("learner", "context_length", *sizes), self.experiment.success_accuracy
        start = transition_start(self.experiment.rule(self.experiment.context_lengths[0]).chance)
        return transition_times(self.traced, level, by=by, start=start)

    @property
    def reasons(self) -> list[dict[str, Any]]:
        """Count the solved trials of each cell, and the others by their reason."""
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
        """Return the result in one line."""
        title = self.experiment.title
        if not len(self.done):
            return f"{title}: no trial is done"
        if self.analysis is None:
            told = [
                f"{row['solved']} of {sum(row[each] for each in REASONS)} runs of {row['learner']} "
                f"at T = {row['context_length']}"
                for row in self.reasons
            ]
            return f"{title}, learned online: {', '.join(told)}{self._only_partial}"
        # The longest context says most; the others stand in the table.
        longest = max(length for _, length in self.analysis.sizes)
        told = [
            f"{name} {self._needs(name, length, size)}"
            for (name, length), size in self.analysis.sizes.items()
            if length == longest
        ]
        return f"{title} among {longest}: {'; '.join(told)}{self._only_partial}"

    @property
    def _only_partial(self) -> str:
        return f" (partial: {self.partial})" if self.partial else ""

    def _needs(self, learner: str, length: int, size: CriticalSize) -> str:
        """A critical sample size in words: nobody takes half a sample."""
        low, high = (float(each) for each in (size.interval.low, size.interval.high))
        ends = ", ".join(str(round(each)) if math.isfinite(each) else "∞" for each in (low, high))
        if size.value is not None:
            return f"needs {round(size.value)} [{ends}] samples"
        if size.censored == "right":
            told = f"has not reached success {self.level:g} with up to {size.m_max:.0f} samples"
        else:
            told = f"has reached success {self.level:g} with {size.m_min:.0f} samples already"
        assert self.analysis is not None
        cells = self.analysis.success
        here = (cells["learner"] == learner) & (cells["context_length"] == length)
        counts = cells.loc[here, "trials"]
        if self.searches is not None:
            return f"{told} [{ends}] ({_counted([counts.sum()])})"
        return f"{told} [{ends}] ({_counted(counts)} each)"

    @property
    def notes(self) -> tuple[str, ...]:
        """Return warnings and remarks for the reader."""
        analysis = () if self.analysis is None else self.analysis.__card__().notes
        return (*analysis, *self._without_curves)

    @property
    def _without_curves(self) -> tuple[str, ...]:
        """Which learners have no training curves, if curves were asked for."""
        if not self.experiment.fixed.get("trace") or not len(self.done):
            return ()
        silent = set(self.done["learner"]) - set(self.traced["learner"])
        names = [each for each in self.experiment.learners if each in silent]
        if not names:
            return ()
        text = "the probe does not train them step by step"
        return (f"No training curves of {', '.join(names)}: {text}.",)

    def values(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = {
            "searches": self.searches,
            "analysis": self.analysis,
            "information": [
                {"context_length": length, **field_values(each)}
                for length, each in self.bounds.items()
            ],
            "comparisons": self.comparisons,
            "ratios": self.ratios,
            "transitions": self.transitions,
            "reasons": self.reasons,
        }
        return to_plain(found)

    def tables(self) -> list[Table]:
        """Return the tables that a terminal shows at the end of a run."""
        tables: list[Table] = []
        if self.analysis is not None:
            tables += [self.search_table()] if self.searches else self.success_tables()
            tables += [self.critical_table(), *self.law_tables()]
            tables += [*self.comparison_tables(cells=False), self.ratio_table()]
        if self.transitions is not None and self.experiment.online:
            tables += self.transition_tables()
        return [table for table in tables if table.rows]

    def success_tables(self) -> list[Table]:
        """Per learner: one row per sample size, one column per context length."""
        assert self.analysis is not None
        tables = []
        for (learner,) in self.analysis.laws:
            cells = self.analysis.success.loc[self.analysis.success["learner"] == learner]
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
            counted = _counted(cells["trials"])
            title = f"Success of {learner} [95 % interval], {counted} per cell"
            tables.append(Table(title, ("samples m", *(f"T = {T}" for T in lengths)), tuple(rows)))
        return tables

    def search_table(self) -> Table:
        """Return the results of the searches, and how many trials they took."""
        rows = [
            (learner, length, result.size.text, result.trials, result.stopped)
            for learner, report in (self.searches or {}).items()
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
                ahead = EXTRAPOLATION_FACTOR * max(laws.points)
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
            )
            for each in self.comparisons
        ]
        columns = ("learners", "difference in success", "p")
        tables = [Table("Learners on the same data", columns, tuple(rows))]
        for each in self.comparisons:
            names = " and ".join(each.learners)
            by_cell, *others = each.__card__().tables
            tables += [
                replace(table, title=f"{table.title}: {names}")
                for table in ([by_cell] if cells else []) + others
            ]
        return tables

    def ratio_table(self) -> Table:
        """Critical sizes of two searches, divided."""
        rows = [
            (" / ".join(reversed(each.learners)), each.context_length, each.text)
            for each in self.ratios
        ]
        columns = ("learners", "T", "ratio of critical sizes")
        return Table("Learners by their searches", columns, tuple(rows))

    def transition_tables(self) -> list[Table]:
        """When the runs found the rule."""
        assert self.transitions is not None
        card = self.transitions.__card__()
        letters = {"context_length": "T", "n_samples": "m"}
        return [
            replace(
                table,
                title=card.title,
                columns=tuple(letters.get(name, name) for name in table.columns),
            )
            for table in card.tables
        ]


def _counted(trials: Iterable[int]) -> str:
    """Describe the number of trials per cell.

    >>> _counted([5, 5]), _counted([7, 2]), _counted([1])
    ('5 trials', '2 to 7 trials', '1 trial')
    """
    least, most = min(trials), max(trials)
    if least < most:
        return f"{least} to {most} trials"
    return f"{most} trial{'s' if most > 1 else ''}"


def _share(value: float, interval: Interval) -> str:
    """A share with its interval, as two digits tell it."""
    ends = (round(float(interval.low), 2), round(float(interval.high), 2))
    return format_interval(round(value, 2), ends)
