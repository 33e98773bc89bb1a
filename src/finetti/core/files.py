"""Files that are whole or not there."""

import os
import tempfile
from pathlib import Path

from finetti.core.errors import InputError


def write_file(content: bytes, path: str | Path) -> Path:
    """Write all or nothing: readers and interruptions never see half a file."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            # mkstemp lets only its owner read; results are for others as well.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}. Free the place or choose another."
        ) from error
    return path
