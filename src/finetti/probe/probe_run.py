"""``finetti probe`` in Python."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from finetti.probe.probe_experiment import STORE, ProbeExperiment
from finetti.probe.probe_page import ProbeResult
from finetti.probe.probe_trial import ProbeParameters
from finetti.studies.executors.executor import Executor
from finetti.studies.experiment import check_keywords, run_experiment
from finetti.studies.study import tell_on_stderr


def run_probe(
    function: str = "and",
    sparsity: int | None = None,
    context_lengths: Sequence[int] = (),
    n_samples: Sequence[int] = (),
    trials: int = 0,
    learners: Sequence[str] = (),
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    search: bool = False,
    level: float = 0.5,
    online: bool = False,
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
) -> ProbeResult:
    """How many samples learners need to find a hidden rule: ``finetti probe`` in Python.

    Trials that the store has are not run again. The result prints its tables, writes its page
    (``result.write_page("probe")``) and has all numbers (``result.to_dict()``).

    Args:
        function, sparsity, context_lengths, n_samples, trials, learners, options: what is asked;
            see `ProbeExperiment`.
        search, level, online, store, seed, time_limit, memory_limit: see `ProbeExperiment`, too.
        executor, workers, cluster, retry_failed, quiet, tell: how it runs; see `run_experiment`.
        fixed: further parameters of `ProbeTrial`: label_noise, bit_probability, iterations,
            success_accuracy, ambiguous, batch_size, trace.

    >>> from tempfile import mkdtemp
    >>> small = {"context_lengths": (10, 20), "n_samples": (5, 40), "trials": 4, "quiet": True}
    >>> store = f"{mkdtemp()}/trials.sqlite"
    >>> found = run_probe("and", 2, learners=["tree"], store=store, executor="inline", **small)
    >>> found.counts
    {'all': 16, 'done': 16, 'failed': 0}
    """
    check_keywords(run_probe, fixed, ProbeParameters)
    experiment = ProbeExperiment(
        function=function,
        sparsity=sparsity,
        context_lengths=context_lengths,
        n_samples=n_samples,
        trials=trials,
        store=store,
        learners=learners,
        options=options or {},
        fixed=fixed,
        seed=seed,
        time_limit=time_limit,
        memory_limit=memory_limit,
        search=search,
        level=level,
        online=online,
    )
    how = {"workers": workers, "cluster": cluster, "retry_failed": retry_failed}
    return run_experiment(experiment, ProbeResult, executor, **how, quiet=quiet, tell=tell)
