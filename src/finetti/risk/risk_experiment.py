"""Excess risk against the number of sequences, as a study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from finetti.core.errors import InputError
from finetti.risk.risk_trial import RiskParameters, RiskTrial
from finetti.studies.executors.resource_limits import Limits
from finetti.studies.experiment import Experiment
from finetti.studies.trial_kinds import ParameterError

STORE = "risk/trials.sqlite"
N_SAMPLES, TRIALS = (50, 200, 800), 2


@dataclass(frozen=True)
class RiskExperiment(Experiment):
    """Description of a study: which network in which world, with how many sequences, how often.

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

    kind: ClassVar[str] = "finetti.risk.risk_trial:RiskTrial"

    n_samples: Sequence[int] = N_SAMPLES
    trials: int = TRIALS
    store: str | Path = STORE
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

    def parts(self) -> dict[str, tuple[dict[str, list[Any]], dict[str, Any]]]:
        """Return one study over the sample sizes."""
        return {"": ({"n_samples": list(self.n_samples)}, dict(self.fixed))}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the parameters that have their defaults."""
        settings = self.settings.model_dump(exclude={"n_samples"})
        return {**settings, **super().to_dict()}
