"""Readers that leave early, as ``head`` does, and disks that are full: the command goes on."""

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from finetti.cli.output import tell


class PatientFile(io.FileIO):
    """A file whose writes go nowhere once its reader is gone, or its disk is full.

    A run of hours is not lost because nobody reads its last words, and its exit code still says
    how it went. ``refused`` is what the disk said.
    """

    refused: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write, or say that it was written."""
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            pass
        except OSError as error:
            self.refused = error
        return len(memoryview(data).cast("B"))


def patient(stream: TextIO) -> TextIO:
    """The stream, over a `PatientFile` if it is a pipe or a file of the system."""
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        return stream
    stream.flush()
    raw = PatientFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def forgive_closed_pipes() -> None:
    """Make stdout and stderr of this process patient."""
    sys.stdout, sys.stderr = patient(sys.stdout), patient(sys.stderr)


@contextlib.contextmanager
def told_if_unwritten() -> Iterator[None]:
    """Around a command: results that stdout did not take end with a sentence and exit code 2."""
    try:
        yield
    except SystemExit:  # how every command ends
        raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
        if not isinstance(raw, PatientFile):
            raise
        sys.stdout.flush()
        if raw.refused is None:
            raise
        why = raw.refused.strerror
        tell(f"Error: The output cannot be written: {why}. Send it to another place.")
        sys.exit(2)
