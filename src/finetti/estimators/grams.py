"""Gram matrices of tables in float64, compiled for few shapes: one row is answered fast."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import scipy.spatial.distance

from finetti.core.numerics.float64 import float64
from finetti.estimators.ridge import Floats
from finetti.kernels.kernel import Kernel
from finetti.kernels.kernel import in_float64 as in_float64
from finetti.kernels.rbf import RBF

LEAST_BITS, MOST_BITS = 5, 8  # tables of 32, 64, 128, 256 rows
CHUNK_ROWS = 1024
DISTANCE_ROWS = 500


def padding(n_rows: int) -> np.ndarray:
    """Which rows stand in a table of a size that many tables share: all, then some again.

    A power of two for few rows, whose work is small beside compilation; else at most 7 % more.
    """
    bits = max((n_rows - 1).bit_length(), LEAST_BITS)
    step = 1 << (bits if bits <= MOST_BITS else bits - 5)
    return np.arange(-(-n_rows // step) * step) % n_rows


def chunks(n_rows: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Parts of many rows, each with its padding."""
    for start in range(0, n_rows, CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, n_rows))
        size = 1 << (rows.stop - start - 1).bit_length()
        yield rows, start + np.arange(size) % (rows.stop - start)


@jax.jit
def _gram(kernel: Kernel, xs: Any, ys: Any) -> Any:
    return kernel.gram(xs, ys)


@jax.jit
def _diagonal(kernel: Kernel, xs: Any) -> Any:
    return kernel.diagonal(xs)


def gram(kernel: Kernel, xs: Floats) -> Floats:
    """K(x_i, x_j)."""
    n_rows = len(xs)
    with float64():
        return np.asarray(_gram(kernel, xs[padding(n_rows)], None))[:n_rows, :n_rows].copy()


def cross_gram(kernel: Kernel, xs: Floats, padded: Floats, n_rows: int) -> Floats:
    """K(x_i, y_j), given the ``n_rows`` ys with their `padding`."""
    found = np.empty((len(xs), n_rows))
    with float64():
        for rows, places in chunks(len(xs)):
            part = np.asarray(_gram(kernel, xs[places], padded))
            found[rows] = part[: rows.stop - rows.start, :n_rows]
    return found


def diagonal(kernel: Kernel, xs: Floats) -> Floats:
    """K(x_i, x_i)."""
    found = np.empty(len(xs))
    with float64():
        for rows, places in chunks(len(xs)):
            found[rows] = np.asarray(_diagonal(kernel, xs[places]))[: rows.stop - rows.start]
    return found


def median_distance(xs: Floats) -> float:
    """Between two rows of a table that differ; 1 where there are none."""
    # Every k-th row will do, and needs no randomness.
    some = xs[:: -(-len(xs) // DISTANCE_ROWS)]
    distances = scipy.spatial.distance.pdist(some)
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 1.0


def default_kernel(xs: Floats) -> Kernel:
    """The Gaussian kernel as wide as the table."""
    with float64():
        return RBF(median_distance(xs))
