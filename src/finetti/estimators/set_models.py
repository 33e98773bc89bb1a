"""Regressors and classifiers of sets: what scikit-learn sees of them, whatever the model."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from finetti.core.arguments import as_positive
from finetti.core.errors import InputError, bad_argument
from finetti.estimators.ridge import Floats, RidgePath
from finetti.estimators.sets import TokenSets, read_sets
from finetti.estimators.targets import at_least_two, classes_in, classes_of, numbers, signs
from finetti.estimators.undo import all_or_nothing

BESIDE_SETS = {"query": True, "mask": True}


class SetModel(BaseEstimator, abc.ABC):
    """Fitted to sets of tokens, see `read_sets`, with targets (n,) or (n, t)."""

    n_tokens: int
    token_scale: Any
    token_scale_: float
    ridge_: float
    ridge_path_: RidgePath | None
    intercept_: Any

    @abc.abstractmethod
    def _fit(self, sets: TokenSets, targets: Floats, weights: Floats) -> None:
        """Fit to targets (n,) or (n, t), and to tokens that are scaled already."""

    @abc.abstractmethod
    def _as_targets(self, X: Any, y: Any) -> Floats:
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
        self.token_scale_ = self._scale_of(lambda: sets.square_sums(weights))
        self._fit(sets.scaled(self.token_scale_), targets, weights)
        return self

    def _scale_of(self, square_sums: Callable[[], NDArray[np.float64]]) -> float:
        """`token_scale` as a number; the sums, see `TokenSets`, are taken for "auto" alone."""
        owner = type(self).__name__
        if not isinstance(self.token_scale, str):
            return as_positive(self.token_scale, "token_scale", owner)
        if self.token_scale != "auto":
            wanted = 'a number > 0 or "auto"'
            raise bad_argument("token_scale", owner, wanted, repr(self.token_scale))
        total, count = square_sums()
        if not np.isfinite(total):
            raise InputError(
                f"{owner} divides tokens by their root mean square length, and the squares of "
                "these overflow. Scale the columns."
            )
        return float((count / total) ** 0.5) if total > 0 else 1.0

    def _outputs(self, X: Any, query: Any, mask: Any) -> NDArray[Any]:
        check_is_fitted(self)
        sets = read_sets(self, X, query, mask, n_tokens=self.n_tokens, reset=False)
        return self._predict(sets.scaled(self.token_scale_))

    # With scikit-learn's metadata routing, cross-validation and pipelines hand these on.
    __metadata_request__fit: ClassVar = BESIDE_SETS
    __metadata_request__partial_fit: ClassVar = BESIDE_SETS
    __metadata_request__predict: ClassVar = BESIDE_SETS
    __metadata_request__decision_function: ClassVar = BESIDE_SETS
    __metadata_request__score: ClassVar = BESIDE_SETS

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


class SetRegressor(RegressorMixin, SetModel):
    """Numbers as targets, one or several."""

    @all_or_nothing
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> Self:
        """Fit to sets ``X`` and targets ``y``, (n,) or (n, t)."""
        return self._fit_checked(X, self._as_targets(X, y), sample_weight, query, mask)

    def _as_targets(self, X: Any, y: Any) -> Floats:
        return numbers(self, X, y)

    def predict(self, X: Any, *, query: Any = None, mask: Any = None) -> NDArray[Any]:
        """(n,) or (n, t)."""
        return self._outputs(X, query, mask)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> float:
        """R² of the predictions."""
        found = self.predict(X, query=query, mask=mask)
        return float(r2_score(y, found, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SignClassifier(ClassifierMixin, SetModel):
    """Classes as targets ±1: one for two classes, else one for each."""

    classes_: NDArray[Any]

    @all_or_nothing
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> Self:
        """Fit to sets ``X`` and classes ``y``, (n,)."""
        self.classes_ = at_least_two(self, classes_in(self, y))
        return self._fit_checked(X, self._as_targets(X, y), sample_weight, query, mask)

    def _as_targets(self, X: Any, y: Any) -> Floats:
        check_consistent_length(X, y)
        return signs(y, self.classes_)

    def decision_function(self, X: Any, *, query: Any = None, mask: Any = None) -> NDArray[Any]:
        """Of the second class, (n,), or of every class, (n, classes)."""
        return self._outputs(X, query, mask)

    def predict(self, X: Any, *, query: Any = None, mask: Any = None) -> NDArray[Any]:
        """The class of the largest output, (n,)."""
        outputs = self.decision_function(X, query=query, mask=mask)
        return classes_of(outputs, self.classes_)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> float:
        """The share of sets whose class is found."""
        found = self.predict(X, query=query, mask=mask)
        return float(accuracy_score(y, found, sample_weight=sample_weight))
