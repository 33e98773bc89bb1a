"""Targets as scikit-learn's users give them: numbers, or classes as ±1."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from finetti.estimators.ridge_system import Floats
from finetti.estimators.table_models import bounded


class MultiTargetMixin(RegressorMixin):
    """A regressor of one target or several."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def require_targets(estimator: BaseEstimator, y: Any) -> None:
    """Refuse to fit without targets, in scikit-learn's words."""
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y "
            "is None."
        )


def regression_targets(estimator: BaseEstimator, X: Any, y: Any) -> Floats:
    """Targets of regression, checked, (n,) or (n, t)."""
    require_targets(estimator, y)
    check_consistent_length(X, y)
    y = check_array(y, dtype="float64", ensure_2d=False, input_name="y", estimator=estimator)
    y = bounded(y, "y", type(estimator).__name__, "Scale it.")
    return y if y.ndim == 2 and y.shape[1] > 1 else column_or_1d(y, warn=True)


def find_classes(estimator: BaseEstimator, y: Any) -> NDArray[Any]:
    """The classes among targets (n,), sorted, if there is anything to tell apart."""
    require_targets(estimator, y)
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y", estimator_name=type(estimator).__name__)
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) < 2:
        only = f"only one class: {classes[0]!r}" if len(classes) else "0 sample(s)"
        raise ValueError(
            f"{type(estimator).__name__} needs samples of at least 2 classes in the data, but the "
            f"data contains {only}"
        )
    return classes


def encode_signs(y: Any, classes: NDArray[Any]) -> Floats:
    """Targets as ±1, (n,) for two classes, else (n, classes)."""
    y = column_or_1d(y, warn=True)
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        known = ", ".join(map(str, classes))
        raise ValueError(f"y contains the class {unknown[0]!r}, which is none of {known}.")
    if len(classes) == 2:
        return np.where(y == classes[1], 1.0, -1.0)
    return np.where(y[:, None] == classes, 1.0, -1.0)


def decode_classes(outputs: Floats, classes: NDArray[Any]) -> NDArray[Any]:
    """The class of the largest output, (n,)."""
    best = (outputs > 0).astype(int) if outputs.ndim == 1 else outputs.argmax(axis=1)
    return classes[best]
