"""Ctrl-C, pressed once or several times: what has begun to close goes on closing."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_process_ends = False


def end_with_first_interruption() -> None:
    """For a command: after the first Ctrl-C it says what is kept and ends, whatever else comes.

    Else one more, between the end of a run and that sentence, would take the sentence along.
    """
    global _process_ends
    _process_ends = True


@contextmanager
def one_interruption() -> Iterator[None]:
    """Around a run: what ``ignore_interruptions`` has switched off works again after it."""
    numbers = [] if _process_ends else _interruptions()
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_interruptions() -> None:
    """Ignore further ones, so that no second Ctrl-C leaves a lock or a process behind."""
    for number in _interruptions():
        signal.signal(number, signal.SIG_IGN)


def _interruptions() -> list[signal.Signals]:
    """The signals that raise KeyboardInterrupt in this thread, and that nobody else handles."""
    if threading.current_thread() is not threading.main_thread():
        return []
    numbers = (signal.SIGINT, signal.SIGTERM)
    return [each for each in numbers if signal.getsignal(each) is signal.default_int_handler]
