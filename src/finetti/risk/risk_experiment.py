"""Excess risk against the number of sequences, as a study."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from finetti.core.errors import InputError
from finetti.risk.risk_trial import RiskParameters, RiskTrial
from finetti.studies.executors.executor import Executor
from finetti.studies.executors.resource_limits import Limits
from finetti.studies.experiment import Experiment
from finetti.studies.study import tell_on_stderr
from finetti.studies.trial_kinds import ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from finetti.risk.risk_result import RiskResult

STORE = "risk/trials.sqlite"
N_SAMPLES, TRIALS = (50, 200, 800), 2


@dataclass(frozen=True)
class RiskExperiment(Experiment["RiskResult"]):
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
        """One study over the sample sizes."""
        return {"": ({"n_samples": list(self.n_samples)}, dict(self.fixed))}

    def result(self, table: "pd.DataFrame", **found: Any) -> "RiskResult":
        """What the trials of ``table`` say."""
        from finetti.risk.risk_result import RiskResult

        return RiskResult(self, table, **found)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the parameters that have their defaults."""
        settings = self.settings.model_dump(exclude={"n_samples"})
        return {**settings, **super().to_dict()}


def decompose_risk(
    world: str = "linear-gaussian",
    network: str = "attention",
    n_samples: Sequence[int] = N_SAMPLES,
    trials: int = TRIALS,
    *,
    world_options: Mapping[str, Any] | None = None,
    store: str | Path = STORE,
    seed: int = 0,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    executor: str | Executor = "local",
    workers: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
    tell: Callable[[str], None] = tell_on_stderr,
    **fixed: Any,
) -> "RiskResult":
    """The excess risk of a network against n, taken apart: ``finetti risk`` in Python.

    Trials that the store has are not run again. The result prints its table, writes its page
    (``result.write_page("risk")``) and has all numbers (``result.to_dict()``, ``result.points``).
    For a network and a world of your own, and one n, see `decompose`.

    Args:
        world, world_options: a name of `finetti.latent.worlds`, and changes to its defaults.
        network: a name, ``module:name`` or ``./file.py:name``.
        n_samples, trials, store, seed, time_limit, memory_limit: see `RiskExperiment`.
        executor, workers, cluster, retry_failed, quiet, tell: how it runs; see `Experiment.run`.
        fixed: further parameters of `RiskTrial`: context_length, restarts, iterations,
            learning_rate, class_samples, test_samples, polish.

    >>> from tempfile import mkdtemp
    >>> sizes = {"class_samples": 12, "test_samples": 12, "iterations": 10, "context_length": 3}
    >>> where = {"store": f"{mkdtemp()}/trials.sqlite", "executor": "inline", "quiet": True}
    >>> found = decompose_risk("beta-bernoulli", n_samples=[8], trials=1, **sizes, **where)
    >>> [(point.n_samples, point.trials) for point in found.points]
    [(8, 1)]
    """
    given = {"world": world, "network": network, **fixed}
    given |= {"world_options": dict(world_options)} if world_options else {}
    sizes = tuple(n_samples)
    experiment = RiskExperiment(sizes, trials, store, given, seed, time_limit, memory_limit)
    how = {"workers": workers, "cluster": cluster, "retry_failed": retry_failed}
    return experiment.run(executor, **how, quiet=quiet, tell=tell)
