"""Anything with fit and predict as a learner: a new one for every trial.

scikit-learn, which takes a second to import, is imported where it is used: networks do without it.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import InputError
from finetti.core.threads import limit_threads
from finetti.probe.learners.base import FitLearner, Predictor
from finetti.probe.learners.recipe import Recipe

SEEDS = 2**32  # NumPy's old generators, which estimators use, take no more


def one_thread() -> AbstractContextManager[Any]:
    """OpenMP threads that wait for each other made boosting of small tables 30 times slower.

    Trials, not their loops, run side by side.
    """
    return limit_threads(1, "openmp")


@final
@dataclass(frozen=True)
class SameLabel:
    """Predicts the one label that there was: nothing else can be learned from it."""

    label: int

    def predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        """The label, for every row."""
        return np.full(len(bits), self.label, np.uint8)


@final
@dataclass(frozen=True)
class Labeled:
    """A fitted estimator whose answers are checked; those of a regressor are rounded at 1/2."""

    estimator: Any
    reference: str
    chunk: int = 2048  # rows that are asked for at once

    def predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        """The labels (n,)."""
        parts = np.split(bits, range(self.chunk, len(bits), self.chunk))
        return np.concatenate([self._predict(part) for part in parts])

    def _predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        with one_thread():
            answers = np.asarray(self.estimator.predict(bits.astype(np.float64)))
        if answers.shape != (len(bits),):
            raise InputError(
                f"The learner {self.reference} must predict labels ({len(bits)},). "
                f"Got {answers.dtype}{list(answers.shape)} instead."
            )
        if answers.dtype.kind not in "biuf":  # words, or objects that may be numbers
            others = [each for each in answers.tolist() if not _is_label(each)]
            if others:
                raise self._refuse(others)
            answers = answers.astype(np.uint8)
        if not np.isfinite(answers).all():
            raise InputError(f"The learner {self.reference} predicted numbers that are not finite.")
        if hasattr(self.estimator, "__sklearn_tags__"):
            from sklearn.base import is_regressor

            if is_regressor(self.estimator):
                return (answers >= 0.5).astype(np.uint8)
        if not np.isin(answers, (0, 1)).all():
            raise self._refuse(np.setdiff1d(answers, (0, 1)).tolist())
        return answers.astype(np.uint8)

    def _refuse(self, others: list[Any]) -> InputError:
        few = ", ".join(list(dict.fromkeys(map(repr, others)))[:3])
        return InputError(
            f"The learner {self.reference} must predict labels 0 and 1. It predicted [{few}]."
        )


def _is_label(answer: Any) -> bool:
    return isinstance(answer, int | float) and answer in (0, 1)


@final
@dataclass(frozen=True, kw_only=True)
class EstimatorLearner(FitLearner):
    """An estimator in the sense of scikit-learn, or anything else with fit and predict.

    It gets the bits as float64 (m, T) and labels 0 and 1. Where it has a parameter ``random_state``
    that is None, also in its parts, the trial's seed is put there.

    Args:
        recipe: of what it is built.
    """

    recipe: Recipe

    def settings(self) -> dict[str, Any]:
        """The options of the class or factory."""
        return self.recipe.all_options()

    def fit(self, bits: NDArray[Any], labels: NDArray[Any], seed: int) -> Predictor:
        """Fit a new one; labels that are all the same need none."""
        if (labels == labels[0]).all():
            return SameLabel(int(labels[0]))
        from sklearn.base import clone

        given = {"seed": seed, "random_state": seed % SEEDS}
        built = self.recipe.build(context_length=bits.shape[1], **given)
        estimator: Any = clone(built, safe=False)  # an instance is shared by all trials
        if hasattr(estimator, "get_params"):
            unset = {
                name: seed % SEEDS
                for name, value in estimator.get_params().items()
                if value is None and name.rpartition("__")[2] == "random_state"
            }
            estimator.set_params(**unset)
        with one_thread():
            estimator.fit(bits.astype(np.float64), labels)
        return Labeled(estimator, self.recipe.reference)
