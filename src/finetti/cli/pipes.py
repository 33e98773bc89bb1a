"""Readers that leave early, as ``head`` does: the command goes on, and ends as it would have."""

import io
import sys
from typing import Any, TextIO


class PatientFile(io.FileIO):
    """A file whose writes go nowhere once its reader is gone.

    A run of hours is not lost because nobody reads its last words, and its exit code still says
    how it went.
    """

    def write(self, data: Any, /) -> int:
        """Write, or say that it was written."""
        try:
            return super().write(data) or 0
        except BrokenPipeError:
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
