"""Which versions of installed packages a user's source depends on."""

import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path


def installed_versions(names: Iterable[str]) -> list[list[str | None]] | None:
    """Name and version of each top-level package; None if one of them is not an installed one.

    The standard library goes without saying: its version is that of Python. A package on
    ``PYTHONPATH``, or installed as a link to its source, can change without changing its version.

    >>> installed_versions(["math", "json"])
    []
    """
    found: list[list[str | None]] = []
    places = [*map(sysconfig.get_path, ("purelib", "platlib")), *site.getsitepackages()]
    folders = {Path(place).resolve() for place in (*places, site.getusersitepackages())}
    for name in names:
        if name in sys.stdlib_module_names:
            continue
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None  # half loaded, or a name that no module can have
        if spec is None:
            found.append([name, None])
            continue
        if spec.origin is None or not any(
            folder in Path(spec.origin).resolve().parents for folder in folders
        ):
            return None
        version = _version(name)
        if version is None:
            return None
        found.append([name, version])
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        # Some packages are installed under another name, which takes longer to find.
        owners = metadata.packages_distributions().get(name, [])
        return " ".join(f"{owner} {metadata.version(owner)}" for owner in owners) or None
