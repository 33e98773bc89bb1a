"""Ridge regression for a whole grid of ridges from one decomposition.

Minimize Σ_i s_i ‖y_i − c − φ_iᵀB‖² + λ‖B‖². Centered and weighted, rows √s_i(φ_i − φ̄) make A and
√s_i(y_i − ȳ) make b; with A = U S Wᵀ everything that depends on λ is a sum over singular values:

    B = W S/(S² + λ) Uᵀb,     residual = Σ_k u_k λ/(S_k² + λ) u_kᵀb + what no u_k reaches
    1 − h_i = Σ_k U_ik² λ/(S_k² + λ) + (1 − Σ_k U_ik² − s_i/Σs)

h_i is the leverage of row i, the intercept's share included.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from finetti.core.arguments import as_norm
from finetti.core.errors import bad_argument, warn_user
from finetti.display.card import Card
from finetti.display.charts.line_charts import line_chart
from finetti.display.displayable import Displayable

Floats = NDArray[np.float64]
RidgeMethod = Literal["loo", "gcv"]
TITLES = {"loo": "LOO", "gcv": "GCV", "marginal_likelihood": "marginal likelihood"}

GRID_SIZE = 19
GRID_RANGE = 1e-7, 1e2  # times the mean squared length of a centered row
FLAT_RTOL = 1e-3  # a criterion that changes by less from one ridge to the next does not decide
# Singular values below this times the number of rows or columns, and times the size of the features
# before they are centered, are rounding of zero.
RANK_RTOL = 4 * np.finfo(np.float64).eps
# How far features are off, in units of the precision that they were computed in and of their size.
FEATURE_UNITS = 8
# How far rounding may move an eigenvalue of AᵀA or AAᵀ, in units of the least ridge, if all of it
# fell on one direction; in fact it is spread over all, and answers are some hundred times better.
SQUARED_RTOL = 1e-3
DOUBLE_UNIT, SINGLE_UNIT = 2.0**-53, 2.0**-24


@dataclass(frozen=True)
class RidgePath(Displayable):
    """The criterion (smaller is better) at every ridge of the grid, and which one was chosen."""

    method: RidgeMethod | Literal["marginal_likelihood"]
    ridges: Floats
    criterion: Floats

    @cached_property
    def best(self) -> int:
        """Where the criterion is least; of equal ones the largest ridge."""
        criterion = np.where(np.isnan(self.criterion), np.inf, self.criterion)
        return int(np.flatnonzero(criterion <= criterion.min())[-1])

    @property
    def ridge(self) -> float:
        """The chosen one."""
        return float(self.ridges[self.best])

    @property
    def at_edge(self) -> bool:
        """Whether a ridge beyond the grid may be better."""
        return self.best in (0, len(self.ridges) - 1)

    def warn_at_edge(self, owner: str) -> None:
        """Warn where the curve still falls at an end of the grid; two ridges are nothing but ends.

        A curve that is flat there, as of constant targets, does not fall.
        """
        beside = {0: 1, len(self.ridges) - 1: -2}.get(self.best)
        if beside is None or len(self.ridges) < 3:
            return
        value, neighbor = self.criterion[self.best], self.criterion[beside]
        if neighbor > value + FLAT_RTOL * abs(value):
            end = "smallest" if self.best == 0 else "largest"
            warn_user(
                f"The best ridge of {owner} is the {end} of its grid, {self.ridge:.3g}: one beyond "
                "may be better. Give `ridges` that reach further, or a number as `ridge`.",
                ConvergenceWarning,
            )

    def plot(self) -> dict[str, Any]:
        """The curve as a Vega-Lite chart."""
        records = [
            {"ridge": ridge, "criterion": value}
            for ridge, value in zip(self.ridges.tolist(), self.criterion.tolist(), strict=True)
        ]
        return line_chart(
            records, "ridge", "criterion", log_x=True, title=f"Ridge by {TITLES[self.method]}"
        )

    def __card__(self) -> Card:
        edge = "The best ridge lies at the edge of the grid: give `ridges` that reach further."
        return Card(
            title=f"Ridge by {TITLES[self.method]}",
            fields=(("ridge", self.ridge), ("criterion", float(self.criterion[self.best]))),
            notes=(edge,) if self.at_edge else (),
        )


@dataclass(frozen=True)
class Means:
    """What is taken away before a ridge regression: φ̄ and ȳ of n rows, or 0 without intercept."""

    n_rows: int
    has_intercept: bool
    features: Floats
    targets: Floats


@dataclass(frozen=True)
class RidgeSystem:
    """A centered ridge problem, decomposed: answers for any ridge cost a product with W.

    Args:
        eigenvalues: S², shape (r,), all > 0.
        vectors: W, shape (p, r).
        scores: Uᵀb, shape (r, t).
        rest: ‖b − UUᵀb‖² of every target, shape (t,).
        is_full: whether U reaches all that the intercept leaves, so that the rest is exactly 0.
        means: what was taken away.
    """

    eigenvalues: Floats
    vectors: Floats
    scores: Floats
    rest: Floats
    is_full: bool
    means: "Means"

    def coefficients(self, ridge: float) -> Floats:
        """B, shape (p, t); at ridge 0 the least-squares solution of least norm."""
        roots = np.sqrt(self.eigenvalues)
        return self.vectors @ ((roots / (self.eigenvalues + ridge))[:, None] * self.scores)

    def intercept(self, coefficients: Floats) -> Floats:
        """c, shape (t,)."""
        return self.means.targets - self.means.features @ coefficients

    def degrees_of_freedom(self, ridges: Floats) -> Floats:
        """tr H of every ridge, with the intercept."""
        fractions = self.eigenvalues / (self.eigenvalues + np.asarray(ridges)[..., None])
        return fractions.sum(axis=-1) + self.means.has_intercept

    def rows(self, features: Floats, targets: Floats, weights: Floats, total: float) -> "Rows":
        """U and b of some rows of the system, ``total`` the weight of all."""
        roots = np.sqrt(weights)[:, None]
        projected = roots * (features - self.means.features) @ self.vectors
        share = weights / total if self.means.has_intercept else np.zeros(len(weights))
        return Rows(
            projected / np.sqrt(self.eigenvalues),
            roots * (targets - self.means.targets),
            share,
            float(weights.sum()),
        )

    def gcv(self, ridges: Floats) -> Floats:
        """(RSS/n) / (1 − tr H/n)² of every ridge, averaged over the targets.

        Reference: Golub, Heath and Wahba (1979).
        """
        shrink = _shrinkage(self.eigenvalues, ridges)
        squares = np.mean(self.rest) + np.mean(self.scores**2, axis=1) @ shrink**2
        # In shrinkage, not as n − tr H, which cancels where the fit interpolates.
        n_rows = self.means.n_rows
        left = shrink.sum(axis=0) + n_rows - self.means.has_intercept - len(self.eigenvalues)
        with np.errstate(divide="ignore", invalid="ignore"):
            return n_rows * squares / left**2

    def loo(self, ridges: Floats, rows: "Iterable[Rows]") -> Floats:
        """Mean squared error of every ridge where each row is predicted from all others, exactly.

        Rows of one context may come in parts. ∞ where a row alone decides a coefficient.
        """
        total, weight = self.loo_sums(ridges, rows)
        return total / weight

    def loo_sums(self, ridges: Floats, rows: "Iterable[Rows]") -> tuple[Floats, float]:
        """The numerator of `loo` over some of the rows, and their weight."""
        shrink = _shrinkage(self.eigenvalues, ridges)
        explained = 1 - shrink
        # What U leaves is a sum over U where U reaches all rows, and else 1 less what it explains:
        # a u_k of S_k² far below the ridge explains nothing, and rounding may have turned it.
        is_sum = self.is_full & (np.asarray(ridges) < self.eigenvalues.min(initial=np.inf))
        total, weight = np.zeros(len(ridges)), 0.0
        for part in rows:
            own, squares = (1 - part.intercept_share)[:, None], part.left**2
            # 1 − h, (m, ridges)
            left = np.where(is_sum, squares @ shrink, np.maximum(own - squares @ explained, 0.0))
            for column in range(part.targets.shape[1]):
                pieces = part.left * self.scores[:, column]
                missed = part.targets[:, column, None] - pieces @ explained
                residual = np.where(is_sum, pieces @ shrink, missed)
                with np.errstate(divide="ignore", invalid="ignore"):
                    errors = np.where(residual == 0, 0.0, residual / left)
                total += np.sum(errors**2, axis=0) / part.targets.shape[1]
            weight += part.weight
        return total, weight


@dataclass(frozen=True)
class Rows:
    """Rows of U and of b: what leave-one-out needs of some rows.

    Args:
        left: of U, shape (m, r).
        targets: of b, shape (m, t).
        intercept_share: s_i/Σs, shape (m,); 0 without intercept.
        weight: their Σs.
    """

    left: Floats
    targets: Floats
    intercept_share: Floats
    weight: float


def _shrinkage(eigenvalues: Floats, ridges: Floats) -> Floats:
    """λ/(S² + λ), shape (r, ridges)."""
    ridges = np.asarray(ridges, np.float64)
    return ridges / (eigenvalues[:, None] + ridges)


def decompose_rows(
    features: Any,
    targets: Any,
    weights: Any = None,
    *,
    has_intercept: bool = True,
    least_ridge: float = 0.0,
) -> tuple[RidgeSystem, Rows]:
    """The system of rows in memory, and those rows.

    Rows of weight 0 do not count. AAᵀ or AᵀA, whichever is smaller, is decomposed where
    ``least_ridge`` allows its rounding; else A itself, whose singular values keep their digits.
    What is rounding of the features is judged by the precision in which they are given.

    >>> system, rows = decompose_rows([[0.0], [1.0], [2.0]], [[0.0], [1.0], [2.0]])
    >>> float(system.coefficients(0.0)[0, 0].round(9))
    1.0
    """
    unit = unit_of(features)
    features, targets = np.asarray(features, np.float64), np.asarray(targets, np.float64)
    weights = np.ones(len(features)) if weights is None else np.asarray(weights, np.float64)
    counted = weights > 0
    if not counted.all():
        features, targets, weights = features[counted], targets[counted], weights[counted]
    total = weights.sum()
    feature_mean, target_mean = np.zeros(features.shape[1]), np.zeros(targets.shape[1])
    if has_intercept:
        feature_mean, target_mean = weights @ features / total, weights @ targets / total
    roots = np.sqrt(weights)[:, None]
    matrix, right = roots * (features - feature_mean), roots * (targets - target_mean)
    left, values, vectors = _singular(matrix, roots if has_intercept else None, least_ridge)
    scores = left.T @ right
    rest = np.sum((right - left @ scores) ** 2, axis=0)
    means = Means(len(features), has_intercept, feature_mean, target_mean)
    limit = rounding_of(float(np.linalg.norm(roots * features)), unit, *features.shape)
    system, kept = system_of(values, vectors, scores, rest, means, limit)
    share = weights / total if has_intercept else np.zeros(len(weights))
    return system, Rows(left[:, kept], right, share, float(total))


def _singular(
    matrix: Floats, null: Floats | None, least_ridge: float
) -> tuple[Floats, Floats, Floats]:
    """U (n, r), S in decreasing order, W (p, r); ``null`` (n, 1) is the intercept's direction."""
    trace = float(np.sum(matrix**2))
    if not squares_serve(trace, least_ridge):
        left, values, transposed = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
        return left, values, transposed.T
    # Where U may reach all rows it must be orthonormal to the last column, as eigenvectors are.
    if matrix.shape[0] <= matrix.shape[1] + 1:
        values, left = _eigen_beside(matrix @ matrix.T, null, DOUBLE_UNIT * trace)
        return left, values, matrix.T @ left / np.where(values > 0, values, np.inf)
    values, vectors = gram_eigen(matrix.T @ matrix, DOUBLE_UNIT * trace)
    return matrix @ vectors / np.where(values > 0, values, np.inf), values, vectors


