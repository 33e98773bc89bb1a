"""``finetti risk`` in Python."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from finetti.risk.risk_experiment import N_SAMPLES, STORE, TRIALS, RiskExperiment
from finetti.risk.risk_page import RiskResult
from finetti.risk.risk_trial import RiskParameters
from finetti.studies.executors.executor import Executor
from finetti.studies.experiment import check_keywords, run_experiment
from finetti.studies.study import tell_on_stderr


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
) -> RiskResult:
    """The excess risk of a network against n, taken apart: ``finetti risk`` in Python.

    Trials that the store has are not run again. The result prints its table, writes its page
    (``result.write_page("risk")``) and has all numbers (``result.to_dict()``, ``result.points``).
    For a network and a world of your own, and one n, see `decompose`.

    Args:
        world, world_options: a name of `finetti.latent.worlds`, and changes to its defaults.
        network: a name, ``module:name`` or ``./file.py:name``.
        n_samples, trials, store, seed, time_limit, memory_limit: see `RiskExperiment`.
        executor, workers, cluster, retry_failed, quiet, tell: how it runs; see `run_experiment`.
        fixed: further parameters of `RiskTrial`: context_length, restarts, iterations,
            learning_rate, class_samples, test_samples, polish.

    >>> from tempfile import mkdtemp
    >>> sizes = {"class_samples": 12, "test_samples": 12, "iterations": 10, "context_length": 3}
    >>> where = {"store": f"{mkdtemp()}/trials.sqlite", "executor": "inline", "quiet": True}
    >>> found = decompose_risk("beta-bernoulli", n_samples=[8], trials=1, **sizes, **where)
    >>> [(point.n_samples, point.trials) for point in found.points]
    [(8, 1)]
    """
    check_keywords(decompose_risk, fixed, RiskParameters)
    given = {"world": world, "network": network, **fixed}
    given |= {"world_options": dict(world_options)} if world_options else {}
    sizes = tuple(n_samples)
    experiment = RiskExperiment(sizes, trials, store, given, seed, time_limit, memory_limit)
    how = {"workers": workers, "cluster": cluster, "retry_failed": retry_failed}
    return run_experiment(experiment, RiskResult, executor, **how, quiet=quiet, tell=tell)
