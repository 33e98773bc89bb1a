"""What a probe found: the analysis of its trials beside the bounds, and why trials failed."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from finetti.core.statistics import wilson_interval
from finetti.probe.analysis.analysis import Analysis, analyze
from finetti.probe.experiment import Experiment
from finetti.probe.information import InformationBounds, information_bounds
from finetti.show import Table, format_interval, format_number
from finetti.studies.outcome import DONE

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
        if self.experiment.online:
            told = [f"{r['learned']} of {r['runs']} at T = {r['context_length']}"
                    for r in self.transitions]
            return f"{self.experiment.title}, learned online: {', '.join(told) or 'no run is done'}"
        if self.analysis is None:
            return f"{self.experiment.title}: no trial is done"
        several = len(self.experiment.learners) > 1
        told = []
        for (learner, length), size in self.analysis.sizes.items():
            name = f"{learner}, " if several else ""
            told.append(f"{size.text} at {name}T = {length}")
        return f"{self.experiment.title}: critical sample size {told[0]}"
