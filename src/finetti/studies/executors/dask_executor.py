"""Dask distributed: any cluster that has a scheduler.

A worker hands a task to a child process and watches that, so that a trial which hangs, crashes or
eats memory ends the child and never the Dask worker.
"""

import atexit
import contextlib
import logging
import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from finetti.core.errors import FinettiError, UnsupportedError, bad_argument
from finetti.core.files import read_json
from finetti.studies.executors.child_process import ChildProcess, poll_children
from finetti.studies.executors.executor import Executor, Failure, FailureReason, Report, Task
from finetti.studies.executors.resource_limits import MEMORY_FRACTION, Limits
from finetti.studies.source_code import SourceSnapshot

CONNECT_SECONDS = 15
COUNT_SECONDS = 2.0  # between two looks at the workers of the cluster
REAP_SECONDS = 30.0  # between two looks at children that nobody uses
ALIVE = ("running", "connecting")  # states of a client
GONE = "The Dask scheduler is gone. What is stored so far is safe: run again to resume."


# By study and thread of the worker: studies that share a cluster do not share children.
_children: dict[tuple[str, int], ChildProcess] = {}
_reaping = threading.Lock()  # held by the thread that ends children nobody uses


def run_task(study: str, source: SourceSnapshot, limits: Limits, task: Task) -> Report:
    """Run a task to its end."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    place = study, threading.get_ident()
    # The workers are not ours, and neither are their threads.
    child = _children.setdefault(place, ChildProcess(None))
    if _reaping.acquire(blocking=False):
        threading.Thread(target=reap_children, daemon=True).start()
    memory = memory_share(worker) if limits.memory is None else None
    child.use(source, limits.time, memory or limits.bytes_for(worker.state.nthreads))
    child.submit(task)
    while True:
        reports = poll_children([child], timeout=1.0)
        state = worker.state.tasks.get(key)
        # When the coordinator is killed, its scheduler lets go of the task.
        if state is None or state.state == "cancelled":
            child.end()
            raise CancelledError("Nobody waits for this task any more.")
        if reports:
            return reports[0]


def reap_children() -> None:
    """Forget children that have ended: idle ones of a coordinator that was killed leave so."""
    while True:
        time.sleep(REAP_SECONDS)
        for place, child in list(_children.items()):
            if not child.tasks and (child.process is None or child.process.poll() is not None):
                _children.pop(place, None)
                child.end()


def memory_share(worker: Any) -> float | None:
    """Bytes for one child of a Dask worker, which knows its own share of the node, if it does."""
    limit = worker.memory_manager.memory_limit
    return MEMORY_FRACTION * limit / worker.state.nthreads if limit else None


def host_name() -> str:
    """The name of the machine of a worker, asked there."""
    return socket.gethostname()


def end_children(study: str | None = None) -> None:
    """End the children of a study on this worker, or all of them when the worker itself ends."""
    for place in [each for each in _children if study in (None, each[0])]:
        _children.pop(place).end()


atexit.register(end_children)


@final
class DaskExecutor(Executor):
    """Tasks as those of Dask, whose results come when they end.

    Args:
        cluster: the address of a scheduler (``tcp://host:8786``), or a scheduler file
            (``scheduler.json``): Slurm, Kubernetes and others through Dask's own launchers.
    """

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self.study = uuid.uuid4().hex
        self.cluster = cluster
        self.client: Any = None
        self.futures: dict[Any, Task] = {}
        self.levels: dict[logging.Logger, int] = {}  # of Dask's loggers, as they were

    def use(self, source: SourceSnapshot, limits: Limits) -> None:
        """Connect to the cluster, if this has not been done yet."""
        self.source, self.limits = source, limits
        if self.client is None:
            self._connect()
        self._count()

    def _connect(self) -> None:
        try:
            import distributed
        except ImportError as error:
            raise UnsupportedError(
                "Dask is not installed. Install it with pip install 'finetti[cluster]'."
            ) from error
        where = _scheduler(self.cluster)
        # Lost workers and schedulers are told in sentences of ours.
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] == "distributed":
                logger = logging.getLogger(name)
                self.levels.setdefault(logger, logger.level)
                logger.setLevel(logging.CRITICAL)
        self.news: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.hosts: dict[str, str] = {}  # names of machines, by their addresses
        try:
            self.client = distributed.Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            self._restore_loggers()
            raise FinettiError(
                f"No Dask scheduler answers at {self.cluster}. Start one with `dask scheduler`, "
                "or use worker processes on this machine instead."
            ) from error

    def _restore_loggers(self) -> None:
        while self.levels:
            logger, level = self.levels.popitem()
            logger.setLevel(level)

    def _count(self) -> None:
        """Look how many threads the workers have: each runs one task at a time."""
        from distributed.comm.addressing import get_address_host

        with self._scheduler_answers():
            threads = self.client.nthreads()
            # Asked before it runs anything: a worker that is lost cannot say where it was.
            new = [each for each in threads if get_address_host(each) not in self.hosts]
            names = self.client.run(host_name, workers=new, on_error="ignore") if new else {}
        self.hosts |= {get_address_host(each): name for each, name in names.items()}
        count = sum(threads.values())
        self.workers = count  # none yet: then nothing is sent, and its size not decided
        self.activity = None if count else "waiting for workers…"
        self.counted = time.monotonic()

    def submit(self, task: Task) -> None:
        """Send a task to the scheduler, which finds a worker."""
        with self._scheduler_answers():
            job = self.study, self.source, self.limits, task
            future = self.client.submit(run_task, *job, pure=False)
        self.futures[future] = task
        self.client.loop.add_callback(_fetch, self.client, future, self.news)

    @contextlib.contextmanager
    def _scheduler_answers(self) -> Iterator[None]:
        """Turn the many ways in which a scheduler can be missed into one sentence."""
        try:
            yield
        except Exception as error:
            if isinstance(error, OSError | CancelledError) or self.client.status not in ALIVE:
                raise FinettiError(GONE) from error
            raise

    def reports(self, timeout: float) -> list[Report]:
        """Return the reports of tasks that ended."""
        if self.client.status not in ALIVE:
            raise FinettiError(GONE)
        if time.monotonic() - self.counted > COUNT_SECONDS:
            self._count()
        found: list[Report] = []
        with contextlib.suppress(queue.Empty):
            found += self._report(*self.news.get(timeout=timeout))
            while True:
                found += self._report(*self.news.get_nowait())
        return found

    def _report(self, future: Any, content: Any) -> list[Report]:
        task = self.futures.pop(future, None)
        if task is None:
            return []  # it was cancelled
        if not isinstance(content, Exception):
            return [replace(content, task=task)]
        report = self._failed(task, content, future.status == "error")
        if report.failure and report.failure.reason is FailureReason.LOST:
            self._count()  # a scheduler that is gone takes all results along, and is no lost worker
        return [report]

    def _failed(self, task: Task, error: Exception, raised: bool) -> Report:
        """Why a task gave no report: its worker is lost, or cannot run our tasks at all.

        ``raised``: the error is that of the task, not of the way to its result.
        """
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            address = error.last_worker.host
            host = self.hosts.get(address, address)
            message = f"The Dask workers that ran it were lost, the last one on {host}."
            failure = Failure(FailureReason.LOST, message, str(error))
            return Report(task, (), failure, {"host": host})
        text = f"{type(error).__name__}: {error}"
        reason, message, details = FailureReason.LOST, "The Dask worker was lost.", text
        if raised and not isinstance(error, CancelledError):
            reason, message, details = FailureReason.BROKEN, text, None
        return Report(task, (), Failure(reason, message, details))

    def cancel(self) -> None:
        """Cancel what is under way, and end the children that work on it."""
        if self.client is None or not self.futures:
            return
        futures = list(self.futures)
        self.futures.clear()
        # A cluster that is gone, or that breaks while we leave it, has nothing left to end.
        with contextlib.suppress(OSError, TimeoutError):
            if self.client.status == "running":
                self.client.cancel(futures, force=True)
                self.client.run(end_children, self.study, on_error="ignore")

    def close(self) -> None:
        """Cancel what is under way, end the children, and leave the cluster."""
        if self.client is None:
            return
        self.cancel()
        with contextlib.suppress(OSError, TimeoutError):
            if self.client.status == "running":
                self.client.run(end_children, self.study, on_error="ignore")
        self.client.close(timeout=5)
        self.client = None
        self._restore_loggers()


async def _fetch(client: Any, future: Any, news: "queue.Queue[tuple[Any, Any]]") -> None:
    """Wait for a result in the thread of the client.

    A result is lost with the worker that holds it, and Dask computes it again as soon as there is
    another one: nothing that the thread of the executor should wait for.
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
        if not os.path.lexists(cluster):
            raise FinettiError(
                f"There is no scheduler file {cluster}. Start one with "
                f"`dask scheduler --scheduler-file {cluster}`."
            )
        # Dask would look at a damaged file for a while, and print tracebacks.
        address = read_json(Path(cluster)).get("address")
        if not isinstance(address, str):
            raise FinettiError(
                f"The scheduler file {cluster} names no address. Start a scheduler that writes it: "
                f"`dask scheduler --scheduler-file {cluster}`."
            )
        cluster = address
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
