"""The parent's side of a child process: gives it cohorts, watches its time and memory, ends it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from finetti.studies.executors.base import Cohort, Failure, Report
from finetti.studies.executors.child import Ready
from finetti.studies.limits import GIGABYTE, Limits, worker_environment
from finetti.studies.outcome import Outcome
from finetti.studies.sources import KindSource

MEMORY_POLL_SECONDS = 0.05
FAMILY_POLL_SECONDS = 1.0  # between two looks at the processes that it started
FLUSH_SECONDS = 0.25  # that outcomes wait for others before they are reported
LOAD_SECONDS = 300.0  # that loading a kind may take at least, where there is a time limit
MAX_LOG_BYTES = 10_000_000
CHILD_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from finetti.studies.executors.child import serve; serve()"
)


class ChildProcess:
    """A process that runs the trials of one kind, one cohort after another.

    It is started by the first cohort, stays for the next ones (so that imports and compiled
    programs are paid for once), and is started again after it had to be ended.

    Args:
        source: the kind.
        limits: what one trial may take.
        threads: its thread budget; None leaves the environment as it is.
        workers: how many such processes share the machine.
        memory: bytes that it may use, where that is not its share by ``limits``.
    """

    def __init__(
        self,
        source: KindSource,
        limits: Limits,
        threads: int | None,
        workers: int,
        memory: float | None = None,
    ) -> None:
        self.source = source
        self.limits = limits
        self.threads = threads
        self.memory = limits.bytes_for(workers) if memory is None else memory
        self.process: subprocess.Popen[bytes] | None = None
        self.cohort: Cohort | None = None

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
        self.measured = self.counted = self.started = time.monotonic()
        self.ready = self.together = False
        self.place: dict[str, Any] = {}
        self._send(self.source)

    def _send(self, message: Any) -> None:
        # A child that has ended says why in the next poll.
        with contextlib.suppress(ConnectionError):
            self.connection.send(message)

    def begin(self, cohort: Cohort) -> None:
        """Start working on a cohort."""
        if self.process is not None and self.process.poll() is not None:
            self.end()
        if self.process is None:
            self._start()
        self.log.truncate(0)
        self.cohort = cohort
        self.finished = 0
        self.pending: list[Outcome] = []
        self.since = self.flushed = time.monotonic()
        if self.ready:  # else when it is: nobody reads while the kind is loading
            self._send(cohort.trials)

    def poll(self) -> Report | None:
        """News of the cohort, if there is some."""
        assert self.cohort is not None
        ended, failure = self._receive()
        if not ended:
            failure = self._over_limit()
        now, over = time.monotonic(), ended or failure is not None
        if not over and not (self.pending and now - self.flushed > FLUSH_SECONDS):
            return None
        report = Report(self.cohort, tuple(self.pending), over, failure)
        self.pending, self.flushed = [], now
        if over:
            self.cohort = None
        return report

    def _receive(self) -> tuple[bool, Failure | None]:
        """Take in what the child has sent; whether the cohort has ended, and why if it failed."""
        assert self.cohort is not None
        while self.connection.poll():
            try:
                self.place, news = self.connection.recv()
            except (EOFError, OSError):
                return True, self._died()
            if news is None or isinstance(news, Failure):
                if not self.ready:
                    self.end()
                return True, news
            self.since = time.monotonic()  # loading the kind is not the trial's time
            if isinstance(news, Ready):
                self.ready, self.together = True, news.together
                self._send(self.cohort.trials)
            else:
                self.pending.append(news)
                self.finished += 1
                if self.since - self.flushed > FLUSH_SECONDS:
                    break
        return False, None

    def _over_limit(self) -> Failure | None:
        assert self.cohort is not None
        now, limit = time.monotonic(), self.limits.time
        if limit is not None and self.ready:
            allowed = limit * (len(self.cohort.trials) if self.together else 1)
            if now - self.since > allowed:
                what = f"{len(self.cohort.trials)} trials" if self.together else "The trial"
                return self._stop("time", f"{what} did not end within {allowed:g} s (time limit).")
        elif limit is not None and now - self.started > (allowed := max(LOAD_SECONDS, limit)):
            return self._stop("broken", f"it did not load within {allowed:g} s")
        if self._used_memory() > self.memory:
            allowed = f"{self.memory / GIGABYTE:.2f} GB"
            if not self.ready:  # no trial is to blame, and each would start another process
                sentence = f"it used more than {allowed} (memory limit) while it was loaded"
                return self._stop("broken", sentence)
            return self._stop("memory", f"The trial used more than {allowed} (memory limit).")
        return None

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

    def _died(self) -> Failure:
        assert self.process is not None
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if not self.ready:
            return self._stop("broken", f"the process ended while loading it ({how})")
        # A child that was idle for long leaves by itself, perhaps just when it was needed again.
        reason = "died" if code else "lost"
        return self._stop(reason, f"The process ended in the middle of a trial ({how}).")

    def _stop(self, reason: str, message: str) -> Failure:
        """End the process; with its last words, and the trial that was running if that is sure."""
        assert self.cohort is not None
        seconds = time.monotonic() - self.since
        self.log.seek(0)
        words = self.log.read()[-4000:].decode(errors="replace").strip() or None
        self.end()
        culprit = None
        if self.ready and not self.together and self.finished < len(self.cohort.trials):
            culprit = self.cohort.trials[self.finished].id  # one by one: the first without outcome
        return Failure(reason, message, words, culprit, seconds, self.place)

    def end(self) -> None:
        """End the process and all that it started, at once."""
        if self.process is None:
            return
        process, self.process = self.process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.connection.close()
        self.log.close()


def poll_children(children: Sequence[ChildProcess], timeout: float) -> list[Report]:
    """News of those that work on a cohort; waits for some, ``timeout`` seconds at the most."""
    busy = [child for child in children if child.cohort is not None]
    until = time.monotonic() + timeout
    while True:
        found = [report for child in busy if (report := child.poll()) is not None]
        left = until - time.monotonic()
        if found or not busy or left <= 0:
            return found
        wait([child.connection for child in busy], min(left, MEMORY_POLL_SECONDS))
