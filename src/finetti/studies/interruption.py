"""Ctrl-C, pressed once or several times: what has begun to close goes on closing."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_interruption() -> Iterator[None]:
    """Around a run: what ``ignore_interruptions`` has switched off works again after it."""
    before = {number: signal.getsignal(number) for number in _interruptions()}
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
