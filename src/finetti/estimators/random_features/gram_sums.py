"""One pass over rows in parts: all that a ridge regression needs of them, in memory p².

Sums of products square the condition number: ridges below 1e-13 of the features' variance are not
resolved, and left out of a grid. For rows in memory `decompose_rows` has all digits.
"""

from typing import Any, Self

import numpy as np
import scipy.linalg

from finetti.core.errors import warn_user
from finetti.core.numerics.extremes import largest_of
from finetti.estimators.ridge_system import (
    DOUBLE_UNIT,
    SINGLE_UNIT,
    Floats,
    Means,
    RidgeRule,
    RidgeSystem,
    gram_eigen,
    least_ridge_of_squares,
    rounding_of,
    system_of,
    unit_of,
)

# Times the rounding of squares: above it an eigenvalue is certain, and far below every ridge.
CERTAIN_UNITS = 100
DOUBTFUL_UNITS = 10  # likewise: up to it, an eigenvalue is rounding of 0
SINGLE_ROWS = 16384  # added up in float32 before they are added to the others in float64


# All from one library: the threads of NumPy's BLAS would spin beside those of SciPy's.
_product: Any = scipy.linalg.get_blas_funcs("gemm", dtype="d")
_single_product: Any = scipy.linalg.get_blas_funcs("gemm", dtype="f")
# In place: C + AᵀA in both precisions, C + xyᵀ + yxᵀ and C + a·xxᵀ, of which the upper triangle.
_add_square: Any = scipy.linalg.get_blas_funcs("syrk", dtype="d")
_add_single_square: Any = scipy.linalg.get_blas_funcs("syrk", dtype="f")
_add_product: Any = scipy.linalg.get_blas_funcs("syr2", dtype="d")
_add_outer: Any = scipy.linalg.get_blas_funcs("syr", dtype="d")


class GramSums:
    """Σsφφᵀ, Σsφyᵀ and Σsyyᵀ about the mean of the first part, so that little cancels.

    Parts in any order, and sums of sums (``+=``), give the same.

    Args:
        n_features: p.
        n_targets: t.
        rule: the ridges in question: float32 features are multiplied in float32 as long as the
            rounding of their products is small beside the least one.

    Attributes:
        n_rows: how many rows of weight > 0 were added.
        weight: their Σs.
    """

    def __init__(self, n_features: int, n_targets: int, rule: RidgeRule):
        self.shape, self.rule = (n_features, n_targets), rule
        self.n_rows, self.weight = 0, 0.0
        self.unit = 0.0  # the coarsest precision among the features
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
    def least_ridge(self) -> float:
        """The least ridge that these sums resolve."""
        return least_ridge_of_squares(self.trace)

    @property
    def size(self) -> float:
        """√Σs‖φ‖²."""
        origin, first = (part[: self.shape[0]] for part in (self.origin, self.first))
        square = self.spread + 2 * origin @ first + self.weight * origin @ origin
        return float(max(square, 0.0)) ** 0.5

    @property
    def rounding(self) -> float:
        """The largest singular value that is rounding of the features."""
        return rounding_of(self.size, self.unit, self.shape[0], self.n_rows)

    def add(self, features: Any, targets: Floats, weights: Floats | None = None) -> Self:
        """Add rows (m, p) and (m, t), of weights (m,): one product of the rows with themselves."""
        n_features = self.shape[0]
        counts = np.ones(len(features)) if weights is None else weights
        if not self.n_rows:
            means = [counts @ part / max(counts.sum(), 1e-300) for part in (features, targets)]
            self.origin = np.concatenate(means)
        roots = np.sqrt(counts)[:, None]
        rows = features - self.origin[:n_features].astype(features.dtype)
        if weights is not None:
            rows *= roots.astype(rows.dtype)
        spread = float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64))
        n_rows, trace = self.n_rows + int(np.count_nonzero(counts)), self.trace + spread
        least = float(self.rule.grid(trace / max(n_rows, 1)).min())
        if rows.dtype != np.float64 and least < least_ridge_of_squares(trace, SINGLE_UNIT):
            rows = roots * (features.astype(np.float64) - self.origin[:n_features])
        right = roots * (targets - self.origin[n_features:])
        self.n_rows, self.weight = n_rows, self.weight + float(counts.sum())
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

    def __iadd__(self, other: "GramSums") -> Self:
        """The other's sums, about this origin."""
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

    def system(self, has_intercept: bool = True, *, least: float = np.inf) -> RidgeSystem:
        """Eigenvalues of the sums about the mean, for ridges from ``least`` on.

        Below `least_ridge` no ridge hides the rounding of nearly dependent features: they are left
        out, with a warning where they are more than rounding.
        """
        (features, cross, squares), means = self._centered(has_intercept)
        unit = DOUBLE_UNIT if self.single is None else SINGLE_UNIT
        rounding, limit = unit * float(np.trace(features)), self.rounding
        values, vectors = gram_eigen(features, rounding)
        known = np.where(values > 0, values, np.inf)[:, None]
        scores = vectors.T @ cross / known
        rest = np.maximum(np.diag(squares) - np.sum(scores**2, axis=0), 0.0)
        certain = (CERTAIN_UNITS * rounding) ** 0.5
        if least < self.least_ridge and certain > limit:
            limit = largest_of(limit, (DOUBTFUL_UNITS * rounding) ** 0.5)
            if ((values > limit) & (values <= certain)).any():
                warn_user(
                    f"{self.rule.owner} adds up products of features, which resolve ridges from "
                    f"{self.least_ridge:.3g} on: at {least:.3g} nearly dependent features are left "
                    "out. Raise `ridge`."
                )
            limit = certain
        return system_of(values, vectors, scores, rest, means, limit, certain)[0]

    def solve(self, ridge: float, has_intercept: bool = True) -> tuple[Floats, Floats]:
        """Coefficients (p, t) and intercept (t,) at one ridge.

        By a Cholesky factorization, some fifty times cheaper than all eigenvalues.
        """
        if self.trace <= self.rounding**2 or ridge < self.least_ridge:
            system = self.system(has_intercept, least=ridge)
            coefficients = system.coefficients(ridge)
            return coefficients, system.intercept(coefficients)
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
