"""Conditional-mean (CME) attention on tables: Gaussian-process regression as scikit-learn has it.

The rows of the table are keys, the targets are values, and a row to predict is a query:

    f(x) = K(x, X)(K(X, X) + λ/s)⁻¹y,   var f(x) = K(x, x) − K(x, X)(K(X, X) + λ/s)⁻¹K(X, x)

with s the weights of the rows ((4.5) and B.1, zhang2022). It is solved as √s K √s + λI = GGᵀ.
"""

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state

from finetti.core.arguments import as_positive, as_whole, check_finite
from finetti.core.errors import InputError, bad_argument, warn_user
from finetti.core.linalg.positive_definite import diagonal_floor
from finetti.core.numerics.float64 import float64
from finetti.estimators.grams import (
    cross_gram,
    default_kernel,
    diagonal,
    gram,
    in_float64,
    padding,
)
from finetti.estimators.hyperparameters import Hyperparameters, Observations, ridge_of, search
from finetti.estimators.memory import DECOMPOSITION_MATRICES, check_square_matrices
from finetti.estimators.ridge import Floats
from finetti.estimators.tables import TableModel
from finetti.estimators.targets import at_least_two, classes_in, classes_of, numbers, signs
from finetti.estimators.undo import all_or_nothing
from finetti.kernels.kernel import Kernel, check_kernel

# Matrices (n, n) that are in memory at once with a given kernel and ridge; 2.2 were measured at
# n = 2500. A search for them starts with a decomposition.
FIT_MATRICES = 3


def _is_constant(values: Floats) -> NDArray[np.bool_]:
    """Which columns have one value, up to rounding."""
    spread = np.ptp(values, axis=0)
    return spread <= 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0)


