"""Kernel and ridge of CME attention on a weighted table, by marginal likelihood."""

from typing import NamedTuple

import jax
import numpy as np

from finetti.attention.cme.kernel_fit import fit_kernel
from finetti.attention.cme.ridge_selection import choose_ridge
from finetti.core.numerics.float64 import float64
from finetti.display.progress import late_progress
from finetti.estimators.grams import in_float64, padding
from finetti.estimators.ridge import Floats
from finetti.estimators.weighted_kernel import WeightedKernel
from finetti.kernels.kernel import Kernel


class Hyperparameters(NamedTuple):
    """Kernel and ridge, and how the search for them went."""

    kernel: Kernel
    ridge: float
    at_bound: tuple[str, ...] = ()
    converged: bool = True


class Observations(NamedTuple):
    """Rows (n, d), values (n, t), and the roots of the weights (n,): the noise is λ/roots²."""

    table: Floats
    values: Floats
    roots: Floats


def search(
    observed: Observations,
    start: Kernel,
    ridge: float | None,
    n_starts: int,
    seed: int,
    owner: str,
) -> Hyperparameters:
    """Kernel and ridge together (`fit_kernel`); a ``ridge`` that is given stays.

    Where it takes long, ``owner`` says how far it is.
    """
    kernel, keys, values, mask, prefix = _arranged(observed, start)
    bounds = {} if ridge is None else {"ridge": (ridge, ridge)}
    with float64(), late_progress(owner, n_starts, "searches for the kernel") as report:
        found = fit_kernel(
            keys,
            values,
            mask,
            kernel=kernel,
            starts=n_starts,
            bounds=bounds,
            seed=seed,
            on_change=report,
        )
        kernel = found.module.kernel
        chosen = float(np.exp(np.asarray(found.module.log_ridge)))
    return Hyperparameters(
        in_float64(kernel.part if isinstance(kernel, WeightedKernel) else kernel),
        chosen if ridge is None else ridge,
        tuple(name.removeprefix(prefix) for name in found.at_bound),
        bool(found.converged[np.argmax(found.starts)]),
    )


def ridge_of(observed: Observations, kernel: Kernel) -> Hyperparameters:
    """The ridge alone (`choose_ridge`)."""
    weighted, keys, values, mask, _ = _arranged(observed, kernel)
    with float64():
        return Hyperparameters(kernel, choose_ridge(keys, values, mask, kernel=weighted).ridge)


def _arranged(
    observed: Observations, kernel: Kernel
) -> tuple[Kernel, Floats, Floats, np.ndarray, str]:
    """With one noise for all rows, and in a size that many tables share."""
    table, values, roots = observed
    places = padding(len(table))
    mask, prefix = np.arange(len(places)) < len(table), ""
    if (roots != 1).any():
        kernel, prefix = WeightedKernel(kernel), "part."
        table, values = np.column_stack([table, roots]), roots[:, None] * values
    with float64():
        return jax.tree.map(jax.numpy.asarray, kernel), table[places], values[places], mask, prefix
