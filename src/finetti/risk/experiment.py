"""Excess risk against the number of sequences, as a study."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError
from finetti.risk.risk_trial import RiskParameters, RiskTrial
from finetti.studies.executors.resource_limits import Limits
from finetti.studies.study import Study
from finetti.studies.trial_kinds import ParameterError

if TYPE_CHECKING:
    import pandas as pd

KIND = "finetti.risk.risk_trial:RiskTrial"


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
