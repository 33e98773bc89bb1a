"""What a trial may take, and what a worker gets: time, memory, threads."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from finetti.core.errors import InputError

GIGABYTE = 1e9
MEMORY_FRACTION = 0.8
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NPROC",  # read by XLA's CPU client for the size of its thread pool
)


@dataclass(frozen=True)
class Limits:
    """Seconds per trial, and gigabytes of the process that runs it; None is no limit of time.

    A cohort that runs in one go may take the seconds of all its trials together. Without a memory
    limit a worker may use its share of 80 % of the machine.
    """

    time: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        for name, unit in (("time", "seconds"), ("memory", "gigabytes")):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InputError(
                    f"The {name} limit must be a positive number of {unit}. Got {value} instead."
                )

    def bytes_for(self, workers: int) -> float:
        """The memory that one of ``workers`` processes on this machine may use."""
        if self.memory is not None:
            return self.memory * GIGABYTE
        return MEMORY_FRACTION * usable_memory() / workers


def usable_memory() -> float:
    """Bytes of memory of this machine, or of the container or job around this process."""
    import psutil

    return min(float(psutil.virtual_memory().total), cgroup_memory() or math.inf)


def cgroup_memory(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> float | None:
    """The memory limit of the control group of this process and of those around it, in bytes.

    The group is named in ``membership`` ("0::/job/step", or "4:memory:/job" in version 1), its
    limits stand in files below ``root``. None if there is no limit.
    """
    found: list[float] = []
    lines = membership.read_text().splitlines() if membership.is_file() else []
    groups = dict(line.split(":", 2)[1:] for line in lines)
    for place, name, controller in (
        (root, "memory.max", ""),
        (root / "memory", "memory.limit_in_bytes", "memory"),
    ):
        group = place / groups.get(controller, "").lstrip("/")
        # In a container the path may be that of the host, of which only the root is seen.
        for folder in (group, *group.parents):
            if folder.is_relative_to(place) and (folder / name).is_file():
                text = (folder / name).read_text().strip()
                found += [float(text)] if text.isdigit() else []
    return min(found, default=None)


def usable_cores() -> int:
    """Cores that this process may use, by its affinity and by the quota of its control group."""
    from joblib import cpu_count  # which scikit-learn brings

    return cpu_count()


def worker_environment(threads: int | None) -> dict[str, str]:
    """The environment of a worker with a budget of ``threads``; what the user has set stays."""
    environment = dict(os.environ)
    if threads is None:
        return environment
    for name in THREAD_VARIABLES:
        environment.setdefault(name, str(threads))
    flags = environment.get("XLA_FLAGS", "")
    if threads == 1 and "xla_cpu_multi_thread_eigen" not in flags:
        environment["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    return environment
