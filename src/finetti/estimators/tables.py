"""Estimators of ordinary tables (n, d): what is checked in `fit` and in `predict`."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from finetti.core.errors import InputError
from finetti.estimators.ridge import Floats

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


class TableModel(BaseEstimator):
    """Reads tables in float64; rows of weight 0 do not count."""

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