def _eigen_beside(
    gram: Floats, null: Floats | None, rounding: float | None = None
) -> tuple[Floats, Floats]:
    """`gram_eigen` beside a direction (n, 1) of eigenvalue 0, by default none.

    Left there, it would mix with others of small eigenvalues: it is made the largest, and dropped.
    """
    if null is None:
        return gram_eigen(gram, rounding)
    own = null / np.linalg.norm(null)
    values, basis = gram_eigen(gram + (2 * np.linalg.norm(gram) or 1.0) * own * own.T, rounding)
    return values[1:], basis[:, 1:]


def decompose_gram(
    gram: Floats, targets: Floats, weights: Any = None, *, has_intercept: bool = True
) -> tuple[RidgeSystem, Rows]:
    """The system of features that are known by their products K = ΦΦᵀ only.

    Its coefficients are dual, α with f(x) = c + Σ_i α_i K(x, x_i): Σα = 0 with an intercept, so
    that nothing has to be taken away from K(x, x_i).

    >>> phi = np.array([[0.0], [1.0], [2.0]])
    >>> system, _ = decompose_gram(phi @ phi.T, phi)
    >>> float((phi.T @ system.coefficients(2.0))[0, 0].round(9))  # 2/(2 + λ)
    0.5
    """
    unit = unit_of(gram)
    gram, targets = np.asarray(gram, np.float64), np.asarray(targets, np.float64)
    weights = np.ones(len(gram)) if weights is None else np.asarray(weights, np.float64)
    share = weights / weights.sum() if has_intercept else np.zeros(len(weights))
    mean, target_mean = gram @ share, share @ targets
    counted = weights > 0
    roots = np.sqrt(weights[counted])[:, None]
    centered = (gram - mean[:, None] - mean + share @ mean)[np.ix_(counted, counted)]
    matrix = roots * centered * roots.T
    values, left = _eigen_beside(matrix, roots if has_intercept else None)
    size = float(np.linalg.norm(roots * gram[np.ix_(counted, counted)] * roots.T))
    limit = rounding_of(size, unit, len(matrix)) ** 0.5
    values = np.where(values > limit, values, 0.0)
    right = roots * (targets[counted] - target_mean)
    scores = left.T @ right
    rest = np.sum((right - left @ scores) ** 2, axis=0)
    vectors = np.zeros((len(gram), len(values)))
    vectors[counted] = roots * left / np.where(values > 0, values, np.inf)
    means = Means(len(roots), has_intercept, mean, target_mean)
    system, kept = system_of(values, vectors, scores, rest, means, limit)
    return system, Rows(left[:, kept], right, share[counted], float(weights.sum()))


