"""Anything with fit and predict as a learner: a new one for every trial."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import InputError
from finetti.models.answers import described
from finetti.models.sklearn_model import EstimatorModel, one_thread
from finetti.probe.learners.learner import FitLearner, Predictor


@final
@dataclass(frozen=True, kw_only=True)
class EstimatorLearner(FitLearner):
    """An estimator in the sense of scikit-learn, or anything else with fit and predict.

    It gets the bits as float64 (m, T) and labels 0 and 1; labels that are all the same need none.

    Args:
        model: the estimator.
    """

    model: EstimatorModel

    def settings(self) -> dict[str, Any]:
        """The options of the class or factory."""
        return self.model.settings

    def fit(self, bits: NDArray[Any], labels: NDArray[Any], seed: int) -> Predictor:
        """Fit a new one."""
        fitted = self.model.fit_classes(bits.astype(np.float64), labels, seed)
        return CheckedLabels(fitted, self.model.label)


@final
@dataclass(frozen=True)
class CheckedLabels:
    """A fitted estimator whose answers are checked; those of a regressor are rounded at 1/2."""

    estimator: Any
    label: str
    chunk: int = 2048  # rows that are asked for at once

    def predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        """The labels (n,)."""
        parts = np.split(bits, range(self.chunk, len(bits), self.chunk))
        return np.concatenate([self._predict(part) for part in parts])

    def _predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        with one_thread():
            answers = np.asarray(self.estimator.predict(bits.astype(np.float64)))
        if hasattr(self.estimator, "__sklearn_tags__") and answers.dtype.kind == "f":
            from sklearn.base import is_regressor

            if is_regressor(self.estimator) and np.isfinite(answers).all():
                answers = answers >= 0.5
        return as_labels(self.label, answers, len(bits))


def as_labels(label: str, found: Any, count: int) -> NDArray[np.uint8]:
    """Return ``count`` labels 0 and 1, or refuse answers that are none with a reason."""
    answers = np.asarray(found)
    if answers.shape != (count,):
        raise InputError(
            f"{label} must predict labels ({count},). Got {described(answers)} instead."
        )
    if answers.dtype.kind == "f" and not np.isfinite(answers).all():
        raise InputError(f"{label} predicted numbers that are not finite.")
    if answers.dtype.kind in "biuf":
        others = np.setdiff1d(answers, (0, 1)).tolist()
    else:  # words, or objects that may be numbers
        others = [each for each in answers.tolist() if not _is_label(each)]
    if others:
        few = ", ".join(list(dict.fromkeys(map(repr, others)))[:3])
        raise InputError(f"{label} must predict labels 0 and 1. It predicted [{few}].")
    return answers.astype(np.uint8)


def _is_label(answer: Any) -> bool:
    return isinstance(answer, int | float) and answer in (0, 1)
