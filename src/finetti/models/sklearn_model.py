"""Anything with fit and predict, as of scikit-learn: a new one for every fit.

scikit-learn, which takes a second to import, is imported where it is used: networks do without it.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import InputError
from finetti.core.process_tuning import limit_threads
from finetti.models.factory import Factory, parameters
from finetti.models.model import Model

SEEDS = 2**32  # NumPy's old generators, which estimators use, take no more


def recognize(factory: Factory, built: Any) -> Model | None:
    """Anything with fit and predict."""
    methods = (getattr(built, each, None) for each in ("fit", "predict"))
    return EstimatorModel(factory) if all(map(callable, methods)) else None


def one_thread() -> AbstractContextManager[Any]:
    """OpenMP threads that wait for each other made boosting of small tables 30 times slower."""
    return limit_threads(1, "openmp")


@final
@dataclass(frozen=True, eq=False)
class EstimatorModel(Model):
    """An estimator in the sense of scikit-learn, or anything else with fit and predict.

    Where it has a parameter ``random_state`` that is None, also in its parts, the seed is put
    there.
    """

    form = "an estimator with fit and predict"

    def fit(self, X: NDArray[Any], y: NDArray[Any], seed: int = 0) -> Any:
        """Fit a new one."""
        from sklearn.base import clone

        built = self.factory.build(X, seed=seed, random_state=seed % SEEDS)
        estimator: Any = clone(built, safe=False)  # an instance is shared by all fits
        if hasattr(estimator, "get_params"):
            unset = {
                name: seed % SEEDS
                for name, value in estimator.get_params().items()
                if value is None and name.rpartition("__")[2] == "random_state"
            }
            if unset:
                estimator.set_params(**unset)
        with one_thread():
            estimator.fit(X, y)
        return estimator

    def fit_classes(self, X: NDArray[Any], y: NDArray[Any], seed: int = 0) -> Any:
        """Fit a new one; classes that are all the same need none."""
        return OneClass(y[0]) if (y == y[0]).all() else self.fit(X, y, seed)

    @property
    def is_classifier(self) -> bool:
        """Whether an instance says that it predicts classes."""
        from sklearn.base import is_classifier

        found = self.factory.found
        old = getattr(found, "_estimator_type", None) == "classifier"
        return old or (hasattr(found, "__sklearn_tags__") and is_classifier(found))

    @property
    def has_law(self) -> bool:
        """Whether an instance predicts with a standard deviation that has the noise in it.

        `ConditionalMeanRegressor` and its like (``predict`` takes ``predictive``), and what is
        known of scikit-learn: the Gaussian process, whose noise is ``alpha`` (and what a
        WhiteKernel adds by itself), BayesianRidge and ARDRegression; also at the end of a pipeline.
        """
        from sklearn.linear_model import ARDRegression, BayesianRidge

        last = _last(self.factory.found)
        has_noise = isinstance(last, BayesianRidge | ARDRegression)
        return has_noise or _takes_predictive(last) or _is_process(last)

    def predict_law(self, fitted: Any, X: NDArray[Any]) -> tuple[Any, Any]:
        """Mean and standard deviation of a new value, noise included."""
        last = _last(fitted)
        if _takes_predictive(last):
            return fitted.predict(X, return_std=True, predictive=True)
        mean, deviation = fitted.predict(X, return_std=True)
        if not _is_process(last):
            return mean, deviation
        noise = np.asarray(last.alpha, np.float64)
        if noise.ndim:
            raise InputError(
                f"{self.label} has an alpha for each row, and so none for a new value. Give one "
                "number."
            )
        return mean, np.sqrt(deviation**2 + noise * np.asarray(last._y_train_std) ** 2)


@final
class OneClass:
    """Predicts the one class that there was: nothing else can be learned from it."""

    def __init__(self, label: Any) -> None:
        self.classes_ = np.array([label])

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """The class, for every row."""
        return np.repeat(self.classes_, len(X))

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Probability 1, for every row."""
        return np.ones((len(X), 1))


def _last(estimator: Any) -> Any:
    """The estimator itself, or the one at the end of a pipeline, which answers."""
    from sklearn.pipeline import Pipeline

    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def _is_process(estimator: Any) -> bool:
    from sklearn.gaussian_process import GaussianProcessRegressor

    return isinstance(estimator, GaussianProcessRegressor)


def _takes_predictive(estimator: Any) -> bool:
    return {"return_std", "predictive"} <= parameters(estimator.predict)[0].keys()
