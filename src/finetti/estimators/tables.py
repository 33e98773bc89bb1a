"""Estimators of ordinary tables (n, d): what is checked in `fit` and in `predict`."""

from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from finetti.core.errors import InputError
from finetti.estimators.grams import in_float64
from finetti.estimators.ridge import Floats
from finetti.kernels.kernel import Kernel
from finetti.kernels.token_geometry import log_parameter

LARGEST = 1e150


def bounded(entries: Any, argument: str, owner: str, advice: str) -> Any:
    """The entries, if their squares are numbers."""
    largest = np.abs(entries).max()
    if largest > LARGEST:
        raise InputError(
            f"{owner} squares entries, which beyond {LARGEST:g} overflow. Got {largest:g} in "
            f"{argument}. {advice}"
        )
    return entries


def kernel_parameters(kernel: Kernel) -> dict[str, int]:
    """Which leaf is the logarithm of a parameter, by the name that scikit-learn would give it."""
    paths = ["".join(map(str, path)) for path, _ in jax.tree_util.tree_leaves_with_path(kernel)]
    return {
        path.removeprefix(".").replace("log_", "").replace(".", "__"): place
        for place, path in enumerate(paths)
        if path.rpartition(".")[2].startswith("log_")
    }


class TableModel(BaseEstimator):
    """Reads tables in float64; rows of weight 0 do not count.

    The parameters of a kernel that is given are parameters, too: ``kernel__lengthscale``.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As of all estimators, and with ``deep`` the parameters of kernels."""
        params = super().get_params(deep=deep)
        for name, value in list(params.items()) if deep else ():
            if isinstance(value, Kernel):
                leaves = jax.tree.leaves(in_float64(value))
                for part, place in kernel_parameters(value).items():
                    params[f"{name}__{part}"] = np.exp(leaves[place])
        return params

    def set_params(self, **params: Any) -> Self:
        """As of all estimators; a kernel whose parameter is set is replaced by a new one."""
        nested = {name: params.pop(name) for name in list(params) if "__" in name}
        super().set_params(**params)
        for name, value in nested.items():
            owner, _, part = name.partition("__")
            kernel = self.get_params(deep=False).get(owner)
            if not isinstance(kernel, Kernel) or part not in kernel_parameters(kernel):
                known = sorted(self.get_params())
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: "
                    f"{known!r}."
                )
            leaves, structure = jax.tree.flatten(kernel)
            leaves[kernel_parameters(kernel)[part]] = log_parameter(
                value, part, type(kernel).__name__, ranks=(0, 1)
            )
            setattr(self, owner, structure.unflatten(leaves))
        return self

    def _table(self, X: Any) -> Floats:
        """The table of `fit`."""
        return self._bounded(validate_data(self, X, dtype="float64"))

    def _again(self, X: Any) -> Floats:
        """A table after `fit`."""
        check_is_fitted(self)
        return self._bounded(validate_data(self, X, dtype="float64", reset=False))

    def _bounded(self, table: Any) -> Floats:
        return bounded(table, "X", type(self).__name__, "Scale the columns.")

    def _weights(self, table: Floats, sample_weight: Any) -> Floats:
        if sample_weight is None:
            return np.ones(len(table))
        return _check_sample_weight(
            sample_weight, table, dtype=np.float64, ensure_non_negative=True
        )
