"""The parent's side of a child process: gives it cohorts, watches its time and memory, ends it."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from typing import Any

from finetti.studies.executors.base import Cohort, Failure, Report
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
    """

    def __init__(
        self, source: KindSource, limits: Limits, threads: int | None, workers: int = 1
    ) -> None:
        self.source = source
        self.limits = limits
        self.threads = threads
        self.memory = limits.bytes_for(workers)
        self.process: subprocess.Popen[bytes] | None = None
        self.cohort: Cohort | None = None

    def _start(self) -> None:
        import psutil

        # A file and not a pipe: nobody has to read what trials print, and its end can be shown.
        self.log = tempfile.TemporaryFile(mode="ab+", buffering=0)  # noqa: SIM115
        # Not multiprocessing: a spawned child of it runs the user's main script again.
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD_PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=worker_environment(self.threads),
            start_new_session=True,  # Ctrl-C is for the coordinator, which ends the child
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.watched = psutil.Process(self.process.pid)
        self.family: list[psutil.Process] = []
        self.measured = self.counted = time.monotonic()
        self.buffer = bytearray()
        self.started = time.monotonic()
        self.ready = self.together = False
        # Of the trials that ended, and what is sure of those that did not.
        self.provenance: dict[str, Any] = {}
        self.place: dict[str, Any] = {}
        self._send(asdict(self.source))

    def _send(self, message: Any) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        # A child that has ended says why in the next poll.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

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
        self._send({"trials": [vars(trial) for trial in cohort.trials]})

    def poll(self, timeout: float) -> Report | None:
        """News of the cohort, after ``timeout`` seconds at the most; None if there is none."""
        assert self.cohort is not None
        until = time.monotonic() + timeout
        while True:
            ended, failure = self._look(
                min(MEMORY_POLL_SECONDS, max(0.0, until - time.monotonic()))
            )
            now = time.monotonic()
            over = ended or failure is not None
            if over or (self.pending and now - self.flushed > FLUSH_SECONDS):
                report = Report(self.cohort, tuple(self.pending), over, failure)
                self.pending, self.flushed = [], now
                if over:
                    self.cohort = None
                return report
            if now >= until:
                return None

    def _look(self, timeout: float) -> tuple[bool, Failure | None]:
        """Read what the child wrote, then see to its limits."""
        assert self.process is not None
        assert self.process.stdout is not None
        stream = self.process.stdout.fileno()
        readable, _, _ = select.select([stream], [], [], timeout)
        if readable:
            chunk = os.read(stream, 1 << 20)
            if not chunk:
                return False, self._died()
            self.buffer += chunk
            if b"\n" not in chunk:
                return False, self._over_limit()  # a long line is put together only once
            *lines, self.buffer = self.buffer.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if self._understand(message):
                    return True, None
                if "raised" in message:
                    words = message["raised"], message["details"]
                    return False, Failure("raised", *words, provenance=self.provenance)
                if "broken" in message:
                    self.end()
                    return False, Failure("broken", message["broken"], message["details"])
        return False, self._over_limit()

    def _understand(self, message: dict[str, Any]) -> bool:
        """Take in one message; whether it ends the cohort."""
        if "outcome" in message:
            self.pending.append(Outcome(**message["outcome"]).made_by(self.provenance))
            self.finished += 1
            self.since = time.monotonic()
        elif "provenance" in message:
            self.provenance = message["provenance"]
            if message["lasting"]:
                self.place = self.provenance
        elif "ready" in message:
            # Importing is not the trial's time.
            self.ready, self.together = True, message["together"]
            self.place = message["place"]
            self.since = time.monotonic()
        return "ended" in message

    def _over_limit(self) -> Failure | None:
        assert self.cohort is not None
        if self.limits.time is not None and self.ready:
            allowed = self.limits.time * (len(self.cohort.trials) if self.together else 1)
            if time.monotonic() - self.since > allowed:
                what = f"{len(self.cohort.trials)} trials" if self.together else "The trial"
                return self._stop("time", f"{what} did not end within {allowed:g} s (time limit).")
        if self.limits.time is not None and not self.ready:
            allowed = max(LOAD_SECONDS, self.limits.time)
            if time.monotonic() - self.started > allowed:
                words = self._last_words()
                self.end()
                return Failure("broken", f"it did not load within {allowed:g} s", words)
        used = self._used_memory()
        if used > self.memory:
            allowed = f"{self.memory / GIGABYTE:.2f} GB"
            return self._stop("memory", f"The trial used more than {allowed} (memory limit).")
        return None

    def _used_memory(self) -> int:
        """Bytes of the child and of what it started; 0 between two looks."""
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
        for process in (self.watched, *self.family):
            with contextlib.suppress(psutil.NoSuchProcess):
                used += process.memory_info().rss
        return used

    def _culprit(self) -> str | None:
        """Trials that run one by one tell which was running: the first without an outcome."""
        assert self.cohort is not None
        if self.together or not self.ready or self.finished >= len(self.cohort.trials):
            return None
        return self.cohort.trials[self.finished].id

    def _stop(self, reason: str, message: str) -> Failure:
        words = self._last_words()
        self.end()
        seconds = time.monotonic() - self.since
        return Failure(reason, message, words, self._culprit(), seconds, self.place)

    def _died(self) -> Failure:
        assert self.process is not None
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        # A child that was idle for long leaves by itself, perhaps just when it was needed again.
        reason = "died" if code else "lost"
        failure = self._stop(reason, f"The process ended in the middle of a trial ({how}).")
        if self.ready:
            return failure
        return Failure("broken", f"the process ended while loading it ({how})", failure.details)

    def _last_words(self) -> str | None:
        self.log.seek(0)
        text = self.log.read()[-4000:].decode(errors="replace").strip()
        return text or None

    def end(self) -> None:
        """End the process and all that it started, at once."""
        if self.process is None:
            return
        process, self.process = self.process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, self.log):
            if stream is not None:
                # What could not be written any more is of no use to a process that has ended.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
