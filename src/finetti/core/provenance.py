"""What another person needs to judge or repeat a result: versions, device, commit."""

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from finetti._version import __version__


def software() -> dict[str, Any]:
    """Versions and platform; nothing that tells whose machine it is."""
    return {
        "finetti": __version__,
        "python": platform.python_version(),
        "numpy": _installed("numpy"),
        "jax": _installed("jax"),
        "platform": f"{platform.system()} {platform.machine()}",
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
    options = {"cwd": directory, "capture_output": True, "text": True, "timeout": 10}
    # The folder may be somebody else's, and its configuration may name a program to run.
    git = ["git", "-c", "core.fsmonitor=false"]
    for arguments in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno"]):
        try:
            done = subprocess.run([*git, *arguments], **options, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None  # no git on this machine, or a disk too slow to ask
        if done.returncode:
            return None
        outputs.append(done.stdout.strip())
    commit, changes = outputs
    return f"{commit}+" if changes else commit
