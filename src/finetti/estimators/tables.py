"""Estimators of ordinary tables (n, d): what is checked in `fit` and in `predict`."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from finetti.core.errors import InputError
from finetti.estimators.ridge import Floats

LARGEST = 1e150


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
        if np.abs(table).max() > LARGEST:
            raise InputError(
                f"{type(self).__name__} squares entries, which beyond {LARGEST:g} overflow. Got "
                f"{np.abs(table).max():g} in X. Scale the columns."
            )
        return table

    def _weights(self, table: Floats, sample_weight: Any) -> Floats:
        if sample_weight is None:
            return np.ones(len(table))
        return _check_sample_weight(
            sample_weight, table, dtype=np.float64, ensure_non_negative=True
        )
