"""Ridge regression on random features of sets: what the models of paper R have in common."""

import abc
import copy
import functools
import operator
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.core.errors import InputError, warn_user
from finetti.core.numerics.float64 import float64
from finetti.estimators.chunks import Chunk, Chunks, LocalChunks
from finetti.estimators.learned_norms import LearnedNorms
from finetti.estimators.ridge import (
    Floats,
    RidgePath,
    RidgeRule,
    RidgeSystem,
    Rows,
    check_ridge,
    choose,
    decompose_rows,
)
from finetti.estimators.set_models import SetModel
from finetti.estimators.sets import (
    TokenSets,
    in_precision,
    in_precision_of,
    mean_weights,
    read_sets,
)
from finetti.estimators.sums import GramSums, RowSums

CHUNK_ROWS = 1024  # whose features are in memory at once, where there are more rows than features


class FeatureRidge(SetModel):
    """f(x) = c + Φ(x)·β, Φ drawn once in `fit` and β by ridge regression.

    As many coefficients as features: the primal form where there are more rows or where they come
    in chunks, one pass, in memory that does not grow with them; the dual form where there are
    fewer.
    """

    ridge: Any
    ridges: Any
    fit_intercept: bool
    random_state: Any

    model_: Any
    coef_: Floats
    _sums: RowSums | None

    @abc.abstractmethod
    def _draw(self, key: Any, sets: TokenSets) -> Any:
        """The model before it is fitted."""

    def _fit(self, sets: TokenSets, targets: Floats, weights: Floats) -> None:
        self._start(sets, targets)
        self._solve(LocalChunks([Chunk(sets, targets, weights)], len(targets)))

    def _fit_chunks(self, chunks: Chunks) -> None:
        sets, targets, weights = self._check(chunks.first(), reset=True)
        self._start(sets, targets)
        self.token_scale_ = self._scale_of(
            lambda: (
                sets.square_sums(weights)
                if chunks.is_read_once
                else chunks.fold(functools.partial(_add_squares, self), operator.add)
            )
        )
        self._solve(chunks)

    def _add(self, chunk: Chunk) -> None:
        """Of `partial_fit`: the rows so far are kept as sums."""
        if getattr(self, "_sums", None) is None:
            if hasattr(self, "coef_"):
                warn_user(
                    f"This {type(self).__name__} was fitted by `fit`, which keeps no sums to add "
                    "rows to: `partial_fit` starts anew, and the earlier rows no longer count. To "
                    "add to rows, give them to `partial_fit`, too."
                )
            sets, targets, weights = self._check(chunk, reset=True)
            self._start(sets, targets)
            self.token_scale_ = self._scale_of(lambda: sets.square_sums(weights))
        # Of a copy: what is added in place could not be taken back.
        self._sums = _add_chunk(self, self._rule, copy.deepcopy(self._sums), chunk)
        self._finish(self._sums, None)

    @property
    def _rule(self) -> RidgeRule:
        owner = type(self).__name__
        return RidgeRule(check_ridge(self.ridge, owner), self.ridges, owner)

    @property
    def _n_coefficients(self) -> int:
        return int(np.prod(self._units))

    def _start(self, sets: TokenSets, targets: Floats) -> None:
        _ = self._rule  # refused before any work is done
        self._sums, self._outputs_shape = None, targets.shape[1:]
        self.model_ = drawn(self, sets)
        self._units, self._dtype = self.model_.values.shape, sets.keys.dtype

    def _solve(self, chunks: Chunks) -> None:
        if chunks.n_rows is not None and chunks.n_rows <= self._n_coefficients:
            self._solve_dual(chunks)
        else:
            step = functools.partial(_add_chunk, self, self._rule)
            self._finish(chunks.fold(step, _merge_sums), chunks)

    def _solve_dual(self, chunks: Chunks) -> None:
        """With the features of all rows in memory, no more numbers than their products are."""
        step = functools.partial(_add_features, self)
        features, targets, weights = map(
            np.concatenate, zip(*chunks.fold(step, operator.add), strict=True)
        )
        center = weights @ features / weights.sum() if self.fit_intercept else 0.0
        square = float(np.sum(weights @ (features - center) ** 2))
        grid = self._rule.grid(square / np.count_nonzero(weights))
        system, rows = decompose_rows(
            features,
            targets,
            weights,
            has_intercept=bool(self.fit_intercept),
            least_ridge=float(grid.min()),
        )
        method = self._rule.method
        if isinstance(method, str):
            self.ridge_path_ = choose(system, method, [rows], grid)
            self.ridge_path_.warn_at_edge(type(self).__name__)
            self.ridge_ = self.ridge_path_.ridge
        else:
            self.ridge_path_, self.ridge_ = None, method
        self._keep_solved(system)

    def _finish(self, sums: RowSums, chunks: Chunks | None) -> None:
        """From the sums of all rows; and from these once more for leave-one-out.

        Rows that are gone after one pass leave generalized cross-validation, which needs sums only.
        """
        method, intercept = self._rule.method, bool(self.fit_intercept)
        if not isinstance(method, str):
            self.ridge_, self.ridge_path_ = method, None
            self._keep(*sums.solve(method, intercept))
            return
        system = sums.system(intercept)
        grid = self._rule.grid(float(system.eigenvalues.sum()) / sums.n_rows)
        if method == "gcv" or chunks is None or chunks.is_read_once:
            path = choose(system, "gcv", (), grid)
        else:
            step = functools.partial(_add_left_out, self, system, grid, sums.weight)
            total, weight = chunks.fold(step, _join_sums)
            path = RidgePath(method, grid, total / weight)
        if chunks is not None:  # else there may be more rows to come
            path.warn_at_edge(type(self).__name__)
        self.ridge_path_, self.ridge_ = path, path.ridge
        self._keep_solved(system)

    def _keep_solved(self, system: RidgeSystem) -> None:
        coefficients = system.coefficients(self.ridge_)
        self._keep(coefficients, system.intercept(coefficients))

    def _keep(self, coefficients: Floats, intercept: Any) -> None:
        if not self._outputs_shape:
            coefficients, intercept = coefficients[:, 0], float(intercept[0])
        self.coef_, self.intercept_ = coefficients.T, intercept
        shape = *self._units, *coefficients.shape[1:]
        # f has no 1/M in front, Φ has M^(−1/2).
        values = coefficients.reshape(shape) / self._units[0] ** 0.5
        with in_precision(self._dtype):
            model = self.model_.with_values(values.astype(self._dtype))
            self.model_ = jax.tree.map(np.asarray, model)
        self.norms_ = LearnedNorms.of_values(values, len(self._units))

    def _read(self, chunk: Chunk) -> tuple[TokenSets, Floats, Floats | None]:
        """Sets, targets and weights of a chunk, checked, and its tokens scaled."""
        if isinstance(chunk.X, TokenSets):  # by `fit`, which has done both
            return chunk.X, chunk.y, chunk.sample_weight
        sets, targets, weights = self._check(chunk)
        return sets.scaled(self.token_scale_), targets, weights

    def _check(
        self, chunk: Chunk, *, reset: bool = False
    ) -> tuple[TokenSets, Floats, Floats | None]:
        """Sets, targets and weights of a chunk as it was given."""
        X, y, sample_weight, query, mask = chunk
        targets = self._as_targets(X, y)
        sets = read_sets(self, X, query, mask, n_tokens=self.n_tokens, reset=reset)
        if not reset:
            if targets.shape[1:] != self._outputs_shape:
                raise InputError(
                    f"All chunks must have targets of one shape. Got {targets.shape[1:]} after "
                    f"{self._outputs_shape} for a row."
                )
            sets = sets.astype(self._dtype)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, sets.query, ensure_non_negative=True)
        return sets, targets, weights

    def _predict(self, sets: TokenSets) -> NDArray[Any]:
        parts = [part.astype(np.float64) for _, part in over_chunks(outputs_of, self.model_, sets)]
        return np.concatenate(parts) + self.intercept_


