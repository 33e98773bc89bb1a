"""Refusing work that would not fit in memory before any of it is allocated."""

from finetti.core.errors import InputError
from finetti.studies.executors.resource_limits import GIGABYTE, usable_memory

NUMBER_BYTES = 8
# (n, n), in memory at once where a Gram matrix is decomposed: 8.6 were measured at n = 1500.
DECOMPOSITION_MATRICES = 9


def available_memory() -> float:
    """Bytes that this process may still take, of the machine or of the container around it."""
    import psutil

    own = psutil.Process().memory_info().rss
    return min(float(psutil.virtual_memory().available), usable_memory() - own)


def check_square_matrices(n_rows: int, count: int, owner: str, advice: str) -> None:
    """Refuse ``count`` matrices (n, n) in float64 that are more than the memory that is left.

    Past that point JAX aborts the interpreter, or the system ends the process.
    """
    needed, available = count * NUMBER_BYTES * n_rows**2, available_memory()
    if needed <= available:
        return
    possible = int((max(available, 0.0) / (count * NUMBER_BYTES)) ** 0.5)
    raise InputError(
        f"{owner} keeps about {count} matrices of {n_rows} × {n_rows} numbers at once, which take "
        f"{needed / GIGABYTE:.3g} GB, and {max(available, 0.0) / GIGABYTE:.3g} GB are available. "
        f"Fit to fewer rows (about {possible} have room), or {advice}."
    )
