"""Dask workers on this machine: a scheduler in this process, each worker a process of its own."""

import contextlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from typing import Any

from finetti.core.errors import FinettiError
from finetti.studies.limits import usable_cores, worker_environment

START_SECONDS = 120
MAX_WORKER_RESTARTS = 10
WORKER_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from finetti.studies.executors.guard import guard; guard();"
    "from distributed.cli.dask_worker import main; main()"
)


class LocalWorkers:
    """A scheduler with ``count`` workers. Workers that are lost are replaced."""

    def __init__(self, count: int) -> None:
        import dask.config
        import distributed

        self.count = count
        self.restarts = 0  # since the last outcome
        self.processes: list[subprocess.Popen[bytes]] = []
        self.folder = tempfile.TemporaryDirectory(prefix="finetti-dask-")
        # Dask's own way to start local workers runs the user's main script again in each of them.
        # The engine counts the workers that a cohort has cost; Dask need not.
        with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
            self.cluster: Any = distributed.LocalCluster(
                n_workers=0,
                processes=False,
                protocol="tcp",
                host="127.0.0.1",
                dashboard_address=":0",  # any free port: 8787 may be that of another cluster
                silence_logs=logging.CRITICAL,
            )
        self.client: Any = distributed.Client(self.cluster, set_as_default=False)
        try:
            self.processes = [self._start() for _ in range(count)]
            self._wait()
        except BaseException:
            self.close()
            raise

    def _start(self) -> "subprocess.Popen[bytes]":
        arguments = [
            self.cluster.scheduler_address,
            *("--nthreads", "1", "--no-nanny", "--no-dashboard"),
            *("--memory-limit", "0", "--death-timeout", "60"),
            *("--local-directory", self.folder.name),
        ]
        return subprocess.Popen(
            [sys.executable, "-c", WORKER_PROGRAM, json.dumps(sys.path), *arguments],
            stdin=subprocess.PIPE,  # open for as long as this process lives: see `guard`
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=worker_environment(max(1, usable_cores() // self.count)),
            start_new_session=True,  # Ctrl-C is for the coordinator
        )

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not self.client.nthreads():
            if time.monotonic() > end or all(each.poll() is not None for each in self.processes):
                raise FinettiError("No Dask worker could be started. Run without --workers.")
            time.sleep(0.05)

    def replace_lost(self) -> None:
        """Start a new worker for each that has ended."""
        for index, process in enumerate(self.processes):
            if process.poll() is not None:
                self.restarts += 1
                if self.restarts > MAX_WORKER_RESTARTS:
                    raise FinettiError(
                        f"Dask workers ended {MAX_WORKER_RESTARTS} times, and no trial did. What "
                        "is stored so far is safe. Run without --workers to see why."
                    )
                process.communicate()
                self.processes[index] = self._start()

    def close(self) -> None:
        """End the workers, the client and the scheduler."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()
        self.processes = []
        self.client.close(timeout=5)
        with contextlib.suppress(TimeoutError):
            self.cluster.close(timeout=5)
        self.folder.cleanup()