def gram_eigen(gram: Floats, rounding: float | None = None) -> tuple[Floats, Floats]:
    """Roots of the eigenvalues in decreasing order, 0 where they are rounding; eigenvectors.

    Of the matrix the upper triangle is read. Eigenvalues up to ``rounding`` are rounding, by
    default as in `RANK_RTOL`; beside a ridge that squares serve, a unit of the trace is harmless.
    """
    squares, basis = scipy.linalg.eigh(gram, lower=False, check_finite=False)
    squares, basis = squares[::-1], basis[:, ::-1]
    if rounding is None:
        rounding = RANK_RTOL * len(gram) * max(squares.max(initial=0.0), 0.0)
    return np.sqrt(np.where(squares > rounding, squares, 0.0)), basis


def squares_serve(trace: float, least_ridge: float, unit: float = DOUBLE_UNIT) -> bool:
    """Whether rounding of AᵀA, a unit of its trace at most, is small beside every ridge."""
    return unit * trace <= SQUARED_RTOL * least_ridge


def unit_of(numbers: Any) -> float:
    """The precision of numbers as they are given; float64 where they are none of NumPy's floats."""
    dtype = getattr(numbers, "dtype", np.dtype(np.float64))
    return float(np.finfo(dtype if np.issubdtype(dtype, np.floating) else np.float64).eps)


