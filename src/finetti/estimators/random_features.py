"""Ridge regression on random features of sets: what the models of paper R have in common."""

import abc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from finetti.estimators.ridge import (
    Floats,
    RidgeSystem,
    Rows,
    check_ridge,
    choose,
    decompose,
    ridge_grid,
    squares_serve,
)
from finetti.estimators.set_models import SetModel
from finetti.estimators.sets import TokenSets, in_precision_of
from finetti.estimators.sums import GramSums, RowSums, TriangularSums

CHUNK_ROWS = 1024  # whose features are in memory at once, where there are more rows than features


class FeatureRidge(SetModel):
    """f(x) = c + Φ(x)·β, Φ drawn once in `fit` and β by ridge regression.

    As many coefficients as features: the primal form where there are more rows, one pass in chunks,
    in memory that does not grow with them; the dual form where there are fewer.
    """

    ridge: Any
    ridges: Any
    fit_intercept: bool
    random_state: Any

    model_: Any
    coef_: Floats

    @abc.abstractmethod
    def _draw(self, key: Any, sets: TokenSets) -> Any:
        """The model before it is fitted."""

    def _fit(self, sets: TokenSets, targets: Floats, weights: Floats) -> None:
        owner = type(self).__name__
        method = check_ridge(self.ridge, owner)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        with in_precision_of(sets):
            self.model_ = self._draw(jax.random.key(seed), sets)
        system, rows, grid = self._system(sets, targets.reshape(len(targets), -1), weights, owner)
        self.ridge_path_, self.ridge_ = None, method
        if isinstance(method, str):
            self.ridge_path_ = choose(system, method, rows, grid)
            self.ridge_ = self.ridge_path_.ridge
        coefficients = system.coefficients(self.ridge_)
        intercept = system.intercept(coefficients)
        if targets.ndim == 1:
            coefficients, intercept = coefficients[:, 0], float(intercept[0])
        self.coef_, self.intercept_ = coefficients.T, intercept
        units = self.model_.values.shape
        # f has no 1/M in front, Φ has M^(−1/2).
        values = coefficients.reshape(*units, *coefficients.shape[1:]) / units[0] ** 0.5
        with in_precision_of(sets):
            model = self.model_.with_values(values.astype(sets.keys.dtype))
            # As NumPy arrays: those of JAX lose float64 in a pickle.
            self.model_ = jax.tree.map(np.asarray, model)

    def _system(
        self, sets: TokenSets, targets: Floats, weights: Floats, owner: str
    ) -> tuple[RidgeSystem, Iterator[Rows], Floats]:
        """Primal or dual, whichever is smaller; the rows for leave-one-out, and the grid."""
        n_features = self.model_.values.size
        intercept = bool(self.fit_intercept)
        if len(targets) <= n_features:
            features = np.concatenate([part for _, part in self._features(sets)])
            total = float(np.sum(weights @ (features - features.mean(axis=0)) ** 2))
            grid = self._grid(total / len(targets), owner)
            least = float(grid.min())
            system, rows = decompose(
                features, targets, weights, has_intercept=intercept, least_ridge=least
            )
            return system, iter([rows]), grid
        sums: RowSums = GramSums(n_features, targets.shape[1])
        for rows, part in self._features(sets):
            sums.add(part, targets[rows], weights[rows])
        system = sums.system(intercept)
        grid = self._grid(float(system.eigenvalues.sum()) / len(targets), owner)
        if not squares_serve(float(system.eigenvalues.sum()), float(grid.min())):
            sums = TriangularSums(n_features, targets.shape[1])
            for rows, part in self._features(sets):
                sums.add(part, targets[rows], weights[rows])
            system = sums.system(intercept)
        again = (
            system.rows(part, targets[rows], weights[rows], sums.weight)
            for rows, part in self._features(sets)
        )
        return system, again, grid

    def _grid(self, mean_square: float, owner: str) -> Floats:
        if isinstance(self.ridge, str):
            return ridge_grid(mean_square, self.ridges, owner)
        return np.array([self.ridge], np.float64)

    def _features(self, sets: TokenSets) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Φ of some rows after the other, and which they are."""
        return self._over_chunks(self.model_.features, sets)

    def _predict(self, sets: TokenSets) -> NDArray[Any]:
        parts = [part for _, part in self._over_chunks(self.model_, sets)]
        return np.concatenate(parts) + self.intercept_

    def _over_chunks(self, function: Any, sets: TokenSets) -> Iterator[tuple[slice, NDArray[Any]]]:
        """In chunks of few sizes, so that few programs are compiled."""
        count = len(sets.query)
        size = min(CHUNK_ROWS, 1 << (count - 1).bit_length())
        for start in range(0, count, size):
            rows = slice(start, min(start + size, count))
            part = sets.take(np.arange(start, start + size) % count)
            with in_precision_of(sets):
                found = np.asarray(function(*part))
            yield rows, found[: rows.stop - rows.start].astype(np.float64)
