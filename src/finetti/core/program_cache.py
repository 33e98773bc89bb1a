"""Compiled programs kept on disk, so that the first call of the next process need not compile."""

import hashlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from finetti.core.errors import bad_argument

SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}

# What /proc/cpuinfo says of a core that decides which instructions a program may use.
_PROCESSOR = ("vendor_id", "model name", "cpu family", "model", "stepping", "flags", "Features")


def enable_cache(folder: str | Path | None = None) -> Path:
    """Keep the programs that JAX compiles on disk, and read those that are there.

    It holds for all of JAX in this process and those it starts. A program only runs where it was
    compiled: another processor rejects it or crashes, so every kind of processor and every version
    of jaxlib has a folder of its own inside ``folder``. Calling this sets JAX's
    ``jax_compilation_cache_dir``; setting the environment variable FINETTI_CACHE to 1, or to a
    folder, does it when the package is imported.

    Args:
        folder: where to keep them, by default ``~/.cache/finetti``.

    Returns the folder for this processor. Delete it at any time; it is never made smaller.
    """
    base = Path.home() / ".cache" / "finetti" if folder is None else Path(folder)
    kept = base.expanduser().resolve() / f"jaxlib-{version('jaxlib')}-{processor_name()}"
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        requirement = "a folder that can be written"
        raise bad_argument("folder", "enable_cache", requirement, f"{kept} ({error})") from error
    settings = SETTINGS | {"jax_compilation_cache_dir": str(kept)}
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)  # for processes started from here
        if "jax" in sys.modules:
            sys.modules["jax"].config.update(name, value)
    return kept


def processor_name() -> str:
    """The architecture, and a hash of what this processor is and can do."""
    try:
        first = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0]
    except OSError:
        first = f"model name: {platform.processor()}"
    rows = (line.partition(":") for line in first.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in rows}
    told = repr([facts.get(name) for name in _PROCESSOR])
    return f"{platform.machine()}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
