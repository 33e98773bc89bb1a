"""The parent's side of a child process: gives it tasks, watches its time and memory, ends it."""

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing import Pipe
from typing import Any

from finetti.studies.executors.executor import Failure, FailureReason, Report, Task
from finetti.studies.executors.resource_limits import GIGABYTE, worker_environment
from finetti.studies.source_code import SourceSnapshot

MEMORY_POLL_SECONDS = 0.05
FAMILY_POLL_SECONDS = 1.0  # between two looks at the processes that it started
WAITING_SECONDS = 0.25  # of work that a child gets before it asks, so that it is never idle
MAX_TASKS = 16  # that a child has
LOAD_SECONDS = 300.0  # that loading a kind may take at least, where there is a time limit
MAX_LOG_BYTES = 10_000_000
CHILD_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from finetti.studies.executors.worker import serve; serve()"
)


class ChildProcess:
    """A process that runs the trials of one kind, one task after another.

    It is started by the first task, stays for the next ones (so that imports and compiled
    programs are paid for once), and is started again after it had to be ended. ``tasks`` are those
    that it has; it works on the first.

    Args:
        threads: its thread budget; None leaves the environment as it is.
    """

    def __init__(self, threads: int | None) -> None:
        self.threads = threads
        self.source: SourceSnapshot | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.tasks: deque[Task] = deque()
        self.last_seconds = WAITING_SECONDS  # of the last task

    def use(self, source: SourceSnapshot, time_limit: float | None, memory: float) -> None:
        """Run trials of ``source``, each within seconds and bytes; another source ends it."""
        if source != self.source:
            self.end()
        self.source, self.time_limit, self.memory = source, time_limit, memory

    @property
    def capacity(self) -> int:
        """How many tasks it may have: one, or more where each takes moments."""
        return min(MAX_TASKS, max(1, int(WAITING_SECONDS / max(self.last_seconds, 1e-6))))

    def _start(self) -> None:
        import psutil

        # A file and not a pipe: nobody has to read what trials print, and its end can be shown.
        self.log = tempfile.TemporaryFile(mode="ab+", buffering=0)  # noqa: SIM115
        self.connection, theirs = Pipe()
        # Not multiprocessing.Process: a spawned child of it runs the user's main script again.
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD_PROGRAM, json.dumps(sys.path)],
            stdin=theirs.fileno(),
            stdout=self.log,
            stderr=self.log,
            env=worker_environment(self.threads),
            start_new_session=True,  # Ctrl-C is for the coordinator, which ends the child
        )
        theirs.close()
        self.watched = psutil.Process(self.process.pid)
        self.family: list[psutil.Process] = []
        self.measured = self.counted = self.since = time.monotonic()
        self.ready = False
        self.provenance: dict[str, Any] = {}
        self._send(self.source)

    def _send(self, message: Any) -> None:
        # A child that has ended says why in the next poll.
        with contextlib.suppress(ConnectionError):
            self.connection.send_bytes(pickle.dumps(message))

    def submit(self, task: Task) -> None:
        """Work on a task after those that it has."""
        if not self.tasks:
            if self.process is not None and self.process.poll() is not None:
                self.end()
            if self.process is None:
                self._start()
            self.log.truncate(0)
            self.since = time.monotonic()
        self.tasks.append(task)
        if self.ready:  # else when it is: nobody reads while the kind is loading
            self._send(task.trials)

    def receive(self) -> Report | None:
        """Take the message that is there: that it is ready, or what became of its first task."""
        try:
            outcomes, failure, self.provenance = self.connection.recv()
        except (EOFError, OSError):
            return self._died()
        now = time.monotonic()
        seconds, self.since = now - self.since, now  # loading the kind is not the trial's time
        if not self.ready and failure is None:
            self.ready = True
            for task in self.tasks:
                self._send(task.trials)
            return None
        self.last_seconds = seconds
        report = Report(self.tasks.popleft(), outcomes, failure, self.provenance)
        if not self.ready:
            self.end()
        return report

    def over_limit(self) -> Report | None:
        """End it if its first task, or loading the kind, takes too much."""
        seconds, limit, trials = time.monotonic() - self.since, self.time_limit, self._trials
        allowed = None if limit is None else limit * len(trials)
        if allowed is not None and not self.ready:
            allowed = max(LOAD_SECONDS, limit or 0.0)
        if allowed is not None and seconds > allowed:
            if not self.ready:
                return self._stop(FailureReason.BROKEN, f"it did not load within {allowed:g} s")
            what = f"{len(trials)} trials" if len(trials) > 1 else "The trial"
            sentence = f"{what} did not end within {allowed:g} s (time limit)."
            return self._stop(FailureReason.TIME, sentence)
        if self._used_memory() > self.memory:
            more = f"used more than {self.memory / GIGABYTE:.2f} GB (memory limit)"
            if not self.ready:  # no trial is to blame, and each would start another process
                return self._stop(FailureReason.BROKEN, f"it {more} while it was loaded")
            return self._stop(FailureReason.MEMORY, f"The trial {more}.")
        return None

    @property
    def _trials(self) -> tuple[Any, ...]:
        return self.tasks[0].trials

    def _used_memory(self) -> int:
        """Bytes of the child and of what it started; 0 between two looks.

        Pages that several of them share (as after a fork) are divided by those who share them,
        where that can change the answer: the system takes long to tell.
        """
        import psutil

        now = time.monotonic()
        if now - self.measured < MEMORY_POLL_SECONDS:
            return 0
        self.measured = now
        if os.fstat(self.log.fileno()).st_size > MAX_LOG_BYTES:
            self.log.truncate(0)  # a talkative trial must not fill the disk
        used = 0
        try:
            if now - self.counted > FAMILY_POLL_SECONDS:
                # Finding them reads the table of all processes, which is not free.
                self.family = self.watched.children(recursive=True)
                self.counted = now
        except psutil.NoSuchProcess:
            return 0  # it has just ended, which the next look finds out
        everyone = (self.watched, *self.family)
        for process in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                used += process.memory_info().rss
        if used > self.memory and self.family:
            used = 0
            for process in everyone:
                with contextlib.suppress(psutil.NoSuchProcess):
                    full = process.memory_full_info()
                    used += getattr(full, "pss", full.uss)
        return used

    def _died(self) -> Report:
        assert self.process is not None
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if not self.ready:
            sentence = f"the process ended while loading it ({how})"
            return self._stop(FailureReason.BROKEN, sentence)
        # A child that was idle for long leaves by itself, perhaps just when it was needed again.
        reason = FailureReason.DIED if code else FailureReason.LOST
        return self._stop(reason, f"The process ended in the middle of a trial ({how}).")

    def _stop(self, reason: FailureReason, message: str) -> Report:
        """End the process, whose last words are told; tasks that waited get another one."""
        seconds = time.monotonic() - self.since
        self.log.seek(0)
        words = self.log.read()[-4000:].decode(errors="replace").strip() or None
        first, *others = self.tasks
        report = Report(first, (), Failure(reason, message, words, seconds), self.provenance)
        self.end()
        if reason is not FailureReason.BROKEN:
            for task in others:
                self.submit(task)
        return report

    def end(self) -> None:
        """End the process and all that it started, at once."""
        self.tasks.clear()
        if self.process is None:
            return
        process, self.process = self.process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.connection.close()
        self.log.close()


def poll_children(children: Sequence[ChildProcess], timeout: float) -> list[Report]:
    """News of those that have tasks; waits for some, ``timeout`` seconds at the most."""
    busy = {child.connection.fileno(): child for child in children if child.tasks}
    watch, until = select.poll(), time.monotonic() + timeout
    for descriptor in busy:
        watch.register(descriptor, select.POLLIN)
    left = timeout
    while busy:
        ready = {found for found, _ in watch.poll(1000 * min(left, MEMORY_POLL_SECONDS))}
        news = [
            child.receive() if fd in ready else child.over_limit() for fd, child in busy.items()
        ]
        left = max(0.0, until - time.monotonic())
        if (found := [each for each in news if each]) or not left:
            return found
    return []
