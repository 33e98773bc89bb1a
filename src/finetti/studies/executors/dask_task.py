"""What a Dask worker does with a cohort: it hands it to a child process and watches that.

So a trial that hangs, crashes or eats memory ends the child and never the Dask worker.
"""

import atexit
import socket
import threading
from concurrent.futures import CancelledError
from dataclasses import replace

from finetti.studies.executors.base import Cohort, Report
from finetti.studies.executors.process import ChildProcess, poll_children
from finetti.studies.limits import Limits
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource

# By study and thread of the worker: studies that share a cluster do not share children.
_CHILDREN: dict[tuple[str, int], ChildProcess] = {}


def run_cohort(
    study: str, source: KindSource, limits: Limits, cohort: Cohort
) -> tuple[Report, str, str]:
    """Run a cohort to its end: the report, the address of the worker, and the name of its host."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.get_current_task()
    place = study, threading.get_ident()
    if place not in _CHILDREN:
        # The workers are not ours, and neither are their threads.
        _CHILDREN[place] = ChildProcess(source, limits, None, worker.state.nthreads)
    child = _CHILDREN[place]
    child.begin(cohort)
    outcomes: list[Outcome] = []
    while True:
        reports = poll_children([child], timeout=1.0)
        state = worker.state.tasks.get(task)
        # When the coordinator is killed, its scheduler lets go of the task.
        if state is None or state.state == "cancelled":
            child.end()
            raise CancelledError("Nobody waits for this cohort any more.")
        for report in reports:
            outcomes += report.outcomes
            if report.ended:
                whole = replace(report, outcomes=tuple(outcomes))
                return whole, worker.address, socket.gethostname()


def end_children(study: str | None = None) -> None:
    """End the children of a study on this worker, or all of them when the worker itself ends."""
    for place in [each for each in _CHILDREN if study in (None, each[0])]:
        _CHILDREN.pop(place).end()


atexit.register(end_children)
