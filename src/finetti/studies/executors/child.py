"""The child process: runs the cohorts that it receives, and sends what becomes of them.

Started by ``executors.process`` as the first of a group of processes. A guard in that group ends
all of it when the process above is gone, however busy the trial is and whatever it has started;
only what a trial puts into a group of its own lives on.
"""

import faulthandler
import os
import select
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from finetti.core.garbage import collect_rarely
from finetti.studies.executors.base import Failure
from finetti.studies.importing import WORKER_VARIABLE

IDLE_SECONDS = 600.0
GUARD_MILLISECONDS = 1000  # between two looks at the process above


@dataclass(frozen=True)
class Ready:
    """The kind is loaded; whether its trials run ``together``."""

    together: bool


def serve() -> None:
    """Load the kind that arrives first, then run the cohorts that follow.

    Sends what is known of this place, and with it: Ready, then each Outcome, then a Failure or
    None at the end of a cohort.
    """
    guard()
    collect_rarely()
    faulthandler.enable()
    os.environ[WORKER_VARIABLE] = "1"
    above, owner = Connection(os.dup(0)), os.getpid()
    # Trials that read from standard input find it empty.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    from finetti.studies.executors.work import Worker
    from finetti.studies.kinds import CohortKind

    try:
        worker = Worker(above.recv())
    except (Exception, SystemExit) as error:
        text, details = f"{type(error).__name__}: {error}", traceback.format_exc()
        above.send(({}, Failure("broken", text, details)))
        return

    def send(news: Any) -> None:
        if os.getpid() != owner:
            os._exit(1)  # a copy of this process that a trial has forked and not ended
        above.send((worker.place, news))

    send(Ready(isinstance(worker.kind, CohortKind)))
    while above.poll(IDLE_SECONDS):  # idle for longer, it leaves: another one can be started
        news = None
        for news in worker.run(above.recv()):
            send(news)
        if not isinstance(news, Failure):
            send(None)
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
