"""Dask distributed: workers on this machine, or any cluster that has a scheduler."""

import contextlib
import logging
import queue
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

from finetti.core.errors import FinettiError, UnsupportedError, bad_argument
from finetti.studies.executors.base import Cohort, Executor, Failure, Report
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
        self.news: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.futures: dict[Any, Cohort] = {}
        self.hosts: dict[str, str] = {}  # names of machines, by their addresses
        self.counted, self.count = 0.0, 1
        if self.asked is not None:
            self.local = LocalWorkers(self.asked)
            self.client = self.local.client
            return
        assert self.cluster is not None
        where = _scheduler(self.cluster)
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
            "source": asdict(self.source),
            "limits": asdict(self.limits),
            "shape": cohort.shape,
            "trials": [vars(trial) for trial in cohort.trials],
            # Where the workers are not ours, neither are their threads; they know their number.
            "threads": None if self.asked is None else max(1, usable_cores() // self.asked),
            "workers": self.asked,
        }
        with _scheduler_answers():
            future = self.client.submit(run_cohort, job, pure=False)
        self.futures[future] = cohort
        self.client.loop.add_callback(_fetch, self.client, future, self.news)

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

    def _report(self, future: Any, content: Any) -> Report:
        from distributed.comm.addressing import get_address_host

        cohort = self.futures.pop(future)
        if isinstance(content, Exception):
            return Report(cohort, failure=self._failure(content, future.status == "error"))
        if self.local is not None and content["outcomes"]:
            self.local.restarts = 0
        self.hosts[get_address_host(content["address"])] = content["host"]
        outcomes = tuple(
            Outcome(**each).made_by(content["provenance"]) for each in content["outcomes"]
        )
        failure = content["failure"] and Failure(**content["failure"])
        return Report(cohort, outcomes, failure=failure)

    def _failure(self, error: Exception, raised: bool) -> Failure:
        """Why a task gave no report: its worker is lost, or cannot run our tasks at all.

        ``raised``: the error is that of the task, not of the way to its result.
        """
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            worker = error.last_worker
            # The name of its machine if it has told that, else the address by which Dask knows it.
            unnamed = worker.host if self.local is None else socket.gethostname()
            host = self.hosts.get(worker.host, unnamed)
            message = f"The Dask workers that ran it were lost, the last one on {host}."
            return Failure("lost", message, str(error), provenance={"host": host})
        text = f"{type(error).__name__}: {error}"
        if not raised or isinstance(error, CancelledError):
            return Failure("lost", "The Dask worker was lost.", text)
        return Failure("broken", text)

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


async def _fetch(client: Any, future: Any, news: "queue.Queue[tuple[Any, Any]]") -> None:
    """Wait for a result in the thread of the client.

    A result is lost with the worker that holds it. Dask computes it again, as soon as there is a
    worker; whoever waited for that in the thread of the executor could start none.
    """
    try:
        news.put((future, await client.gather(future, asynchronous=True)))
    except Exception as error:
        news.put((future, error))


def _scheduler(cluster: str) -> dict[str, Any]:
    """Where the scheduler is, as Dask's client wants to be told."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import backends

    if cluster.endswith(".json"):
        if not Path(cluster).is_file():
            raise FinettiError(f"There is no scheduler file {cluster}.")
        return {"scheduler_file": cluster}
    # Dask would look for a while, and leave a client behind that cannot be closed.
    try:
        scheme, rest = parse_address(cluster)
        if scheme in ("tcp", "tls"):
            parse_host_port(rest)
    except ValueError:
        scheme = ""
    if scheme not in backends:
        raise bad_argument("cluster", "Study.run", "tcp://host:port or scheduler.json", cluster)
    return {"address": cluster}


@contextlib.contextmanager
def _scheduler_answers() -> Iterator[None]:
    """Turn the many ways in which a scheduler can be missed into one sentence."""
    try:
        yield
    except (OSError, TimeoutError, CancelledError) as error:
        raise FinettiError(GONE) from error
