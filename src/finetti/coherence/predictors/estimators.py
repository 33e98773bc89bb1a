"""Scikit-learn's estimators as predictors: fitted on the context, asked at the query."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from finetti.coherence.predictors.base import RegressionPredictor
from finetti.core.errors import FinettiError, InputError
from finetti.latent.base import Floats


class RegressorPredictor(RegressionPredictor):
    """A regressor, cloned and fitted to every context.

    Gaussian processes have a law: scikit-learn's, whose noise is ``alpha`` (and what a WhiteKernel
    adds by itself), and `ConditionalMeanRegressor`. Other targets get one by ``noise_variance``.
    """

    def __init__(self, estimator: Any, name: str = ""):
        from sklearn.gaussian_process import GaussianProcessRegressor

        from finetti.estimators import ConditionalMeanRegressor

        self.estimator, self.name = estimator, name or type(estimator).__name__
        self._is_ours = isinstance(estimator, ConditionalMeanRegressor)
        self._is_process = isinstance(estimator, GaussianProcessRegressor)
        self.gives_variance = self._is_ours or self._is_process

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """One fit per context."""
        from sklearn.base import clone

        wanted = variance and self.gives_variance
        means, variances = [], []
        single = values.shape[2] == 1
        for asked, rows, targets in zip(query, keys, values, strict=True):
            with reading(self.name, len(rows)):
                model: Any = clone(self.estimator)
                model.fit(rows, targets[:, 0] if single else targets)
                mean, deviation = self._predicted(model, asked, wanted)
            means.append(_columns(mean, single))
            variances.append(_columns(deviation, single) ** 2)
        return np.array(means), np.array(variances) if wanted else None

    def _predicted(self, model: Any, asked: Floats, wanted: bool) -> tuple[Any, Any]:
        """Mean and standard deviation, noise included; zeros where it is not wanted."""
        if not wanted:
            mean = model.predict(asked)
            return mean, np.zeros_like(mean)
        if self._is_ours:
            return model.predict(asked, return_std=True, predictive=True)
        mean, deviation = model.predict(asked, return_std=True)
        noise = np.asarray(model.alpha, np.float64)
        if noise.ndim:
            raise InputError(
                f"{self.name} has an alpha for each row, and so none for a new value. Give one "
                "number."
            )
        return mean, np.sqrt(deviation**2 + noise * np.asarray(model._y_train_std) ** 2)


class ClassifierPredictor(RegressionPredictor):
    """A classifier with ``predict_proba``: values are one-hot classes, answers their probabilities.

    A context without some class has probability 0 for it. There is no Gaussian law; the next value
    is one of the classes, so that expectations over it are exact sums over them.
    """

    linear, categorical = False, True

    def __init__(self, estimator: Any, name: str = ""):
        self.estimator, self.name = estimator, name or type(estimator).__name__

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """One fit per context."""
        from sklearn.base import clone

        found = np.zeros((*query.shape[:2], values.shape[2]))
        for index, (asked, rows, targets) in enumerate(zip(query, keys, values, strict=True)):
            classes = targets.argmax(axis=1)
            present = np.unique(classes)
            if len(present) == 1:  # nothing to tell apart
                found[index, :, present[0]] = 1.0
                continue
            with reading(self.name, len(rows)):
                model: Any = clone(self.estimator)
                model.fit(rows, classes)
                found[index][:, model.classes_] = model.predict_proba(asked)
        return found, None


@contextmanager
def reading(name: str, length: int) -> Iterator[None]:
    """What an estimator refuses names the target, and the length of the context."""
    try:
        yield
    except FinettiError:
        raise
    except ValueError as error:
        raise InputError(f"{name} cannot read a context of {length} tokens: {error}") from error


def _columns(found: Any, single: bool) -> Floats:
    """(Q,) or (Q, d) as (Q, d)."""
    array = np.asarray(found, np.float64)
    return array[:, None] if single and array.ndim == 1 else array