def rounding_of(size: float, unit: float, *shape: int) -> float:
    """The largest singular value that rounding of features of this Frobenius norm can make.

    Not of their size about the mean: features that are equal up to rounding have nothing else.
    """
    return max(RANK_RTOL * max(shape), FEATURE_UNITS * unit) * size


def system_of(
    values: Floats,
    vectors: Floats,
    scores: Floats,
    rest: Floats,
    means: "Means",
    limit: float,
    certain: float = 0.0,
) -> tuple[RidgeSystem, NDArray[np.bool_]]:
    """The system of singular values S, W, Uᵀb and ‖b − UUᵀb‖², and which S are above a limit.

    Only S above ``certain`` show that U reaches all rows.
    """
    kept = values > limit
    kept[means.n_rows - means.has_intercept :] = False
    is_full = int((kept & (values > certain)).sum()) == means.n_rows - means.has_intercept
    rest = np.zeros_like(rest) if is_full else rest + np.sum(scores[~kept] ** 2, axis=0)
    system = RidgeSystem(
        values[kept] ** 2, vectors[:, kept], scores[kept], rest, is_full=is_full, means=means
    )
    return system, kept


def choose(
    system: RidgeSystem, method: RidgeMethod, rows: Iterable[Rows], ridges: Floats
) -> RidgePath:
    """The criterion over the grid."""
    criterion = system.gcv(ridges) if method == "gcv" else system.loo(ridges, rows)
    return RidgePath(method, ridges, criterion)


def ridge_grid(mean_square: float, ridges: Any, owner: str) -> Floats:
    """The grid that is searched: the one given, or the default in units of the features."""
    if ridges is None:
        return np.geomspace(*GRID_RANGE, GRID_SIZE) * (mean_square if mean_square > 0 else 1.0)
    grid = np.sort(np.atleast_1d(np.asarray(ridges, np.float64)))
    if grid.ndim != 1 or not grid.size or not (np.isfinite(grid) & (grid > 0)).all():
        raise bad_argument("ridges", owner, "a list of finite numbers > 0", repr(ridges))
    return grid


@dataclass(frozen=True)
class RidgeRule:
    """How the ridge is found: a number, or the best of a grid by a criterion."""

    method: float | RidgeMethod
    ridges: Any
    owner: str

    def grid(self, mean_square: float) -> Floats:
        """All ridges in question, where centered rows have this mean squared length."""
        if isinstance(self.method, str):
            return ridge_grid(mean_square, self.ridges, self.owner)
        return np.array([self.method])


def check_ridge(ridge: Any, owner: str) -> float | RidgeMethod:
    """A number ≥ 0, "loo" or "gcv"."""
    if isinstance(ridge, str):
        if ridge not in ("loo", "gcv"):
            raise bad_argument("ridge", owner, 'a number ≥ 0, "loo" or "gcv"', repr(ridge))
        return ridge
    return as_norm(ridge, "ridge", owner)
