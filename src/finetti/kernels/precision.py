"""A kernel for arithmetic in float64, whatever the precision that it was made in."""

from typing import Any

import jax
import numpy as np

from finetti.kernels.kernel import Kernel


def in_float64(kernel: Kernel) -> Kernel:
    """The kernel with its parameters as NumPy arrays: those of JAX lose float64 in a pickle.

    A parameter that was kept in single precision, by its logarithm, is read as it was written:
    RBF(0.7) is that of 0.7.
    """

    def widened(path: Any, leaf: Any) -> np.ndarray:
        if leaf.dtype == np.float32 and path[-1].name.startswith("log_"):
            return np.vectorize(_log_as_written, otypes=[np.float64])(leaf)
        return np.asarray(leaf, np.float64)

    return jax.tree_util.tree_map_with_path(widened, kernel)


def _log_as_written(log_value: float) -> float:
    """log of the shortest decimal of which single precision keeps this logarithm.

    The decimal was rounded before its logarithm was taken: near 1 that moves the logarithm by much
    more than its own unit. JAX's logarithm is off by up to two units.
    """
    value, unit = np.exp(np.float64(log_value)), np.spacing(np.float32(abs(log_value)))
    for digits in range(1, 9):
        written = float(f"{value:.{digits}g}")
        if abs(np.log(np.float64(np.float32(written))) - log_value) <= 2 * unit:
            return float(np.log(written))
    return float(log_value)
