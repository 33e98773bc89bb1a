"""Scikit-learn's estimators as predictors: fitted on the context, asked at the query."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from finetti.coherence.predictors.base import RegressionPredictor
from finetti.core.arguments import Floats, one_hot
from finetti.core.arrays import check_finite
from finetti.core.errors import FinettiError, InputError, bad_argument


class RegressorPredictor(RegressionPredictor):
    """A regressor, cloned and fitted to every context.

    Some have a law: scikit-learn's Gaussian process, whose noise is ``alpha`` (and what a
    WhiteKernel adds by itself), BayesianRidge and ARDRegression, whose ``return_std`` has the noise
    in it, and `ConditionalMeanRegressor`; also at the end of a pipeline. Other targets get one by
    ``noise_variance``.
    """

    def __init__(self, estimator: Any, name: str = ""):
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.linear_model import ARDRegression, BayesianRidge

        from finetti.estimators import ConditionalMeanRegressor

        self.estimator, self.name = estimator, name or type(estimator).__name__
        last = _last(estimator)
        self._is_ours = isinstance(last, ConditionalMeanRegressor)
        self._is_process = isinstance(last, GaussianProcessRegressor)
        includes_noise = isinstance(last, BayesianRidge | ARDRegression)
        self.gives_variance = self._is_ours or self._is_process or includes_noise

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """One fit per context."""
        from sklearn.base import clone

        wanted = variance and bool(self.gives_variance)
        means, variances = [], []
        single = values.shape[2] == 1
        # Copies, since an estimator may be allowed to overwrite them (copy_X=False).
        for asked, rows, targets in zip(query.copy(), keys.copy(), values.copy(), strict=True):
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
        if not self._is_process:
            return mean, deviation
        process = _last(model)
        noise = np.asarray(process.alpha, np.float64)
        if noise.ndim:
            raise InputError(
                f"{self.name} has an alpha for each row, and so none for a new value. Give one "
                "number."
            )
        return mean, np.sqrt(deviation**2 + noise * np.asarray(process._y_train_std) ** 2)


def _last(estimator: Any) -> Any:
    """The estimator itself, or the one at the end of a pipeline, which answers."""
    from sklearn.pipeline import Pipeline

    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


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
        copies = zip(query.copy(), keys.copy(), values, strict=True)
        for index, (asked, rows, targets) in enumerate(copies):
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


def as_classes(labels: Any, n_axes: int, owner: str) -> Floats:
    """The unit vectors of labels of any kind, (L,) or (L, 1), or with an axis of contexts before.

    Rows that are unit vectors already, of ``n_axes`` axes and at least two columns, stay as they
    are: they may have classes that no row is of.

    >>> as_classes(["no", "yes", "no"], 2, "order_defect")
    array([[1., 0.],
           [0., 1.],
           [1., 0.]])
    """
    array = np.asarray(labels)
    if array.ndim == n_axes and array.shape[-1] >= 2 and _are_units(array):
        return array.astype(np.float64)
    if array.ndim == n_axes and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim != n_axes - 1:
        wanted = "labels, one per key, or rows of 0 and 1 of sum 1"
        raise bad_argument("values", owner, wanted, f"shape {array.shape}")
    classes, letters = _told_apart(array, owner)
    if len(classes) < 2:  # no answer could ever move
        raise bad_argument("values", owner, "labels of at least two classes", f"{len(classes)}")
    return one_hot(letters.reshape(array.shape), len(classes))


def _are_units(rows: Any) -> bool:
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=-1) == 1).all())


def _told_apart(labels: Any, owner: str) -> tuple[Any, Any]:
    """The classes, and which of them each label is."""
    from sklearn.utils.multiclass import check_classification_targets

    if np.issubdtype(labels.dtype, np.floating):
        check_finite(labels, "values", owner)
    try:
        check_classification_targets(labels.ravel())
        return np.unique(labels, return_inverse=True)
    except (TypeError, ValueError) as error:  # measurements, or words among numbers
        raise InputError(f"{owner} needs labels of classes as values: {error}") from error


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
    array = np.asarray(found)
    return array[:, None] if single and array.ndim == 1 else array
