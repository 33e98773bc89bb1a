"""The child process: reads cohorts as lines of JSON, writes outcomes as lines of JSON.

Started by ``executors.process`` as the first of a group of processes. A guard in that group ends
all of it when the process above is gone, however busy the trial is and whatever it has started;
only what a trial puts into a group of its own lives on.
"""

import faulthandler
import json
import os
import queue
import sys
import threading
import traceback
from typing import Any, BinaryIO

from finetti.studies.executors.guard import guard

IDLE_SECONDS = 600.0
WORKER_VARIABLE = "FINETTI_STUDY_WORKER"  # no study may start inside of a trial


class _Channel:
    """Lines of JSON to the process above; what trials print goes elsewhere."""

    def __init__(self) -> None:
        # File descriptor 1 is given to the trials' own printing, which ends up in the log.
        self.stream = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self.owner = os.getpid()

    def send(self, **message: Any) -> None:
        if os.getpid() != self.owner:
            os._exit(1)  # a copy of this process that a trial has forked and not ended
        self.stream.write(json.dumps(message).encode() + b"\n")
        self.stream.flush()


def _listen(stream: BinaryIO, inbox: "queue.Queue[dict[str, Any]]") -> None:
    for line in stream:
        inbox.put(json.loads(line))
    os._exit(0)  # whoever asked is gone, and nobody waits for the trial that is running


def serve() -> None:
    """Load the kind that the first line names, then run the cohorts of the others."""
    guard()
    faulthandler.enable()
    os.environ[WORKER_VARIABLE] = "1"
    channel = _Channel()
    inbox: queue.Queue[dict[str, Any]] = queue.Queue()
    commands = os.fdopen(os.dup(0), "rb")
    # Trials that read from standard input find it empty.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    threading.Thread(target=_listen, args=(commands, inbox), daemon=True).start()

    from finetti.studies.importing import Strays
    from finetti.studies.kinds import CohortKind, load_kind
    from finetti.studies.sources import KindSource
    from finetti.studies.work import worker_place

    source = KindSource(**inbox.get())
    try:
        kind = load_kind(source)
    except (Exception, SystemExit) as error:
        details = traceback.format_exc()
        channel.send(broken=f"{type(error).__name__}: {error}", details=details)
        return
    strays = Strays(source)
    channel.send(ready=True, together=isinstance(kind, CohortKind), place=worker_place())
    while True:
        try:
            message = inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return  # idle: the process above starts another child when it needs one
        _run(kind, message["trials"], strays, channel)


def _run(kind: Any, content: list[Any], strays: Any, channel: _Channel) -> None:
    from finetti.core.provenance import jax_device
    from finetti.studies.trial import Trial
    from finetti.studies.work import work, worker_provenance

    told, device = False, None
    try:
        for outcome in work(kind, [Trial(**each) for each in content], strays):
            if not told or jax_device() != device:
                # After a trial, which may have chosen a device. JAX's is that of later ones, too.
                told, device = True, jax_device()
                channel.send(provenance=worker_provenance(), lasting=device is not None)
            channel.send(outcome=outcome.to_plain())
    except (Exception, SystemExit) as error:
        text, details = f"{type(error).__name__}: {error}", traceback.format_exc()
        channel.send(raised=text, details=details, provenance=worker_provenance(), lasting=False)
    else:
        channel.send(ended=True)
    sys.stdout.flush()
