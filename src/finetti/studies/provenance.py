"""What another person needs to judge or repeat a result: versions, commit, device, host."""

import platform
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from finetti._version import __version__


def worker_provenance() -> dict[str, Any]:
    """Where this process computes. Asks JAX for its device only if a trial has loaded it."""
    return {**place(), "device": jax_device() or "cpu"}


def place() -> dict[str, Any]:
    """The part that is known before any trial has run: all but the device."""
    return {
        "finetti": __version__,
        "python": platform.python_version(),
        "numpy": _installed("numpy"),
        "jax": _installed("jax"),
        "platform": f"{platform.system()} {platform.machine()}",
        "host": socket.gethostname(),
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def jax_device() -> str | None:
    """JAX's device, which stays the same until the process ends; None if JAX is not loaded."""
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "devices"):
        return None
    device = jax.devices()[0]
    kind = "" if device.device_kind == device.platform else f" ({device.device_kind})"
    return f"{device.platform}{kind}"


def commit_of(directory: str | Path) -> str | None:
    """The git commit of ``directory``, with ``+`` if files differ from it; None outside of git."""
    outputs = []
    for arguments in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno"]):
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None  # no git on this machine, or a disk too slow to ask
        if done.returncode:
            return None
        outputs.append(done.stdout.strip())
    commit, changes = outputs
    return f"{commit}+" if changes else commit
