"""One pass over rows in parts: all that a ridge regression needs of them, in memory p².

`GramSums` adds up AᵀA at the speed of matrix products, and squares the condition number.
`TriangularSums` keeps the R of a QR factorization instead: twice the work, and every ridge down to
rounding of the features themselves is resolved.
"""

import abc
from typing import Self

import numpy as np
import scipy.linalg

from finetti.estimators.ridge import Floats, Means, RidgeSystem, gram_eigen, system_of


class RowSums(abc.ABC):
    """Rows that were added up; parts in any order, and sums of sums, give the same."""

    n_rows: int = 0
    weight: float = 0.0

    @abc.abstractmethod
    def add(self, features: Floats, targets: Floats, weights: Floats | None = None) -> Self:
        """Some rows more, (m, p) and (m, t), of weights (m,)."""

    @abc.abstractmethod
    def merge(self, other: Self) -> Self:
        """The rows of both."""

    @abc.abstractmethod
    def system(self, has_intercept: bool = True) -> RidgeSystem:
        """The regression of all rows so far."""


class TriangularSums(RowSums):
    """R of [√s, √sΦ, √sY] = QR: row 0 holds the means, the rest is centered by itself."""

    def __init__(self, n_features: int, n_targets: int):
        self.shape = n_features, n_targets
        self.triangle = np.zeros((0, 1 + n_features + n_targets))

    def add(self, features: Floats, targets: Floats, weights: Floats | None = None) -> Self:
        """Rotated into the triangle."""
        roots = np.ones(len(features)) if weights is None else np.sqrt(weights)
        rows = roots[:, None] * np.concatenate(
            [np.ones((len(features), 1)), features, targets], axis=1
        )
        self.n_rows += int(np.count_nonzero(roots))
        self.weight += float(np.sum(roots**2))
        return self._rotate(rows)

    def merge(self, other: Self) -> Self:
        """The triangle of both triangles."""
        self.weight, self.n_rows = self.weight + other.weight, self.n_rows + other.n_rows
        return self._rotate(other.triangle)

    def _rotate(self, rows: Floats) -> Self:
        stacked = np.concatenate([self.triangle, rows])
        (self.triangle,) = scipy.linalg.qr(stacked, mode="r", check_finite=False, overwrite_a=True)
        self.triangle = self.triangle[: stacked.shape[1]]
        return self

    def system(self, has_intercept: bool = True) -> RidgeSystem:
        """Singular values of the triangle."""
        n_features, n_targets = self.shape
        triangle = self.triangle
        if not has_intercept:
            (triangle,) = scipy.linalg.qr(triangle[:, 1:], mode="r", check_finite=False)
            means = Means(self.n_rows, False, np.zeros(n_features), np.zeros(n_targets))
        else:
            row = triangle[0, 1:] / triangle[0, 0]
            means = Means(self.n_rows, True, row[:n_features], row[n_features:])
            triangle = triangle[1:, 1:]
        own, below = triangle[:n_features], triangle[n_features:, n_features:]
        left, values, transposed = scipy.linalg.svd(
            own[:, :n_features], full_matrices=False, check_finite=False
        )
        scores = left.T @ own[:, n_features:]
        return system_of(values, transposed.T, scores, np.sum(below**2, axis=0), means)[0]


class GramSums(RowSums):
    """Σsφφᵀ, Σsφyᵀ and Σsyyᵀ about the mean of the first part, so that little cancels."""

    def __init__(self, n_features: int, n_targets: int):
        self.shape = n_features, n_targets
        self.origin = np.zeros(n_features + n_targets)
        self.first = np.zeros(n_features + n_targets)
        self.features = np.zeros((n_features, n_features))
        self.cross = np.zeros((n_features, n_targets))
        self.squares = np.zeros(n_targets)

    def add(self, features: Floats, targets: Floats, weights: Floats | None = None) -> Self:
        """One product of the rows with themselves."""
        weights = np.ones(len(features)) if weights is None else weights
        means = [weights @ part / max(weights.sum(), 1e-300) for part in (features, targets)]
        if not self.n_rows:
            self.origin = np.concatenate(means)
        n_features = self.shape[0]
        roots = np.sqrt(weights)[:, None]
        rows = roots * (features - self.origin[:n_features])
        right = roots * (targets - self.origin[n_features:])
        self.n_rows += int(np.count_nonzero(weights))
        self.weight += float(weights.sum())
        self.first += np.concatenate([roots[:, 0] @ rows, roots[:, 0] @ right])
        self.features += rows.T @ rows
        self.cross += rows.T @ right
        self.squares += np.sum(right**2, axis=0)
        return self

    def merge(self, other: Self) -> Self:
        """The other's sums, about this origin."""
        if not self.n_rows:
            self.origin = other.origin
        features, cross, squares = other.about(self.origin)
        self.first += other.first + other.weight * (other.origin - self.origin)
        self.features += features
        self.cross += cross
        self.squares += squares
        self.weight, self.n_rows = self.weight + other.weight, self.n_rows + other.n_rows
        return self

    def about(self, origin: Floats) -> tuple[Floats, Floats, Floats]:
        """Σs(φ − o)(φ − o)ᵀ, Σs(φ − o)(y − o)ᵀ and the diagonal of Σs(y − o)(y − o)ᵀ."""
        n_features = self.shape[0]
        step = self.origin - origin
        x, y = step[:n_features], step[n_features:]
        sum_x, sum_y = self.first[:n_features], self.first[n_features:]
        return (
            self.features + np.outer(x, sum_x) + np.outer(sum_x, x) + self.weight * np.outer(x, x),
            self.cross + np.outer(x, sum_y) + np.outer(sum_x, y) + self.weight * np.outer(x, y),
            self.squares + 2 * y * sum_y + self.weight * y**2,
        )

    def system(self, has_intercept: bool = True) -> RidgeSystem:
        """Eigenvalues of the sums about the mean."""
        n_features, n_targets = self.shape
        center = np.zeros(n_features + n_targets)
        if has_intercept:
            center = self.origin + self.first / self.weight
        features, cross, squares = self.about(center)
        values, vectors = gram_eigen(features)
        known = np.where(values > 0, values, np.inf)[:, None]
        scores = vectors.T @ cross / known
        rest = np.maximum(squares - np.sum(scores**2, axis=0), 0.0)
        means = Means(self.n_rows, has_intercept, center[:n_features], center[n_features:])
        return system_of(values, vectors, scores, rest, means)[0]
