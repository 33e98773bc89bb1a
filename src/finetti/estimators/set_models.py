"""Regressors and classifiers of sets: what scikit-learn sees of them, whatever the model."""

import abc
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from finetti.estimators.ridge import Floats, RidgePath
from finetti.estimators.sets import TokenSets, read_sets

FLOAT: Any = np.float64  # scikit-learn's stubs know a dtype as text only


class SetModel(BaseEstimator, abc.ABC):
    """Fitted to sets of tokens, see `read_sets`, with targets (n,) or (n, t)."""

    n_tokens: int
    ridge_: float
    ridge_path_: RidgePath | None
    intercept_: Any

    @abc.abstractmethod
    def _fit(self, sets: TokenSets, targets: Floats, weights: Floats) -> None:
        """Fit to targets (n,) or (n, t)."""

    @abc.abstractmethod
    def _as_targets(self, y: Any) -> Floats:
        """What is fitted, checked: (n,) or (n, t)."""

    @abc.abstractmethod
    def _predict(self, sets: TokenSets) -> NDArray[Any]:
        """(n,) or (n, t), as the targets were."""

    def _fit_checked(
        self, X: Any, targets: Floats, sample_weight: Any, query: Any, mask: Any
    ) -> Self:
        sets = read_sets(self, X, query, mask, n_tokens=self.n_tokens, reset=True)
        weights = np.ones(len(targets))
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, sets.query, ensure_non_negative=True)
        self._fit(sets, targets, weights)
        return self

    def _outputs(self, X: Any, query: Any, mask: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self._predict(read_sets(self, X, query, mask, n_tokens=self.n_tokens, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def distinct_classes(y: Any) -> NDArray[Any]:
    """The classes in ``y``, sorted."""
    y = column_or_1d(y, warn=True)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    return np.unique(y)


class SetRegressor(RegressorMixin, SetModel):
    """Numbers as targets, one or several."""

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> Self:
        """Fit to sets ``X`` and targets ``y``, (n,) or (n, t)."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        check_consistent_length(X, y)
        return self._fit_checked(X, self._as_targets(y), sample_weight, query, mask)

    def _as_targets(self, y: Any) -> Floats:
        y = check_array(y, dtype=FLOAT, ensure_2d=False, input_name="y", estimator=self)
        return column_or_1d(y, warn=True) if y.ndim != 2 or y.shape[1] == 1 else y

    def predict(self, X: Any, *, query: Any = None, mask: Any = None) -> NDArray[Any]:
        """(n,) or (n, t)."""
        return self._outputs(X, query, mask)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SignClassifier(ClassifierMixin, SetModel):
    """Classes as targets ±1: one for two classes, else one for each."""

    classes_: NDArray[Any]

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> Self:
        """Fit to sets ``X`` and classes ``y``, (n,)."""
        check_consistent_length(X, y)
        self._set_classes(distinct_classes(y))
        return self._fit_checked(X, self._as_targets(y), sample_weight, query, mask)

    def _set_classes(self, classes: NDArray[Any]) -> None:
        if len(classes) < 2:
            only = f"only one class: {classes[0]!r}" if len(classes) else "0 sample(s)"
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data, but the "
                f"data contains {only}"
            )
        self.classes_ = classes

    def _as_targets(self, y: Any) -> Floats:
        """±1, (n,) for two classes, else (n, classes)."""
        y = column_or_1d(y, warn=True)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            known = ", ".join(map(str, self.classes_))
            raise ValueError(f"y contains the class {unknown[0]!r}, which is none of {known}.")
        if len(self.classes_) == 2:
            return np.where(y == self.classes_[1], 1.0, -1.0)
        return np.where(y[:, None] == self.classes_, 1.0, -1.0)

    def decision_function(self, X: Any, *, query: Any = None, mask: Any = None) -> NDArray[Any]:
        """Of the second class, (n,), or of every class, (n, classes)."""
        return self._outputs(X, query, mask)

    def predict(self, X: Any, *, query: Any = None, mask: Any = None) -> NDArray[Any]:
        """The class of the largest output, (n,)."""
        outputs = self.decision_function(X, query=query, mask=mask)
        best = (outputs > 0).astype(int) if outputs.ndim == 1 else outputs.argmax(axis=1)
        return self.classes_[best]
