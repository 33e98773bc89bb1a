"""One pass over rows in parts: all that a ridge regression needs of them, in memory p².

`GramSums` adds up AᵀA at the speed of matrix products, and squares the condition number.
`TriangularSums` keeps the R of a QR factorization instead: several times the work, and every ridge
down to rounding of the features themselves is resolved. Sums that know their ridges go over from
the first to the second by themselves, before squares no longer serve.
"""

import abc
from typing import Any, Self

import numpy as np
import scipy.linalg

from finetti.core.numerics.extremes import largest_of
from finetti.estimators.ridge import (
    DOUBLE_UNIT,
    SINGLE_UNIT,
    Floats,
    Means,
    RidgeRule,
    RidgeSystem,
    gram_eigen,
    rounding_of,
    squares_serve,
    system_of,
    unit_of,
)

# Times the rounding of squares: above it an eigenvalue is certain, and far below every ridge.
CERTAIN_UNITS = 100
SINGLE_ROWS = 16384  # added up in float32 before they are added to the others in float64


# All from one library: the threads of NumPy's BLAS would spin beside those of SciPy's.
_product: Any = scipy.linalg.get_blas_funcs("gemm", dtype="d")
_single_product: Any = scipy.linalg.get_blas_funcs("gemm", dtype="f")
# In place: C + AᵀA in both precisions, C + xyᵀ + yxᵀ and C + a·xxᵀ, of which the upper triangle.
_add_square: Any = scipy.linalg.get_blas_funcs("syrk", dtype="d")
_add_single_square: Any = scipy.linalg.get_blas_funcs("syrk", dtype="f")
_add_product: Any = scipy.linalg.get_blas_funcs("syr2", dtype="d")
_add_outer: Any = scipy.linalg.get_blas_funcs("syr", dtype="d")


def _triangle(rows: Floats) -> Any:
    """R of the rows."""
    return scipy.linalg.qr(rows, mode="r", check_finite=False)[0]


class RowSums(abc.ABC):
    """Rows that were added up; parts in any order, and sums of sums, give the same."""

    n_rows: int = 0
    weight: float = 0.0
    unit: float = 0.0  # the coarsest precision among the features
    shape: tuple[int, int]

    @abc.abstractmethod
    def add(self, features: Any, targets: Floats, weights: Floats | None = None) -> "RowSums":
        """Some rows more, (m, p) and (m, t), of weights (m,). Use what is returned."""

    @abc.abstractmethod
    def merge(self, other: "RowSums") -> "RowSums":
        """The rows of both. Use what is returned."""

    @abc.abstractmethod
    def system(self, has_intercept: bool = True) -> RidgeSystem:
        """The regression of all rows so far."""

    @property
    @abc.abstractmethod
    def size(self) -> float:
        """√Σs‖φ‖²."""

    @property
    def rounding(self) -> float:
        """The largest singular value that is rounding of the features."""
        return rounding_of(self.size, self.unit, self.shape[0], self.n_rows)

    def solve(self, ridge: float, has_intercept: bool = True) -> tuple[Floats, Floats]:
        """Coefficients (p, t) and intercept (t,) at one ridge."""
        system = self.system(has_intercept)
        coefficients = system.coefficients(ridge)
        return coefficients, system.intercept(coefficients)


class TriangularSums(RowSums):
    """R of [√s, √sΦ, √sY] = QR: row 0 holds the means, the rest is centered by itself."""

    def __init__(self, n_features: int, n_targets: int):
        self.shape = n_features, n_targets
        self.triangle = np.zeros((0, 1 + n_features + n_targets))

    def add(self, features: Any, targets: Floats, weights: Floats | None = None) -> Self:
        """Rotated into the triangle."""
        roots = np.ones(len(features)) if weights is None else np.sqrt(weights)
        rows = roots[:, None] * np.concatenate(
            [np.ones((len(features), 1)), features, targets], axis=1
        )
        self.n_rows += int(np.count_nonzero(roots))
        self.weight += float(np.sum(roots**2))
        self.unit = largest_of(self.unit, unit_of(features))
        return self.rotate(rows)

    def merge(self, other: RowSums) -> Self:
        """The triangle of both triangles."""
        triangular = other.triangular() if isinstance(other, GramSums) else other
        assert isinstance(triangular, TriangularSums)
        self.weight, self.n_rows = self.weight + other.weight, self.n_rows + other.n_rows
        self.unit = largest_of(self.unit, other.unit)
        return self.rotate(triangular.triangle)

    @property
    def size(self) -> float:
        """Rotations keep lengths."""
        return float(np.linalg.norm(self.triangle[:, 1 : 1 + self.shape[0]]))

    def rotate(self, rows: Floats) -> Self:
        """Rows [√s, √sφ, √sy] more, which are counted elsewhere."""
        stacked = np.concatenate([self.triangle, rows])
        self.triangle = _triangle(stacked)[: stacked.shape[1]]
        return self

    def system(self, has_intercept: bool = True) -> RidgeSystem:
        """Singular values of the triangle."""
        n_features, n_targets = self.shape
        triangle = self.triangle
        if not has_intercept:
            triangle = _triangle(triangle[:, 1:])
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
        rest = np.sum(below**2, axis=0)
        return system_of(values, transposed.T, scores, rest, means, self.rounding)[0]


