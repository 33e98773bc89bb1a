"""Excess risk against the number of sequences, as a study."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError
from finetti.risk.trial import RiskParameters, RiskTrial
from finetti.studies.estimate import RunEstimate, time_pilot
from finetti.studies.executors.base import Executor
from finetti.studies.limits import Limits
from finetti.studies.parameters import ParameterError
from finetti.studies.study import Study

if TYPE_CHECKING:
    import pandas as pd

KIND = "finetti.risk.trial:RiskTrial"
PILOT_STEPS, PILOT_POLISH = 100, 10  # of a trial that is only timed


@dataclass(frozen=True)
class RiskExperiment:
    """What is asked: which network in which world, with how many sequences, how often.

    Args:
        n_samples: n, ascending.
        trials: per n.
        store: the file of the results.
        fixed: parameters of `RiskTrial`, the same for all trials.
        seed: all randomness follows from it.
        time_limit, memory_limit: seconds per trial, gigabytes per worker; what takes more fails.

    >>> RiskExperiment((100, 1000), 3, "trials.sqlite", {"world": "beta-bernoulli"}).n_trials
    6
    """

    n_samples: tuple[int, ...]
    trials: int
    store: str | Path
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    time_limit: float | None = None
    memory_limit: float | None = None

    def __post_init__(self) -> None:
        if not self.n_samples:
            raise InputError("A study of the excess risk needs at least one sample size.")
        Limits(self.time_limit, self.memory_limit)  # refuses what is none
        try:
            RiskTrial().resolve({"n_samples": self.n_samples[-1], **self.fixed})
        except ParameterError as error:
            raise InputError(f"`{error.parameter}` {error}.") from error

    @property
    def settings(self) -> RiskParameters:
        """The parameters of the trials with the largest sample."""
        return RiskParameters(n_samples=self.n_samples[-1], **self.fixed)

    @property
    def title(self) -> str:
        """Network and world in words."""
        return f"{self.settings.network} in {self.settings.world}"

    @property
    def n_trials(self) -> int:
        """Of all sample sizes together."""
        return len(self.n_samples) * self.trials

    def study(self) -> Study:
        """The trials."""
        return Study(
            KIND,
            store=self.store,
            name=self.title,
            grid={"n_samples": list(self.n_samples)},
            fixed=dict(self.fixed),
            trials=self.trials,
            seed=self.seed,
            seed_by="replicate",
            time_limit=self.time_limit,
            memory_limit=self.memory_limit,
        )

    def table(self) -> "pd.DataFrame":
        """All trials that are stored, with their details."""
        return self.study().table(details=True)

    def _work(self, n_samples: int) -> float:
        """What a trial costs, up to a factor: sequences that gradients were taken of."""
        given = self.settings
        large = given.class_samples or max(4 * n_samples, 4096)
        # The polish is in float64, which takes twice as long.
        polished = n_samples + (given.restarts + 1) * large
        return given.restarts * given.iterations * n_samples + 2 * given.polish * polished

    def estimate(self, executor: Executor, workers: int) -> RunEstimate:
        """How long what is left will take: from stored trials, or from a short pilot."""
        table = self.table()
        stored = [int(n) for n in table["n_samples"]] if len(table) else []
        left = self.trials * sum(map(self._work, self.n_samples)) - sum(map(self._work, stored))
        pending = self.n_trials - len(stored)
        pilot, cut, seconds = 0, False, 0.0
        if stored:
            rate = math.fsum(table["seconds"]) / sum(map(self._work, stored))
            seconds = rate * left / workers
        elif pending:
            seconds, pilot, cut = self._pilot(executor, workers, left)
        counts = self.n_trials, len(stored), pending, pending
        return RunEstimate(self.title, *counts, seconds, cut, workers, pilot, 0)

    def _pilot(self, executor: Executor, workers: int, left: float) -> tuple[float, int, bool]:
        """A few steps with the largest sample, two times: compiled programs are slow at first."""
        given = self.settings
        few = {
            "iterations": min(given.iterations, PILOT_STEPS),
            "polish": min(given.polish, PILOT_POLISH),
            "restarts": 1,
        }
        short = replace(self, n_samples=self.n_samples[-1:], trials=1, fixed={**self.fixed, **few})
        study = short.study()
        plan = study.plan
        todo = list(plan.places)
        found = time_pilot(plan, todo, list(plan.cohorts(todo)), executor, study.limits())
        if not found.timed:
            return found.longest, 0, True
        rate = found.seconds_per_trial / short._work(self.n_samples[-1])
        once = found.startup + found.seconds_to_compile * len(self.n_samples)
        return once + rate * left / workers, len(found.timed), False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        settings = self.settings.model_dump(exclude={"n_samples"})
        return {
            **settings,
            "n_samples": list(self.n_samples),
            "trials": self.trials,
            "seed": self.seed,
            "time_limit": self.time_limit,
            "memory_limit": self.memory_limit,
            "store": str(self.store),
        }
