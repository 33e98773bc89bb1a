"""What a Dask worker does with a cohort: it hands it to a child process and watches that.

So a trial that hangs, crashes or eats memory ends the child and never the Dask worker.
"""

import atexit
import threading
from typing import Any

from finetti.studies.executors.base import Cohort, trials_from_plain
from finetti.studies.executors.process import ChildProcess
from finetti.studies.limits import Limits
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource

# By study and thread of the worker: studies that share a cluster do not share children.
_CHILDREN: dict[tuple[str, int], ChildProcess] = {}


def run_cohort(job: dict[str, Any]) -> dict[str, Any]:
    """Run the cohort of ``job`` to its end. Plain data in, plain data out."""
    child = _child(job)
    child.begin(Cohort(job["shape"], trials_from_plain(job["trials"])))
    outcomes: list[Outcome] = []
    while True:
        report = child.poll(timeout=1.0)
        if report is None:
            continue
        outcomes += report.outcomes
        if report.ended:
            trouble = report.trouble
            return {
                "outcomes": [outcome.to_plain() for outcome in outcomes],
                "provenance": outcomes[0].provenance if outcomes else {},
                "trouble": None if trouble is None else vars(trouble),
            }


def _child(job: dict[str, Any]) -> ChildProcess:
    place = (job["study"], threading.get_ident())
    if place not in _CHILDREN:
        source, limits = KindSource.from_plain(job["source"]), Limits(**job["limits"])
        workers = job["workers"] or _threads_of_worker()
        _CHILDREN[place] = ChildProcess(source, limits, job["threads"], workers)
    return _CHILDREN[place]


def _threads_of_worker() -> int:
    from distributed import get_worker

    return get_worker().state.nthreads


def end_children(study: str | None = None) -> None:
    """End the children of a study on this worker, or all of them when the worker itself ends."""
    for place in [each for each in _CHILDREN if study in (None, each[0])]:
        _CHILDREN.pop(place).end()


atexit.register(end_children)