def drawn(estimator: Any, sets: TokenSets) -> Any:
    """What ``estimator`` draws: the same in both precisions."""
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    with float64():
        model = estimator._draw(jax.random.key(seed), sets)
    # As NumPy arrays: those of JAX lose float64 in a pickle.
    return jax.tree.map(lambda leaf: np.asarray(leaf, sets.keys.dtype), model)


def draw_heads(estimator: Any, key: Any, sets: TokenSets) -> RandomFeatureAttention:
    """M heads, as the arguments of ``estimator`` say."""
    return RandomFeatureAttention(
        key,
        estimator.n_heads,
        sets.keys.shape[2],
        mean_weights=mean_weights(estimator.mean, type(estimator).__name__),
        activation=estimator.activation,
    )


@jax.jit
def features_of(model: Any, query: Any, keys: Any, mask: Any) -> Any:
    """Φ as one program: the steps around it would take as long for one row."""
    return model.features(query, keys, mask)


@jax.jit
def outputs_of(model: Any, query: Any, keys: Any, mask: Any) -> Any:
    """f as one program."""
    return model(query, keys, mask)


def over_chunks(function: Any, model: Any, sets: TokenSets) -> Iterator[tuple[slice, NDArray[Any]]]:
    """``function(model, query, keys, mask)`` of some rows after the other, and which they are.

    In chunks of few sizes, so that few programs are compiled.
    """
    count = len(sets.query)
    size = min(CHUNK_ROWS, 1 << (count - 1).bit_length())
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        part = sets.take(rows)
        if rows.stop - rows.start < size:
            part = sets.take(np.arange(start, start + size) % count)
        with in_precision_of(sets):
            found = np.asarray(function(model, *part))
        if not np.isfinite(found).all():
            raise InputError(
                "Features of these tokens are too large for their precision: they are far longer "
                "than those of the fit, or `token_scale` is too large. Scale the columns."
            )
        yield rows, found[: rows.stop - rows.start]