class _ConditionalMean(TableModel):
    """CME attention on tables; see `ConditionalMeanRegressor`."""

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        ridge: float | Literal["marginal_likelihood"] = "marginal_likelihood",
        fit_kernel: bool = True,
        n_starts: int = 3,
        normalize_y: bool = True,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.ridge = ridge
        self.fit_kernel = fit_kernel
        self.n_starts = n_starts
        self.normalize_y = normalize_y
        self.random_state = random_state

    @property
    def _alternative(self) -> str:
        kind = "Regressor" if isinstance(self, RegressorMixin) else "Classifier"
        return f"use RandomFeatureAttention{kind}, whose memory does not grow with the rows"

    def _fit(self, table: Floats, targets: Floats, weights: Floats) -> None:
        owner, counted = type(self).__name__, weights > 0
        table, targets, roots = table[counted], targets[counted], np.sqrt(weights[counted])
        searches = bool(self.fit_kernel) or isinstance(self.ridge, str)
        count = DECOMPOSITION_MATRICES if searches else FIT_MATRICES
        check_square_matrices(len(table), count, owner, self._alternative)
        values = targets.reshape(len(targets), -1)
        self._mean, self._scale = self._normalization(values, roots**2)
        values = (values - self._mean) / self._scale
        found = self._hyperparameters(Observations(table, values, roots))
        self.kernel_, self.ridge_, self.at_bound_ = found.kernel, found.ridge, found.at_bound
        matrix = gram(self.kernel_, table)
        check_finite(matrix, "kernel", f"{owner} (its Gram matrix)")
        matrix *= roots[:, None] * roots
        # The floor of `ConditionalMean`, below which float64 cannot tell K from a singular matrix.
        floor = diagonal_floor(*table.shape) * matrix.diagonal()
        matrix[np.diag_indices_from(matrix)] += np.maximum(self.ridge_, floor)
        try:
            self._factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError as error:
            raise InputError(
                f"{owner} cannot factor K + {self.ridge_:.3g}·I of {self.kernel_!r}, which is not "
                "positive definite on these rows. Raise `ridge`."
            ) from error
        white = self._whitened(roots[:, None] * values)
        dual = solve_triangular(self._factor, white, lower=True, trans=1, check_finite=False)
        log_scales = np.log(roots / self._factor.diagonal()) - 0.5 * np.log(2 * np.pi)
        self.log_marginal_likelihood_ = float(
            values.shape[1] * log_scales.sum() - 0.5 * np.sum(white**2)
        )
        self._roots, self._is_single = roots, targets.ndim == 1
        self.X_fit_, self.dual_coef_ = table, roots[:, None] * dual
        self._padded = table[padding(len(table))]

    def _normalization(self, values: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """What is taken from values, and what they are divided by."""
        if not self.normalize_y:
            return np.zeros(values.shape[1]), np.ones(values.shape[1])
        mean = np.average(values, axis=0, weights=weights)
        scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
        return mean, np.where(_is_constant(values), 1.0, scale)

    def _hyperparameters(self, observed: Observations) -> Hyperparameters:
        owner = type(self).__name__
        ridge = None
        if not isinstance(self.ridge, str):
            ridge = as_positive(self.ridge, "ridge", owner)
        elif self.ridge != "marginal_likelihood":
            wanted = 'a number > 0 or "marginal_likelihood"'
            raise bad_argument("ridge", owner, wanted, repr(self.ridge))
        if self.kernel is None:
            with float64():
                kernel = 1.0 * default_kernel(observed.table)
        else:
            check_kernel(self.kernel, owner)
            kernel = self.kernel
        kernel = in_float64(kernel)
        if not self.fit_kernel:
            if ridge is None:
                return ridge_of(observed, kernel)
            return Hyperparameters(kernel, ridge)
        n_starts = as_whole(self.n_starts, "n_starts", owner)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        found = search(observed, kernel, ridge, n_starts, seed, owner)
        if not found.converged:
            warnings.warn(
                f"The search of {owner} for the kernel did not come to an end. Scale the columns, "
                "or raise `n_starts`.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return found

    def _whitened(self, columns: Floats) -> Floats:
        """G⁻¹ times columns."""
        return solve_triangular(self._factor, columns, lower=True, check_finite=False)

    def _cross(self, X: Any) -> tuple[Floats, Floats]:
        """The table, and K(x, X)."""
        table = self._again(X)
        cross = cross_gram(self.kernel_, table, self._padded, len(self.X_fit_))
        check_finite(cross, "X", f"{type(self).__name__} (the kernel there)")
        return table, cross

    def _mean_at(self, cross: Floats) -> Floats:
        mean = cross @ self.dual_coef_ * self._scale + self._mean
        return mean[:, 0] if self._is_single else mean


class ConditionalMeanRegressor(RegressorMixin, _ConditionalMean):
    """CME attention as a regressor: the Gaussian-process posterior mean, with an error bar.

    f(x) = K(x, X)(K(X, X) + λI)⁻¹y                                          (4.5), zhang2022

    The rows of a table are the keys, the targets the values, and a row to predict is the query.
    The same as scikit-learn's GaussianProcessRegressor with kernel K and ``alpha`` λ, and, for the
    mean, as KernelRidge. It costs n³ for a fit, and n² memory.

    Args:
        kernel: K, from `finetti.kernels`, and where the search for its parameters starts; by
            default c·RBF(ℓ), ℓ starting at the median distance of the rows.
        ridge: λ, the variance of the noise in units of the (normalized) targets: a number, or
            "marginal_likelihood".
        fit_kernel: whether the parameters of the kernel are fitted, by marginal likelihood.
        n_starts: how many searches, the first from ``kernel``, the others at random.
        normalize_y: whether every target is centered and divided by its standard deviation first,
            so that far from all rows the answer is its mean.
        random_state: of the random starts.

    Attributes:
        kernel_, ridge_: K and λ as fitted.
        at_bound_: names of parameters that want to leave the range of the search, a factor of 1000.
        log_marginal_likelihood_: of the normalized targets, all of them together.
        X_fit_, dual_coef_: the rows, and (K + λ/s)⁻¹y of the normalized targets, shape (n, t).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(80, 1))
    >>> y = 5 + np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=80)
    >>> model = ConditionalMeanRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - 5 - np.sin(2)) < 3 * std[0] < 0.3)
    True
    >>> bool(abs(mean[1] - y.mean()) < 1e-8 and std[1] > 0.9 * y.std())  # far away: the prior
    True

    Reference: (4.5) and B.1, zhang2022.
    """

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows ``X`` (n, d) and targets ``y``, (n,) or (n, t).

        A row of weight s has noise of variance λ/s: a weight is a precision, and a row that is
        the mean of s measurements has weight s.
        """
        table = self._table(X)
        targets, weights = numbers(self, X, y), self._weights(table, sample_weight)
        self._fit(table, targets, weights)
        if self.fit_kernel or isinstance(self.ridge, str):
            self._warn_of_search(targets[weights > 0])
        return self

    def _warn_of_search(self, targets: Floats) -> None:
        """Say where the rows did not decide what the error bars are made of."""
        owner = type(self).__name__
        known = "Give a `kernel` and a `ridge` that you know, with fit_kernel=False"
        if _is_constant(targets).all():
            warn_user(
                f"y has the same value in all of the {len(targets)} rows, which says nothing about "
                f"noise: the error bars of {owner} are arbitrary, and far too small. {known}.",
                ConvergenceWarning,
            )
        elif self.at_bound_:
            warn_user(
                f"The search for {', '.join(self.at_bound_)} of {owner} ended at the end of its "
                f"range, and the error bars depend on where that is. {known}, start from another "
                "`kernel`, or give more rows.",
                ConvergenceWarning,
            )

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        predictive: bool = False,
    ) -> Any:
        """The mean, (m,) or (m, t); with its standard deviation or covariance if asked for.

        Args:
            X: (m, d).
            return_std: also the standard deviation of f(x), of the shape of the mean, each target
                on its own scale.
            return_cov: also the covariance between the rows, (m, m) or (m, m, t).
            predictive: add the noise λ of a newly measured target (of weight 1) to both.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        table, cross = self._cross(X)
        mean = self._mean_at(cross)
        if not (return_std or return_cov):
            return mean
        known = self._whitened(self._roots[:, None] * cross.T)
        noise = self.ridge_ if predictive else 0.0
        if return_cov:
            spread = gram(self.kernel_, table) - known.T @ known + noise * np.eye(len(table))
            spread = spread[..., None] * self._scale**2
        else:
            variance = diagonal(self.kernel_, table) - np.sum(known**2, axis=0)
            spread = np.sqrt(np.maximum(variance, 0.0) + noise)[:, None] * self._scale
        return mean, spread[..., 0] if self._is_single else spread

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ConditionalMeanClassifier(ClassifierMixin, _ConditionalMean):
    """`ConditionalMeanRegressor` on ±1: one output for two classes, else one for each.

    It has no ``predict_proba``: the conditional mean of ±1 is 2p − 1, but its estimate leaves
    [−1, 1] and its error bar is that of Gaussian noise, so neither is a probability to rely on. Put
    it into scikit-learn's CalibratedClassifierCV, which takes `decision_function`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(150, 2))
    >>> y = np.where(np.linalg.norm(X, axis=1) > 1.2, "outside", "inside")
    >>> model = ConditionalMeanClassifier(random_state=0).fit(X[:100], y[:100])
    >>> model.score(X[100:], y[100:]) > 0.8
    True
    """

    classes_: NDArray[Any]

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows ``X`` (n, d) and classes ``y`` (n,); weights as of the regressor."""
        table = self._table(X)
        check_consistent_length(X, y)
        self.classes_ = at_least_two(self, classes_in(self, y))
        self._fit(table, signs(y, self.classes_), self._weights(table, sample_weight))
        return self

    def decision_function(self, X: Any) -> Floats:
        """Of the second class, (m,), or of every class, (m, classes)."""
        return self._mean_at(self._cross(X)[1])

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest output, (m,)."""
        return classes_of(self.decision_function(X), self.classes_)
