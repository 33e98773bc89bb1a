"""What a Dask worker does with a cohort: it hands it to a child process and watches that.

So a trial that hangs, crashes or eats memory ends the child and never the Dask worker.
"""

import atexit
import socket
import threading
from concurrent.futures import CancelledError
from typing import Any

from finetti.studies.executors.base import Cohort
from finetti.studies.executors.process import ChildProcess
from finetti.studies.limits import Limits
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource
from finetti.studies.trial import Trial

# By study and thread of the worker: studies that share a cluster do not share children.
_CHILDREN: dict[tuple[str, int], ChildProcess] = {}


def run_cohort(job: dict[str, Any]) -> dict[str, Any]:
    """Run the cohort of ``job`` to its end. Plain data in, plain data out."""
    child = _child(job)
    child.begin(Cohort(job["shape"], tuple(Trial(**each) for each in job["trials"])))
    outcomes: list[Outcome] = []
    worker = _worker()
    task = worker.get_current_task()
    while True:
        report = child.poll(timeout=1.0)
        if not _is_wanted(worker, task):
            child.end()
            raise CancelledError("Nobody waits for this cohort any more.")
        if report is None:
            continue
        outcomes += report.outcomes
        if report.ended:
            failure = report.failure
            return {
                "outcomes": [outcome.to_plain() for outcome in outcomes],
                "provenance": outcomes[0].provenance if outcomes else {},
                "failure": None if failure is None else vars(failure),
                "address": worker.address,
                "host": socket.gethostname(),
            }


def _child(job: dict[str, Any]) -> ChildProcess:
    place = (job["study"], threading.get_ident())
    if place not in _CHILDREN:
        source, limits = KindSource(**job["source"]), Limits(**job["limits"])
        workers = job["workers"] or _worker().state.nthreads
        _CHILDREN[place] = ChildProcess(source, limits, job["threads"], workers)
    return _CHILDREN[place]


def _is_wanted(worker: Any, task: str) -> bool:
    """Whether the coordinator still waits; when it is killed, its scheduler lets go of the task."""
    state = worker.state.tasks.get(task)
    return state is not None and state.state != "cancelled"


def _worker() -> Any:
    from distributed import get_worker

    return get_worker()


def end_children(study: str | None = None) -> None:
    """End the children of a study on this worker, or all of them when the worker itself ends."""
    for place in [each for each in _CHILDREN if study in (None, each[0])]:
        _CHILDREN.pop(place).end()


atexit.register(end_children)