# What happens to one chunk, wherever it lies.


def _add_squares(model: FeatureRidge, total: Floats | None, chunk: Chunk) -> Floats:
    sets, _, weights = model._check(chunk)
    sums = sets.square_sums(weights)
    return sums if total is None else total + sums


def _add_chunk(
    model: FeatureRidge, rule: RidgeRule, total: RowSums | None, chunk: Chunk
) -> RowSums:
    sets, targets, weights = model._read(chunk)
    targets = targets.reshape(len(targets), -1)
    sums = GramSums(model._n_coefficients, targets.shape[1], rule) if total is None else total
    for rows, part in over_chunks(features_of, model.model_, sets):
        sums = sums.add(part, targets[rows], None if weights is None else weights[rows])
    return sums


def _merge_sums(one: RowSums, other: RowSums) -> RowSums:
    return one.merge(other)


def _add_features(model: FeatureRidge, total: list[Any] | None, chunk: Chunk) -> list[Any]:
    sets, targets, weights = model._read(chunk)
    features = np.concatenate([part for _, part in over_chunks(features_of, model.model_, sets)])
    weights = np.ones(len(targets)) if weights is None else weights.astype(np.float64)
    return [*(total or []), (features, targets.reshape(len(targets), -1), weights)]


def _add_left_out(
    model: FeatureRidge,
    system: RidgeSystem,
    grid: Floats,
    weight: float,
    total: tuple[Floats, float] | None,
    chunk: Chunk,
) -> tuple[Floats, float]:
    sets, targets, weights = model._read(chunk)
    targets = targets.reshape(len(targets), -1)
    counts = np.ones(len(targets)) if weights is None else weights

    def parts() -> Iterator[Rows]:
        for rows, part in over_chunks(features_of, model.model_, sets):
            yield system.rows(part.astype(np.float64), targets[rows], counts[rows], weight)

    found = system.loo_sums(grid, parts())
    return found if total is None else _join_sums(total, found)


def _join_sums(one: tuple[Floats, float], other: tuple[Floats, float]) -> tuple[Floats, float]:
    return one[0] + other[0], one[1] + other[1]
