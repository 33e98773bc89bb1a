"""Ends a group of processes when the process that started it is gone."""

import os
import select
import signal

POLL_MILLISECONDS = 1000  # between two looks at the process above


def guard() -> None:
    """Start a process that ends this group when the process above, or this one, is gone.

    The process above holds the other end of standard input, which the kernel closes even after
    kill -9. A thread could not do this: a trial may hold the interpreter's lock for as long as it
    likes. Call it before there are any threads.
    """
    if os.getpgrp() != os.getpid():
        return  # not a group of our own
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
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)
    watch = select.poll()
    # Without an event to wait for: only that the other end was closed is told, and nothing is read.
    watch.register(0, 0)
    watch.register(ours, 0)
    # A copy that the process above has forked may keep the other end open: so look after it, too.
    while not watch.poll(POLL_MILLISECONDS) and _lives(above):
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
