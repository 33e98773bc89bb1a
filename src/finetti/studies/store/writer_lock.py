"""One writer per store: a lock that the kernel releases even after kill -9."""

import contextlib
import json
import os
import socket
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from finetti.core.errors import FinettiError, InputError, UnsupportedError
from finetti.core.files import parse_json

LOCK_POLL_SECONDS = 0.2
LOCK_RETRY_SECONDS = 0.02
MAX_LOCK_RETRIES = 6  # somebody may just be looking who holds the lock
HOLDER = ("pid", "host", "since")  # what a lock says of who holds it
MAX_LOCK_BYTES = 1000
# What stands in a lock's place is neither followed nor waited for.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class StoreBusyError(FinettiError):
    """Another process writes to the store."""


def lock_path(store: Path) -> Path:
    """The file beside a store whose lock its writer holds."""
    return store.with_name(f"{store.name}.lock")


class WriterLock:
    """Held from the moment of construction until ``release``.

    ``taken_over`` says that its last holder did not release it, but was killed.

    Args:
        store: the store's file.
        wait: wait for the other process instead of refusing.
        on_wait: called once with a sentence that says who is waited for.
    """

    def __init__(
        self, store: Path, wait: bool = False, on_wait: Callable[[str], None] | None = None
    ) -> None:
        self.path = lock_path(store)
        for _ in range(MAX_LOCK_RETRIES):
            if self._try():
                return
            time.sleep(LOCK_RETRY_SECONDS)
        sentence = f"{store} is being written by {holder_text(store)}."
        if not wait:
            advice = (
                "Wait for it (--wait; wait=True in Python), or use another store and merge later."
            )
            raise StoreBusyError(f"{sentence} {advice}")
        if on_wait:
            on_wait(f"{sentence} Waiting.")
        while not self._try():
            time.sleep(LOCK_POLL_SECONDS)

    def _try(self) -> bool:
        try:
            # Another process may release its lock, and with that remove it, at any moment.
            with contextlib.suppress(FileNotFoundError):
                if not _is_regular(os.lstat(self.path)):
                    raise self._foreign("it is a link, a folder or a pipe")
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o666)
            try:
                if not self._locked():
                    os.close(self.descriptor)
                    return False
                left = os.pread(self.descriptor, MAX_LOCK_BYTES, 0)  # by a process that was killed
                if not _is_regular(os.fstat(self.descriptor)) or (left and not _parse(left)):
                    raise self._foreign("something else stands in it")
                self.taken_over = bool(left)
            except FinettiError:
                os.close(self.descriptor)
                raise
            since = datetime.now(UTC).isoformat(timespec="seconds")
            values = os.getpid(), socket.gethostname(), since
            holder = dict(zip(HOLDER, values, strict=True))
            try:
                os.ftruncate(self.descriptor, 0)
                os.pwrite(self.descriptor, json.dumps(holder).encode(), 0)
            except OSError:
                self.release()
                raise
        except OSError as error:
            raise FinettiError(
                f"Cannot write next to {self.path.with_suffix('')}: {error.strerror}. "
                "Choose another path for the store, or make this one writable."
            ) from error
        return True

    def _foreign(self, why: str) -> FinettiError:
        return FinettiError(
            f"{self.path} is not the lock of a store: {why}. Move it away; it is left as it is."
        )

    def _locked(self) -> bool:
        try:
            import fcntl

            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have removed the file between our opening and our locking.
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except (BlockingIOError, FileNotFoundError):
            return False
        except ImportError as error:
            raise UnsupportedError(
                "Stores need POSIX file locks, which this system does not have. "
                "Use Linux, macOS or WSL."
            ) from error

    def release(self) -> None:
        """Let others write."""
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def read_holder(store: Path) -> dict[str, Any] | None:
    """Who holds the lock of ``store``: pid, host, since. None if nobody does. Takes no lock."""
    path = lock_path(Path(os.path.realpath(store)))  # the writer has followed links, too
    try:
        descriptor = os.open(path, os.O_RDONLY | _SAFELY)
    except OSError:
        return None  # none, released just now, or not ours to read: then nobody we can name
    try:
        if not _is_regular(os.fstat(descriptor)):
            return None
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parse(os.pread(descriptor, MAX_LOCK_BYTES, 0))
    finally:
        os.close(descriptor)
    return None


def _is_regular(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode)


def _parse(content: bytes) -> dict[str, Any]:
    """What a lock says of its holder; nothing if no lock of ours is written like this."""
    try:
        found = parse_json(content, "The lock")
    except InputError:
        return {}
    return found if set(found) == set(HOLDER) else {}


def holder_text(store: Path) -> str:
    """Who writes to ``store``, in words."""
    holder = read_holder(store)
    if not holder:
        return "another process"
    return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
