"""The child process: runs the tasks that it receives, and sends what becomes of them.

Started by ``executors.child_process`` as the first of a group of processes. A guard in that group
ends all of it when the process above is gone, however busy the trial is and whatever it has
started; only what a trial puts into a group of its own lives on.
"""

import faulthandler
import os
import pickle
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from finetti.core.errors import InputError
from finetti.core.process_tuning import relax_gc
from finetti.core.provenance import jax_device, software
from finetti.studies.executors.executor import Failure, FailureReason
from finetti.studies.source_code import WORKER_VARIABLE, SourceSnapshot, Strays, using_sources
from finetti.studies.trial_kinds import CohortKind, TrialKind, load_kind
from finetti.studies.trials import Outcome, Trial, failed_by, outcome_of

IDLE_SECONDS = 600.0
GUARD_MILLISECONDS = 1000  # between two looks at the process above

# The outcomes of all trials of a task, or why there are none; and where it ran.
Reply = tuple[tuple[Outcome, ...], Failure | None, dict[str, Any]]


class Worker:
    """A process that has loaded the kind of ``source``: the same code in every executor.

    ``place`` is what is sure of where its trials run: a device only once JAX has told it.
    """

    def __init__(self, source: SourceSnapshot) -> None:
        self.source = source
        with using_sources(source):
            self.kind = load_kind(source)
        self.strays = Strays(source)
        self.place = {**software(), "host": socket.gethostname()}

    def run(self, trials: Sequence[Trial]) -> Reply:
        """The outcome of each trial, in order; or a failure of all, if their cohort raised.

        Each gets parameters of its own, of the types that the kind says. A trial of a ``TrialKind``
        that raises is a failed outcome, and so is one that loads code which its id does not know
        (``strays``). A ``CohortKind`` that raises does so for the whole cohort, which the
        coordinator splits.
        """
        outcomes, failure = (), None
        try:
            with using_sources(self.source):
                if isinstance(self.kind, CohortKind):
                    outcomes = self._together(self.kind, trials)
                else:
                    outcomes = tuple(map(self._alone, trials))
        except (Exception, SystemExit) as error:
            text, details = f"{type(error).__name__}: {error}", traceback.format_exc()
            failure = Failure(FailureReason.RAISED, text, details)
        # After the trials, which may have chosen a device. JAX's is that of later ones, too.
        if device := jax_device():
            self.place["device"] = device
        return outcomes, failure, dict(self.place)

    def _together(self, kind: CohortKind, trials: Sequence[Trial]) -> tuple[Outcome, ...]:
        start = time.perf_counter()
        given = [replace(trial, params=kind.deliver(trial.params)) for trial in trials]
        results = list(kind.run_cohort(given))
        self.strays.refuse()
        if len(results) != len(trials):
            raise InputError(
                f"run_cohort returned {len(results)} results for {len(trials)} trials. "
                "Return one for each, in order."
            )
        seconds = (time.perf_counter() - start) / len(trials)
        pairs = zip(trials, results, strict=True)
        return tuple(_checked(trial, result, seconds) for trial, result in pairs)

    def _alone(self, trial: Trial) -> Outcome:
        assert isinstance(self.kind, TrialKind)
        start = time.perf_counter()
        try:
            result = self.kind.run(self.kind.deliver(trial.params), trial.seed)
            self.strays.refuse()
        except (Exception, SystemExit) as error:
            return failed_by(trial.id, error, time.perf_counter() - start)
        return _checked(trial, result, time.perf_counter() - start)


def _checked(trial: Trial, result: object, seconds: float) -> Outcome:
    try:
        return outcome_of(trial.id, result, seconds)
    except Exception as error:
        # Not ours alone: what is computed when it is looked at may raise only now.
        return failed_by(trial.id, error, seconds)


def serve() -> None:
    """Load the kind that arrives first, then run the tasks that follow: one reply to each."""
    guard()
    relax_gc()
    faulthandler.enable()
    os.environ[WORKER_VARIABLE] = "1"
    above, owner = Connection(os.dup(0)), os.getpid()
    # Trials that read from standard input find it empty.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        worker = Worker(above.recv())
    except (Exception, SystemExit) as error:
        text, details = f"{type(error).__name__}: {error}", traceback.format_exc()
        above.send(((), Failure(FailureReason.BROKEN, text, details), {}))
        return
    above.send(((), None, worker.place))
    inbox = select.poll()
    inbox.register(above.fileno(), select.POLLIN)
    while inbox.poll(1000 * IDLE_SECONDS):  # idle for longer, it leaves: another can be started
        reply = worker.run(above.recv())
        if os.getpid() != owner:
            os._exit(1)  # a copy of this process that a trial has forked and not ended
        above.send_bytes(pickle.dumps(reply))
        sys.stdout.flush()


def guard() -> None:
    """Start a process that ends this group when the process above, or this one, is gone.

    The process above holds the other end of standard input, which the kernel closes even after
    kill -9. A thread could not do this: a trial may hold the interpreter's lock for as long as it
    likes. Call it before there are any threads.
    """
    above = os.getppid()
    ours, theirs = os.pipe()
    middle = os.fork()
    if middle:
        os.close(ours)
        # `theirs` stays open for as long as this process lives.
        os.waitpid(middle, 0)
        return
    # Twice, so that a trial which waits for its children does not wait for the guard.
    if os.fork():
        os._exit(0)
    os.close(theirs)
    watch = select.poll()
    # Without an event to wait for: only that the other end was closed is told, and nothing is read.
    watch.register(0, 0)
    watch.register(ours, 0)
    # A copy that the process above has forked may keep the other end open: so look after it, too.
    while not watch.poll(GUARD_MILLISECONDS) and _lives(above):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there, and somebody else's
    return True
