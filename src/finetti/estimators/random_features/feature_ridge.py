"""Ridge regression on random features of sets: what the models of paper R have in common."""

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.core.errors import InputError, warn_user
from finetti.core.numerics.float64 import float64
from finetti.estimators.criterion_path import CriterionPath
from finetti.estimators.random_features.dask_blocks import Block, DaskRows, is_dask_array
from finetti.estimators.random_features.gram_sums import GramSums
from finetti.estimators.random_features.learned_norms import LearnedNorms
from finetti.estimators.ridge_system import (
    Floats,
    RidgeRule,
    RidgeSystem,
    Rows,
    decompose_rows,
    ridge_path,
)
from finetti.estimators.sets.set_models import SetModel, SetRegressor, SignClassifier
from finetti.estimators.sets.token_sets import (
    TokenSets,
    in_precision,
    in_precision_of,
    mean_weights,
)
from finetti.estimators.targets import find_classes, require_targets

CHUNK_ROWS = 1024  # whose features are in memory at once, where there are more rows than features
SOLVED = ("model_", "coef_", "intercept_", "norms_", "ridge_", "ridge_path_")

# What happens to sets, targets and weights, wherever they lie.
Step = Callable[[TokenSets, Floats, Floats | None], Any]


class FeatureRidge(SetModel):
    """f(x) = c + Φ(x)·β, Φ drawn once in `fit` and β by ridge regression.

    As many coefficients as features: the primal form where there are more rows, one pass, in memory
    that does not grow with them; the dual form where there are fewer.
    """

    ridge: Any
    ridges: Any
    fit_intercept: bool
    random_state: Any

    model_: Any
    coef_: Floats
    _heads: Any
    _sums: GramSums | None

    @abc.abstractmethod
    def _draw(self, key: Any, sets: TokenSets) -> Any:
        """The model before it is fitted."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        query: Any = None,
        mask: Any = None,
    ) -> Self:
        """Fit to sets ``X`` and targets ``y``: numbers (n,) or (n, t), or classes (n,).

        ``X`` may be a Dask array, and then the others, too: the work is done where its blocks lie,
        and the fit is the same.
        """
        if not is_dask_array(X):
            return super().fit(X, y, sample_weight, query=query, mask=mask)
        require_targets(self, y)
        rows = DaskRows(Block(X, y, sample_weight, query, mask), type(self).__name__)
        self._keep_classes(rows.classes)
        sets, targets, _ = self._read(*rows.first(), reset=True)
        self._start(sets, targets)
        if rows.n_rows <= self._n_coefficients:
            X, y, sample_weight, query, mask = rows.whole()
            return super().fit(X, y, sample_weight, query=query, mask=mask)
        self.token_scale_ = 1.0
        self.token_scale_ = self._scale_of(lambda: self._over_blocks(rows, _square_sums))
        self._solve(functools.partial(self._over_blocks, rows))
        return self

    def _fit(self, sets: TokenSets, targets: Floats, weights: Floats | None) -> None:
        self._start(sets, targets)
        if len(targets) <= self._n_coefficients:
            self._solve_dual(sets, targets, weights)
        else:
            self._solve(lambda step: step(sets, targets, weights))

    def _add(self, X: Any, y: Any, sample_weight: Any, query: Any, mask: Any) -> None:
        """Of `partial_fit`: the rows so far are kept as sums, and solved for when asked."""
        sums = vars(self).get("_sums")
        if sums is None and "coef_" in vars(self):
            warn_user(
                f"This {type(self).__name__} was fitted by `fit`, which keeps no sums to add "
                "rows to: `partial_fit` starts anew, and the earlier rows no longer count. To "
                "add to rows, give them to `partial_fit`, too."
            )
        sets, targets, weights = self._read(X, y, sample_weight, query, mask, reset=sums is None)
        if sums is None:
            self._start(sets, targets)
            self.token_scale_ = self._scale_of(lambda: sets.square_sums(weights))
            sums = self._sums = self._new_sums()
        self._forget()
        self._add_rows(sums, sets.scaled(self.token_scale_), targets, weights)

    def __getattr__(self, name: str) -> Any:
        """What `partial_fit` leaves open is solved for when it is first asked for."""
        sums = vars(self).get("_sums")
        if name not in SOLVED or sums is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._solve_sums(sums, None)
        return vars(self)[name]

    def __sklearn_is_fitted__(self) -> bool:
        return "coef_" in vars(self) or vars(self).get("_sums") is not None

    @property
    def _rule(self) -> RidgeRule:
        return RidgeRule.of(self, "loo", "gcv")

    @property
    def _n_coefficients(self) -> int:
        return int(np.prod(self._heads.values.shape))

    def _forget(self) -> None:
        for name in SOLVED:
            vars(self).pop(name, None)

    def _start(self, sets: TokenSets, targets: Floats) -> None:
        _ = self._rule  # refused before any work is done
        self._forget()
        self._sums, self._outputs_shape = None, targets.shape[1:]
        self._heads = drawn(self, sets)

    def _read(
        self, X: Any, y: Any, sample_weight: Any, query: Any, mask: Any, *, reset: bool
    ) -> tuple[TokenSets, Floats, Floats | None]:
        sets, targets, weights = super()._read(X, y, sample_weight, query, mask, reset=reset)
        if reset:
            return sets, targets, weights
        if targets.shape[1:] != self._outputs_shape:
            raise InputError(
                f"All chunks must have targets of one shape. Got {targets.shape[1:]} after "
                f"{self._outputs_shape} for a row."
            )
        return sets.astype(self._heads.values.dtype), targets, weights

    def _over_blocks(self, rows: DaskRows, step: Step) -> Any:
        return rows.add_up(functools.partial(self._of_block, step))

    def _of_block(self, step: Step, block: Block) -> Any:
        sets, targets, weights = self._read(*block, reset=False)
        return step(sets.scaled(self.token_scale_), targets, weights)

    def _new_sums(self) -> GramSums:
        return GramSums(self._n_coefficients, int(np.prod(self._outputs_shape)), self._rule)

    def _add_rows(
        self, sums: GramSums, sets: TokenSets, targets: Floats, weights: Floats | None
    ) -> GramSums:
        columns = _columns(targets)
        for rows, part in over_chunks(features_of, self._heads, sets):
            sums.add(part, columns[rows], None if weights is None else weights[rows])
        return sums

    def _sum_rows(self, sets: TokenSets, targets: Floats, weights: Floats | None) -> GramSums:
        return self._add_rows(self._new_sums(), sets, targets, weights)

    def _left_out_sums(
        self,
        system: RidgeSystem,
        grid: Floats,
        weight: float,
        sets: TokenSets,
        targets: Floats,
        weights: Floats | None,
    ) -> Floats:
        columns, counts = _columns(targets), np.ones(len(targets)) if weights is None else weights

        def parts() -> Iterator[Rows]:
            for rows, part in over_chunks(features_of, self._heads, sets):
                yield system.rows(part.astype(np.float64), columns[rows], counts[rows], weight)

        return system.loo_sums(grid, parts())

    def _solve_dual(self, sets: TokenSets, targets: Floats, weights: Floats | None) -> None:
        """With the features of all rows in memory, no more numbers than their products are."""
        features = np.concatenate([part for _, part in over_chunks(features_of, self._heads, sets)])
        columns, intercept, rule = _columns(targets), bool(self.fit_intercept), self._rule
        system, rows = decompose_rows(
            features, columns, weights, has_intercept=intercept, rule=rule
        )
        self._keep_solved(system, *rule.choose(system, [rows]))

    def _solve(self, add_up: Callable[[Step], Any]) -> None:
        """From the sums of all rows; ``add_up`` does a step with each, once or twice."""
        self._solve_sums(add_up(self._sum_rows), add_up)

    def _solve_sums(self, sums: GramSums, add_up: Callable[[Step], Any] | None) -> None:
        """Leave-one-out reads all rows once more.

        Those of `partial_fit` are gone, and leave generalized cross-validation, which needs sums
        only.
        """
        rule, intercept = self._rule, bool(self.fit_intercept)
        if not isinstance(rule.method, str):
            self._keep(rule.method, None, *sums.solve(rule.method, intercept))
            return
        system = sums.system(intercept)
        grid = rule.grid(float(system.eigenvalues.sum()) / sums.n_rows, sums.least_ridge)
        if rule.method == "loo" and add_up is not None:
            step = functools.partial(self._left_out_sums, system, grid, sums.weight)
            *totals, weight = add_up(step)
            path = CriterionPath("ridge", "loo", grid, np.array(totals) / weight)
        else:
            path = ridge_path(system, "gcv", grid)
        if add_up is not None:  # else there may be more rows to come
            path.warn_at_edge(rule.owner)
        self._keep_solved(system, path.value, path)

    def _keep_solved(self, system: RidgeSystem, ridge: float, path: CriterionPath | None) -> None:
        coefficients = system.coefficients(ridge)
        self._keep(ridge, path, coefficients, system.intercept(coefficients))

    def _keep(
        self, ridge: float, path: CriterionPath | None, coefficients: Floats, intercept: Any
    ) -> None:
        self.ridge_, self.ridge_path_ = ridge, path
        if not self._outputs_shape:
            coefficients, intercept = coefficients[:, 0], float(intercept[0])
        self.coef_, self.intercept_ = coefficients.T, intercept
        units = self._heads.values
        # f has no 1/M in front, Φ has M^(−1/2).
        values = coefficients.reshape(*units.shape, *self._outputs_shape) / len(units) ** 0.5
        self.model_ = with_values(self._heads, values)
        self.norms_ = LearnedNorms.of_values(values, units.ndim)

    def _predict(self, sets: TokenSets) -> NDArray[Any]:
        return outputs(self.model_, sets) + self.intercept_


class FeatureRegressor(SetRegressor, FeatureRidge):
    """`partial_fit` of regressors whose sums are enough."""

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, query: Any = None, mask: Any = None
    ) -> Self:
        """Fit to these rows and to all those of earlier calls; p² numbers are kept.

        Leave-one-out would read earlier rows again: "gcv" takes the place of ridge="loo". The
        ``token_scale`` "auto" is that of the rows of the first call. Coefficients are solved for
        when they are first needed. `fit` keeps no sums: after it, the first call starts anew, with
        a warning. After a call that was interrupted some of its rows may count: start anew.
        """
        self._add(X, y, sample_weight, query, mask)
        return self


class FeatureClassifier(SignClassifier, FeatureRidge):
    """`partial_fit` of classifiers whose sums are enough."""

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

        All else is as of the regressor. After `fit`, too, the first call starts anew, by default
        with the classes of the fit.
        """
        if getattr(self, "_sums", None) is None:
            if classes is None:
                if not hasattr(self, "classes_"):
                    raise ValueError("classes must be passed on the first call to partial_fit.")
                classes = self.classes_
            self.classes_ = find_classes(self, classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"`classes={classes!r}` is not the same as on the first call to partial_fit, "
                f"{self.classes_!r}."
            )
        self._add(X, y, sample_weight, query, mask)
        return self


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


def with_values(model: Any, values: Floats) -> Any:
    """The model that was drawn, with values in its precision, as NumPy arrays."""
    dtype = model.values.dtype
    with in_precision(dtype):
        return jax.tree.map(np.asarray, model.with_values(values.astype(dtype)))


@jax.jit
def features_of(model: Any, query: Any, keys: Any, mask: Any) -> Any:
    """Φ as one program: the steps around it would take as long for one row."""
    return model.features(query, keys, mask)


@jax.jit
def outputs_of(model: Any, query: Any, keys: Any, mask: Any) -> Any:
    """f as one program."""
    return model(query, keys, mask)


def outputs(model: Any, sets: TokenSets) -> Floats:
    """f of all sets, in float64."""
    return np.concatenate(
        [part.astype(np.float64) for _, part in over_chunks(outputs_of, model, sets)]
    )


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


def _columns(targets: Floats) -> Floats:
    """(n, t)."""
    return targets.reshape(len(targets), -1)


def _square_sums(sets: TokenSets, targets: Floats, weights: Floats | None) -> Floats:
    return sets.square_sums(weights)