class GramSums(RowSums):
    """Σsφφᵀ, Σsφyᵀ and Σsyyᵀ about the mean of the first part, so that little cancels.

    Args:
        n_features: p.
        n_targets: t.
        rule: the ridges in question. Without it the sums stay squares, in float64. With it they
            become `TriangularSums` where squares do not serve the least ridge, and float32 features
            are multiplied in float32 as long as those products serve it.
    """

    def __init__(self, n_features: int, n_targets: int, rule: RidgeRule | None = None):
        self.shape, self.rule = (n_features, n_targets), rule
        self.origin = np.zeros(n_features + n_targets)
        self.first = np.zeros(n_features + n_targets)
        # The upper triangle alone is kept up; in Fortran's order, so that BLAS adds in place.
        self.upper = np.zeros((n_features, n_features), order="F")
        self.spread = 0.0  # its trace
        self.single: Any = None
        self.single_rows = 0
        self.cross = np.zeros((n_features, n_targets))
        self.squares = np.zeros((n_targets, n_targets))

    @property
    def trace(self) -> float:
        """Σs‖φ − φ̄‖²."""
        about_mean = np.sum(self.first[: self.shape[0]] ** 2) / max(self.weight, 1e-300)
        return float(self.spread - about_mean)

    @property
    def size(self) -> float:
        """From the sums about the origin."""
        origin, first = (part[: self.shape[0]] for part in (self.origin, self.first))
        square = self.spread + 2 * origin @ first + self.weight * origin @ origin
        return float(max(square, 0.0)) ** 0.5

    def add(self, features: Any, targets: Floats, weights: Floats | None = None) -> RowSums:
        """One product of the rows with themselves."""
        n_features = self.shape[0]
        counts = np.ones(len(features)) if weights is None else weights
        if not self.n_rows:
            means = [counts @ part / max(counts.sum(), 1e-300) for part in (features, targets)]
            self.origin = np.concatenate(means)
        roots = np.sqrt(counts)[:, None]
        rows = features - self.origin[:n_features].astype(features.dtype)
        if weights is not None:
            rows *= roots.astype(rows.dtype)
        spread, in_single = float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64)), False
        if self.rule is not None:
            n_rows = self.n_rows + int(np.count_nonzero(counts))
            trace = self.trace + spread
            least = float(self.rule.grid(trace / max(n_rows, 1)).min())
            if not squares_serve(trace, least):
                return self.triangular().add(features, targets, weights)
            in_single = squares_serve(trace, least, SINGLE_UNIT)
        if rows.dtype != np.float64 and not in_single:
            rows = roots * (features.astype(np.float64) - self.origin[:n_features])
        right = roots * (targets - self.origin[n_features:])
        self.n_rows += int(np.count_nonzero(counts))
        self.weight += float(counts.sum())
        self.unit = largest_of(self.unit, unit_of(features))
        beside = np.concatenate([roots, right], axis=1)
        sums = (_product if rows.dtype == np.float64 else _single_product)(1.0, rows.T, beside)
        self.first += np.concatenate([sums[:, 0], roots[:, 0] @ right])
        self.cross += sums[:, 1:]
        self.squares += right.T @ right
        self.spread += spread
        self._add_rows(rows)
        return self

    def _add_rows(self, rows: Any) -> None:
        if rows.dtype == np.float64:
            _add_square(1.0, rows.T, beta=1.0, c=self.upper, overwrite_c=1)
            return
        if self.single is None:
            self.single = np.zeros(self.upper.shape, np.float32, order="F")
        beta = 1.0 if self.single_rows else 0.0
        _add_single_square(1.0, rows.T, beta=beta, c=self.single, overwrite_c=1)
        self.single_rows += len(rows)
        if self.single_rows >= SINGLE_ROWS:
            self._settle()

    def _settle(self) -> None:
        """Into float64 what was added up in float32."""
        if self.single_rows:
            self.upper += self.single
            self.single_rows = 0

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return self.__dict__ | {"single": None}

    def merge(self, other: RowSums) -> RowSums:
        """The other's sums, about this origin."""
        if not isinstance(other, GramSums):
            return other.merge(self)
        if self.rule is not None and self.n_rows and other.n_rows:
            trace = self.trace + other.trace  # and what the means differ by, which is resolved
            least = float(self.rule.grid(trace / (self.n_rows + other.n_rows)).min())
            if not squares_serve(trace, least):
                return self.triangular().merge(other)
        if not self.n_rows:
            self.origin = other.origin
        features, cross, squares = other.about(self.origin)
        self._settle()
        self.first += other.first + other.weight * (other.origin - self.origin)
        self.upper += features
        self.spread += float(np.trace(features))
        self.cross += cross
        self.squares += squares
        self.weight, self.n_rows = self.weight + other.weight, self.n_rows + other.n_rows
        self.unit = largest_of(self.unit, other.unit)
        return self

    def triangular(self) -> TriangularSums:
        """The same rows as a triangle, to the digits that these sums have."""
        sums = TriangularSums(*self.shape)
        if not self.n_rows:
            return sums
        sums.n_rows, sums.weight, sums.unit = self.n_rows, self.weight, self.unit
        center = self.origin + self.first / self.weight
        features, cross, squares = self.about(center)
        values, vectors = gram_eigen(np.block([[features, cross], [cross.T, squares]]), 0.0)
        top = self.weight**0.5 * np.concatenate([[1.0], center])
        below = np.pad(values[:, None] * vectors.T, ((0, 0), (1, 0)))
        return sums.rotate(np.concatenate([top[None], below]))

    def about(self, origin: Floats) -> tuple[Floats, Floats, Floats]:
        """Σs(φ − o)(φ − o)ᵀ, of it the upper triangle, Σs(φ − o)(y − o)ᵀ and Σs(y − o)(y − o)ᵀ."""
        self._settle()
        n_features = self.shape[0]
        step = self.origin - origin
        x, y = step[:n_features], step[n_features:]
        sum_x, sum_y = self.first[:n_features], self.first[n_features:]
        upper = self.upper.copy(order="F")
        _add_product(1.0, x, sum_x, a=upper, overwrite_a=1)
        _add_outer(self.weight, x, a=upper, overwrite_a=1)
        moved_y = np.outer(y, sum_y)
        return (
            upper,
            self.cross + np.outer(x, sum_y) + np.outer(sum_x, y) + self.weight * np.outer(x, y),
            self.squares + moved_y + moved_y.T + self.weight * np.outer(y, y),
        )

    def system(self, has_intercept: bool = True) -> RidgeSystem:
        """Eigenvalues of the sums about the mean."""
        (features, cross, squares), means = self._centered(has_intercept)
        unit = DOUBLE_UNIT if self.single is None else SINGLE_UNIT
        rounding = unit * float(np.trace(features))
        values, vectors = gram_eigen(features, None if self.rule is None else rounding)
        known = np.where(values > 0, values, np.inf)[:, None]
        scores = vectors.T @ cross / known
        rest = np.maximum(np.diag(squares) - np.sum(scores**2, axis=0), 0.0)
        certain = (CERTAIN_UNITS * rounding) ** 0.5
        return system_of(values, vectors, scores, rest, means, self.rounding, certain)[0]

    def solve(self, ridge: float, has_intercept: bool = True) -> tuple[Floats, Floats]:
        """By a Cholesky factorization, some fifty times cheaper than all eigenvalues."""
        if self.trace <= self.rounding**2 or not squares_serve(self.trace, ridge):
            return super().solve(ridge, has_intercept)
        (features, cross, _), means = self._centered(has_intercept)
        features[np.diag_indices_from(features)] += ridge
        factor = scipy.linalg.cho_factor(features, overwrite_a=True, check_finite=False)
        coefficients = scipy.linalg.cho_solve(factor, cross, check_finite=False)
        return coefficients, means.targets - means.features @ coefficients

    def _centered(self, has_intercept: bool) -> tuple[tuple[Floats, Floats, Floats], Means]:
        center = np.zeros(sum(self.shape))
        if has_intercept:
            center = self.origin + self.first / self.weight
        means = Means(self.n_rows, has_intercept, *np.split(center, [self.shape[0]]))
        return self.about(center), means
