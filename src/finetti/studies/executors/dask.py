"""Dask distributed: workers on this machine, or any cluster that has a scheduler."""

import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, final

from finetti.core.errors import FinettiError, UnsupportedError, bad_argument
from finetti.studies.executors.base import Cohort, Executor, Report, Trouble, trials_to_plain
from finetti.studies.executors.dask_task import end_children, run_cohort
from finetti.studies.executors.dask_workers import LocalWorkers
from finetti.studies.limits import Limits, usable_cores
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource

CONNECT_SECONDS = 15
GONE = "The Dask scheduler is gone. What is stored so far is safe: run again to continue."


@final
class DaskExecutor(Executor):
    """Cohorts as Dask tasks.

    Args:
        workers: start this many workers on this machine, each with its share of the threads.
        cluster: or use the scheduler at this address (``tcp://host:8786``) or in this scheduler
            file (``scheduler.json``): Slurm, Kubernetes and others through Dask's own launchers.
    """

    def __init__(self, workers: int | None = None, cluster: str | None = None) -> None:
        if (workers is None) == (cluster is None):
            raise bad_argument("workers", "DaskExecutor", "given, or `cluster` be", "both or none")
        if workers is not None and workers < 1:
            raise bad_argument("workers", "DaskExecutor", "at least 1", workers)
        self.asked = workers
        self.study = uuid.uuid4().hex
        self.cluster = cluster
        self.local: LocalWorkers | None = None
        self.client: Any = None

    def start(self, source: KindSource, limits: Limits) -> None:
        """Start the workers, or connect to the cluster."""
        super().start(source, limits)
        try:
            import distributed
        except ImportError as error:
            raise UnsupportedError(
                "Dask is not installed. Install it with pip install 'finetti[cluster]'."
            ) from error
        # Lost workers and schedulers are told in sentences of ours.
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL)
        self.news: queue.Queue[tuple[Cohort, Any]] = queue.Queue()
        self.futures: dict[Any, Cohort] = {}
        self.counted, self.count = 0.0, 1
        if self.asked is not None:
            self.local = LocalWorkers(self.asked)
            self.client = self.local.client
            return
        assert self.cluster is not None
        where: dict[str, Any] = {"address": self.cluster}
        if self.cluster.endswith(".json"):
            if not Path(self.cluster).is_file():
                raise FinettiError(f"There is no scheduler file {self.cluster}.")
            where = {"scheduler_file": self.cluster}
        try:
            self.client = distributed.Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise FinettiError(
                f"No Dask scheduler answers at {self.cluster}. Start one with `dask scheduler`, "
                "or use --workers N for this machine."
            ) from error

    @property
    def workers(self) -> int:
        """Threads of all workers: each runs one cohort at a time."""
        if self.asked is not None:
            return self.asked
        if time.monotonic() - self.counted > 2.0:
            with _scheduler_answers():
                self.count = sum(self.client.nthreads().values())
            self.counted = time.monotonic()
        return max(1, self.count)

    @property
    def streams(self) -> bool:
        """A task gives its result when it ends."""
        return False

    @property
    def activity(self) -> str | None:
        """Whether the cluster has any workers yet."""
        return None if self.workers and self.count else "waiting for workers…"

    def submit(self, cohort: Cohort) -> None:
        """Send a cohort to the scheduler, which finds a worker."""
        job = {
            "study": self.study,
            "source": self.source.to_plain(),
            "limits": self.limits.to_plain(),
            "shape": cohort.shape,
            "trials": trials_to_plain(cohort.trials),
            # Where the workers are not ours, neither are their threads; they know their number.
            "threads": None if self.asked is None else max(1, usable_cores() // self.asked),
            "workers": self.asked,
        }
        with _scheduler_answers():
            future = self.client.submit(run_cohort, job, pure=False)
        self.futures[future] = cohort
        future.add_done_callback(lambda done: self.news.put((cohort, done)))

    def reports(self, timeout: float) -> list[Report]:
        """Cohorts that ended."""
        if self.local is not None:
            self.local.replace_lost()
        if self.client.status not in ("running", "connecting"):
            raise FinettiError(GONE)
        found: list[Report] = []
        try:
            found.append(self._report(*self.news.get(timeout=timeout)))
            while True:
                found.append(self._report(*self.news.get_nowait()))
        except queue.Empty:
            return found

    def _report(self, cohort: Cohort, future: Any) -> Report:
        self.futures.pop(future, None)
        with _scheduler_answers():
            if future.status != "finished":
                return Report(cohort, trouble=_trouble(future))
            content = future.result()
        outcomes = tuple(
            Outcome(**each).made_by(content["provenance"]) for each in content["outcomes"]
        )
        trouble = content["trouble"] and Trouble(**content["trouble"])
        return Report(cohort, outcomes, trouble=trouble)

    def close(self) -> None:
        """Cancel what is under way, end the children, and the workers that are ours."""
        if self.client is None:
            return
        # A cluster that is gone, or that breaks while we leave it, has nothing left to end.
        with contextlib.suppress(OSError, TimeoutError):
            if self.client.status == "running":
                self.client.cancel(list(self.futures), force=True)
                self.client.run(end_children, self.study, on_error="ignore")
        if self.local is not None:
            self.local.close()
        else:
            self.client.close(timeout=5)
        self.client = None


@contextlib.contextmanager
def _scheduler_answers() -> Iterator[None]:
    """Turn the many ways in which a scheduler can be missed into one sentence."""
    try:
        yield
    except (OSError, TimeoutError, CancelledError) as error:
        raise FinettiError(GONE) from error


def _trouble(future: Any) -> Trouble:
    """Why a task gave no report: its worker is lost, or cannot run our tasks at all."""
    from distributed.scheduler import KilledWorker

    error = future.exception() if future.status == "error" else None
    if error is None or isinstance(error, KilledWorker):
        return Trouble("lost", f"The Dask worker was lost ({error or future.status}).")
    return Trouble("broken", f"{type(error).__name__}: {error}")
