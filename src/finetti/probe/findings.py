"""What a probe found: the analysis of its trials beside the bounds, and why trials failed."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from finetti.probe.analysis.analysis import Analysis, analyze
from finetti.probe.experiment import Experiment
from finetti.probe.information import InformationBounds, information_bounds
from finetti.show import Table, format_interval
from finetti.studies.outcome import DONE

TRANSITION_COLUMNS = {
    "learner": "learner",
    "context_length": "T",
    "learned": "learned",
    "runs": "of",
    "fastest": "fastest",
    "median": "median step",
    "slowest": "slowest",
    "iterations": "steps at most",
}
REASONS = ("solved", "ambiguous", "not fitted", "not generalized")


@dataclass(frozen=True)
class Findings:
    """The results of a probe.

    Args:
        experiment: what was asked.
        trials: one row per stored trial, with its details.
        level: of the critical sample size.
    """

    experiment: Experiment
    trials: pd.DataFrame
    level: float = 0.5

    @cached_property
    def done(self) -> pd.DataFrame:
        """The trials that ended without an error."""
        return self.trials[self.trials["state"] == DONE] if len(self.trials) else self.trials

    @cached_property
    def analysis(self) -> Analysis | None:
        """Curves, critical sizes and laws; None online, or if no trial is done."""
        if self.experiment.online or not len(self.done):
            return None
        return analyze(self.done, self.level, by=("learner",))

    @cached_property
    def bounds(self) -> dict[int, InformationBounds]:
        """Per context length: what no learner can do."""
        lengths = self.experiment.context_lengths
        return {T: information_bounds(self.experiment.rule(T), self.level) for T in lengths}

    @property
    def reasons(self) -> list[dict[str, Any]]:
        """How many trials of each cell were solved, and why the others were not."""
        if not len(self.done):
            return []
        cells = self.done.groupby(["learner", "context_length", "n_samples"], dropna=False)
        return [
            {
                "learner": learner,
                "context_length": int(length),
                "n_samples": None if self.experiment.online else int(size),
                **{reason: int((cell["reason"] == reason).sum()) for reason in REASONS},
            }
            for (learner, length, size), cell in cells
        ]

    @property
    def transitions(self) -> list[dict[str, Any]]:
        """Per learner and context length: how many runs have learned, and after which step."""
        if not len(self.done) or "solved_at" not in self.done:
            return []
        rows = []
        for (learner, length), runs in self.done.groupby(["learner", "context_length"]):
            steps = [int(step) for step in runs["solved_at"].dropna()]
            rows.append(
                {
                    "learner": learner,
                    "context_length": int(length),
                    "runs": len(runs),
                    "learned": len(steps),
                    "iterations": int(runs["iterations"].max()),
                    "fastest": min(steps, default=None),
                    "median": statistics.median(steps) if steps else None,
                    "slowest": max(steps, default=None),
                }
            )
        return rows

    @property
    def headline(self) -> str:
        """What was found, in one line."""
        title = self.experiment.title
        if not len(self.done):
            return f"{title}: no trial is done"
        if self.analysis is None:
            rows = self.transitions
            told = [
                f"{r['learned']} of {r['runs']} runs at T = {r['context_length']}" for r in rows
            ]
            return f"{title}, online: learned in {', '.join(told)}"
        # The longest context says most; the others stand in the table.
        longest = max(length for _, length in self.analysis.sizes)
        sizes = {key[0]: size for key, size in self.analysis.sizes.items() if key[-1] == longest}
        several = len(sizes) > 1
        told = [f"{s.text}{f' ({name})' if several else ''}" for name, s in sizes.items()]
        return f"{title} among {longest}: critical sample size {', '.join(told)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "headline": self.headline,
            "settings": self.experiment.to_dict(),
            "trials": {
                "all": self.experiment.n_trials,
                "done": len(self.done),
                "failed": len(self.trials) - len(self.done),
            },
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
            "reasons": self.reasons,
            "transitions": self.transitions,
        }

    def tables(self) -> list[Table]:
        """What people read at the end of a run."""
        tables = []
        if self.analysis is not None:
            tables = [self._success_table(), self._critical_table(), *self._law_tables()]
        elif self.transitions:
            tables = [_table_of(self.transitions, "When the runs learned", TRANSITION_COLUMNS)]
        return [table for table in tables if table.rows]

    def _success_table(self) -> Table:
        """One row per sample size, one column per learner and context length."""
        assert self.analysis is not None
        several = len(self.experiment.learners) > 1
        cells = self.analysis.success
        columns = list(dict.fromkeys(zip(cells["learner"], cells["context_length"], strict=True)))
        found = {
            (row.learner, row.context_length, row.n_samples): format_interval(
                round(row.rate, 2), (round(row.low, 2), round(row.high, 2))
            )
            for row in cells.itertuples()
        }
        names = [f"{f'{learner}, ' if several else ''}T = {T}" for learner, T in columns]
        rows = [
            (size, *(found.get((*column, size)) for column in columns))
            for size in sorted({int(each) for each in cells["n_samples"]})
        ]
        counts = sorted({int(each) for each in cells["trials"]})
        trials = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        title = f"Success rate [95 % interval], {trials} trials per cell"
        return Table(title, ("samples m", *names), tuple(rows))

    def _critical_table(self) -> Table:
        assert self.analysis is not None
        rows = []
        for (learner, length), size in self.analysis.sizes.items():
            bound, curve = self.bounds[length], self.analysis.curves.get((learner, length))
            ratio = None if size.value is None else size.value / bound.first_order
            rows.append(
                (
                    learner,
                    length,
                    size.text,
                    bound.packing,
                    round(bound.first_order, 1),
                    None if ratio is None else f"{ratio:.2f}",
                    curve
                    and format_interval(
                        round(curve.ceiling, 2),
                        (
                            round(curve.ceiling_interval.low, 2),
                            round(curve.ceiling_interval.high, 2),
                        ),
                    ),
                )
            )
        columns = (
            "learner", "T", f"m at success {self.level:g}", "no learner below",
            "first order", "m / first order", "ceiling",
        )  # fmt: skip
        return Table("Critical sample size", columns, tuple(rows))

    def _law_tables(self) -> list[Table]:
        assert self.analysis is not None
        tables = []
        for (learner,), laws in self.analysis.laws.items():
            for table in laws.__card__().tables:
                ahead = 10 * max(laws.points)
                told = laws.predict(ahead)
                rows = [
                    (*row, format_interval(value, (ends.low, ends.high)))
                    for row, (value, ends) in zip(table.rows, told.values(), strict=True)
                ]
                columns = (*table.columns, f"at T = {ahead}")
                tables.append(Table(f"{table.title} of {learner}", columns, tuple(rows)))
        return tables

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        if self.analysis is None:
            return ()
        return self.analysis.__card__().notes


def _table_of(rows: Iterable[Mapping[str, Any]], title: str, columns: Mapping[str, str]) -> Table:
    return Table(title, tuple(columns.values()), tuple(tuple(r[c] for c in columns) for r in rows))
