"""Fitting to rows that do not fit in memory: what scikit-learn sees of it."""

import functools
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from finetti.core.errors import InputError
from finetti.estimators.random_features.dask_blocks import Chunk, Chunks, as_chunks
from finetti.estimators.random_features.feature_ridge import FeatureRidge
from finetti.estimators.sets.set_models import SetRegressor, SignClassifier
from finetti.estimators.targets import at_least_two, classes_in
from finetti.estimators.undo import all_or_nothing


class ChunkedRegressor(SetRegressor, FeatureRidge):
    """`fit` and `partial_fit` of regressors whose sums are enough."""

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        query: Any = None,
        mask: Any = None,
    ) -> Self:
        """Fit to sets ``X`` and targets ``y``, (n,) or (n, t).

        Beyond memory: ``X`` and ``y`` Dask arrays (the work is done where their chunks lie) or
        mapped files (`numpy.memmap`, ``np.load(path, mmap_mode="r")``); or ``X`` alone, an iterable
        of chunks ``(X, y)`` or ``(X, y, sample_weight)`` or a list of `dask.delayed` ones. All give
        the same fit, except that an iterator, which is read once, has "gcv" in place of "loo", and
        the ``token_scale`` "auto" of its first chunk.
        """
        chunks = as_chunks(Chunk(X, y, sample_weight, query, mask), type(self).__name__)
        if chunks is None:
            return super().fit(X, y, sample_weight, query=query, mask=mask)
        self._fit_chunks(chunks)
        return self

    @all_or_nothing
    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> Self:
        """Fit to these rows and to all those of earlier calls; p² numbers are kept.

        Leave-one-out would read earlier rows again: "gcv" takes the place of ridge="loo". The
        ``token_scale`` "auto" is that of the rows of the first call. `fit` keeps no sums: after it,
        the first call starts anew, with a warning.
        """
        self._add(Chunk(X, y, sample_weight, query, mask))
        return self


class ChunkedClassifier(SignClassifier, FeatureRidge):
    """`fit` and `partial_fit` of classifiers whose sums are enough."""

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        query: Any = None,
        mask: Any = None,
    ) -> Self:
        """Fit to sets ``X`` and classes ``y``, (n,).

        Beyond memory as `RandomFeatureAttentionRegressor.fit`; the classes are collected in a pass
        of their own, so that chunks that are read once need `partial_fit` with ``classes``.
        """
        owner = type(self).__name__
        chunks = as_chunks(Chunk(X, y, sample_weight, query, mask), owner)
        if chunks is None:
            if y is None:
                raise ValueError(f"{owner} requires y to be passed, but the target y is None.")
            return super().fit(X, y, sample_weight, query=query, mask=mask)
        if chunks.is_read_once:
            raise InputError(
                f"{owner} must know all classes before the first chunk of an iterator, which is "
                "read once. Give a list of chunks, or each to partial_fit(X, y, classes=…)."
            )
        self.classes_ = at_least_two(self, self._classes(chunks))
        self._fit_chunks(chunks)
        return self

    @all_or_nothing
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        query: Any = None,
        mask: Any = None,
    ) -> Self:
        """Fit to these rows and to all those of earlier calls; ``classes`` in the first one.

        The ridge is as of the regressor: "gcv" takes the place of "loo". After `fit`, too, the
        first call starts anew, by default with the classes of the fit.
        """
        if getattr(self, "_sums", None) is None:
            if classes is None:
                if not hasattr(self, "classes_"):
                    raise ValueError("classes must be passed on the first call to partial_fit.")
                classes = self.classes_
            self.classes_ = at_least_two(self, np.unique(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"`classes={classes!r}` is not the same as on the first call to partial_fit, "
                f"{self.classes_!r}."
            )
        self._add(Chunk(X, y, sample_weight, query, mask))
        return self

    def _classes(self, chunks: Chunks) -> NDArray[Any]:
        return chunks.fold(functools.partial(_add_classes, self), np.union1d)


def _add_classes(model: BaseEstimator, known: NDArray[Any] | None, chunk: Chunk) -> NDArray[Any]:
    classes = classes_in(model, chunk.y)
    return classes if known is None else np.union1d(known, classes)
