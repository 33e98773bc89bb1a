"""Two-stage regression with instruments, linear and with kernels (B.2, zhang2022)."""

from typing import Any, Literal, Self

import numpy as np
import scipy.linalg
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length

from finetti.core.arguments import as_norm, as_whole
from finetti.core.errors import InputError, bad_argument
from finetti.estimators.evidence import by_likelihood
from finetti.estimators.first_stage import (
    RANK_TOL,
    Strength,
    centered_features,
    folds,
    out_of_fold,
    standardized,
    strength,
)
from finetti.estimators.grams import (
    cross_gram,
    default_kernel,
    gram,
    in_float64,
    median_distance,
    padding,
)
from finetti.estimators.memory import DECOMPOSITION_MATRICES, check_square_matrices
from finetti.estimators.ridge import (
    Floats,
    RidgePath,
    choose,
    decompose_gram,
    ridge_grid,
)
from finetti.estimators.tables import TableModel
from finetti.estimators.targets import numbers
from finetti.estimators.undo import all_or_nothing
from finetti.kernels.kernel import Kernel, check_kernel
from finetti.kernels.rbf import RBF

# Lengthscales of the instruments' kernel, times their median distance.
WIDTHS = np.geomspace(0.05, 2.0, 8)


class InstrumentalRegressor(RegressorMixin, TableModel):
    """Two-stage regression: the effect g of x on y where noise moves both, by instruments z.

    y = g(x) + ε,  E[ε | z] = 0,  so that  E[y | z] = E[g(x) | z]              (B.3), zhang2022

    Stage 1 estimates E[· | z] and stage 2 finds g; both on different rows (cross-fitting), so that
    stage 1 cannot carry the noise of a row over. Instruments that say little about x are refused:
    with them the answer is as wrong as without.

    - "linear": g(x) = c + βᵀx. Stage 1 is least squares of x on z, x̂ its out-of-fold prediction,
      and β = (x̂ᵀx)⁻¹x̂ᵀy, centered. Standard errors are robust to unequal noise (HC1).
    - "kernel": g(x) = c + Σ_j α_j K(x, x_j). Stage 1 is CME attention, E[g(x) | z_i] = Σ_j W_ij
      g(x_j) with W_ij = 0 inside a fold, and stage 2 is ridge regression on that. Instruments blur
      g: what is fast in it is lost, and where noise moves x little, or g is fast, ordinary kernel
      ridge may be nearer to g in spite of its bias.

    Args:
        model: "linear" or "kernel".
        kernel: K of "kernel"; by default RBF as wide as the median distance of the rows of X.
        instrument_kernel: the kernel of z in stage 1 of "kernel"; by default RBF. Its ridge, and
            the lengthscale of the default, have the least leave-one-out error for φ(x) given z.
        ridge: λ of stage 2 of "kernel": a number, or "marginal_likelihood". (Leave-one-out does not
            serve: it judges E[y | z], which hardly changes with what is wild in g.)
        ridges: the grid for that; 19 values by default.
        n_folds: parts of the cross-fitting.
        weakest_f: instruments with a smaller F statistic are refused; 0 accepts all.
        random_state: of the folds.

    Attributes:
        first_stage_f_: the F statistic of stage 1 (Cragg and Donald's for several regressors), of z
            for "linear", of the out-of-fold E[x | z] for "kernel". ∞ without instruments.
        first_stage_f_each_: F of every regressor alone; ∞ for those among the instruments.
        coef_, intercept_, standard_errors_: β, c and the standard errors of β, of "linear".
        dual_coef_, intercept_, ridge_, ridge_path_: α, c, λ and its curve, of "kernel".
        instrument_kernel_, first_stage_path_: the kernel of stage 1, and the curve of its ridge.

    Columns of X that noise does not move belong to the instruments, too. ``instruments=None`` says
    that X is its own instrument, which is ordinary regression: least squares, or kernel ridge.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z, hidden = rng.normal(size=(2, 2000))
    >>> x = z + hidden
    >>> y = 2 * x + 3 * hidden + rng.normal(size=2000)
    >>> InstrumentalRegressor().fit(x[:, None], y).coef_.round(1)  # what moves both is in it
    array([3.5])
    >>> model = InstrumentalRegressor(random_state=0).fit(x[:, None], y, instruments=z[:, None])
    >>> bool(abs(model.coef_[0] - 2) < 3 * model.standard_errors_[0] < 0.4)
    True

    In a Pipeline pass ``instrumentalregressor__instruments=Z`` to `fit`, in GridSearchCV
    ``instruments=Z``. `predict` takes X only, and answers for an x that is set from outside.

    Reference: Assumption B.1 and (B.3), zhang2022; Angrist, Imbens and Krueger (1999) for
    out-of-fold instruments; Singh, Sahani and Gretton (2019) for kernels.
    """

    intercept_: Any
    coef_: Floats
    standard_errors_: Floats
    dual_coef_: Floats
    ridge_path_: RidgePath | None

    def __init__(
        self,
        model: Literal["linear", "kernel"] = "linear",
        *,
        kernel: Kernel | None = None,
        instrument_kernel: Kernel | None = None,
        ridge: Any = "marginal_likelihood",
        ridges: Any = None,
        n_folds: int = 5,
        weakest_f: float = 10.0,
        random_state: Any = None,
    ):
        self.model = model
        self.kernel = kernel
        self.instrument_kernel = instrument_kernel
        self.ridge = ridge
        self.ridges = ridges
        self.n_folds = n_folds
        self.weakest_f = weakest_f
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, instruments: Any = None) -> Self:
        """Fit to ``X`` (n, p), targets ``y`` (n,) or (n, t), and ``instruments`` (n, q) or (n,)."""
        owner = type(self).__name__
        if self.model not in ("linear", "kernel"):
            raise bad_argument("model", owner, '"linear" or "kernel"', repr(self.model))
        table = self._table(X)
        targets, weights = numbers(self, X, y), self._weights(table, sample_weight)
        counted = weights > 0
        z = None if instruments is None else self._instruments(instruments, table)[counted]
        table, targets, weights = table[counted], targets[counted], weights[counted]
        values = targets.reshape(len(targets), -1)
        if self.model == "linear":
            self._fit_linear(table, values, weights, z)
        else:
            self._fit_kernel(table, values, weights, z)
        if targets.ndim == 1:
            self.intercept_ = float(self.intercept_[0])
            if self.model == "linear":
                self.coef_, self.standard_errors_ = self.coef_[0], self.standard_errors_[0]
            else:
                self.dual_coef_ = self.dual_coef_[:, 0]
        return self

    def predict(self, X: Any) -> Floats:
        """g(x), (m,) or (m, t)."""
        table = self._again(X)
        if self.model == "linear":
            return table @ self.coef_.T + self.intercept_
        cross = cross_gram(self.kernel_, table, self._padded, len(self.X_fit_))
        return cross @ self.dual_coef_ + self.intercept_

    def _instruments(self, instruments: Any, table: Floats) -> Floats:
        z = check_array(
            instruments, dtype="float64", ensure_2d=False, input_name="instruments", estimator=self
        )
        check_consistent_length(table, z)
        return z.reshape(len(z), -1)

    def _fit_linear(self, x: Floats, y: Floats, weights: Floats, z: Floats | None) -> None:
        found = self._judged(strength(x, x if z is None else z, weights))
        share, roots = weights / weights.sum(), np.sqrt(weights)[:, None]
        x_mean, y_mean = share @ x, share @ y
        scale = np.sqrt(share @ (x - x_mean) ** 2)
        scale = np.where(scale > 0, scale, 1.0)
        x, y = roots * (x - x_mean) / scale, roots * (y - y_mean)
        predicted = x
        if z is not None and not found.is_exogenous.all():
            parts = self._folds(len(x))
            guesses = out_of_fold(x / roots, standardized(z, weights), weights, parts)
            guesses = roots * (guesses - share @ guesses)
            # What is an instrument itself is known, not guessed.
            predicted = np.where(found.is_exogenous, x, guesses)
        if predicted is x:
            inverse = np.linalg.pinv(x, rcond=RANK_TOL)
            bread = inverse @ inverse.T
        else:
            bread = np.linalg.pinv(predicted.T @ x, rcond=RANK_TOL**2)
            inverse = bread @ predicted.T
        coefficients = inverse @ y
        errors = np.full(coefficients.shape, np.nan)
        freedom = len(x) - 1 - x.shape[1]
        if freedom > 0:
            for target, residual in enumerate((y - x @ coefficients).T):
                scores = predicted * residual[:, None]
                covariance = bread @ (scores.T @ scores) @ bread.T * len(x) / freedom
                errors[:, target] = np.sqrt(covariance.diagonal())
        self.coef_, self.standard_errors_ = (coefficients.T / scale, errors.T / scale)
        self.intercept_ = y_mean - self.coef_ @ x_mean

    def _fit_kernel(self, x: Floats, y: Floats, weights: Floats, z: Floats | None) -> None:
        owner = type(self).__name__
        if isinstance(self.ridge, str) and self.ridge != "marginal_likelihood":
            wanted = 'a number ≥ 0 or "marginal_likelihood"'
            raise bad_argument("ridge", owner, wanted, repr(self.ridge))
        if self.kernel is not None:
            check_kernel(self.kernel, owner)
        # Those of a decomposition, and a Gram matrix of the instruments at each lengthscale.
        count = DECOMPOSITION_MATRICES + (0 if z is None else len(WIDTHS))
        check_square_matrices(len(x), count, owner, 'use model="linear"')
        self.kernel_ = in_float64(default_kernel(x) if self.kernel is None else self.kernel)
        matrix = gram(self.kernel_, x)
        if z is None:
            self._judged(strength(x, x, weights))
            reading = np.eye(len(x))
        else:
            reading = self._reading(x, matrix, z, weights)
        system, _ = decompose_gram(reading @ matrix @ reading.T, y, weights)
        self.ridge_path_ = None
        if isinstance(self.ridge, str):
            mean_square = float(system.eigenvalues.sum()) / len(x)
            self.ridge_path_ = by_likelihood(system, ridge_grid(mean_square, self.ridges, owner))
            self.ridge_path_.warn_at_edge(owner)
            self.ridge_ = self.ridge_path_.ridge
        else:
            self.ridge_ = as_norm(self.ridge, "ridge", owner)
        dual = system.coefficients(self.ridge_)
        self.intercept_ = system.intercept(dual)
        self.dual_coef_ = reading.T @ dual
        self.X_fit_, self._padded = x, x[padding(len(x))]

    def _reading(self, x: Floats, x_gram: Floats, z: Floats, weights: Floats) -> Floats:
        """W: how z_i reads the rows of the other folds, CME attention's weights (4.4)."""
        owner = type(self).__name__
        if self.instrument_kernel is None:
            kernels = [in_float64(RBF(width)) for width in WIDTHS * median_distance(z)]
        else:
            check_kernel(self.instrument_kernel, owner)
            kernels = [in_float64(self.instrument_kernel)]
        grams = [gram(kernel, z) for kernel in kernels]
        features = centered_features(x_gram, weights)
        paths = []
        for matrix in grams:
            system, rows = decompose_gram(matrix, features, weights, has_intercept=False)
            grid = ridge_grid(float(system.eigenvalues.sum()) / len(z), None, owner)
            paths.append(choose(system, "loo", [rows], grid))
        best = int(np.argmin([path.criterion[path.best] for path in paths]))
        self.instrument_kernel_, self.first_stage_path_ = kernels[best], paths[best]
        matrix, noise = grams[best], paths[best].ridge / weights
        reading, explained = np.zeros_like(matrix), np.zeros_like(x)
        for fitted, predicted in self._folds(len(z)):
            own = matrix[np.ix_(fitted, fitted)] + np.diag(noise[fitted])
            right = matrix[np.ix_(fitted, predicted)]
            part = scipy.linalg.solve(own, right, assume_a="pos").T
            share = weights[fitted] / weights[fitted].sum()
            # Without the mean of the other folds, which falls where that of its own is high.
            explained[predicted] = part @ (x[fitted] - share @ x[fitted])
            # About the mean: what z does not explain is read evenly.
            part += (1 - part.sum(axis=1, keepdims=True)) * share
            reading[np.ix_(predicted, fitted)] = part
        self._judged(strength(x, explained, weights))
        return reading

    def _folds(self, n_rows: int) -> Any:
        n_folds = as_whole(self.n_folds, "n_folds", type(self).__name__)
        if not 2 <= n_folds <= n_rows:
            wanted = f"from 2 to the number of rows, {n_rows}"
            raise bad_argument("n_folds", type(self).__name__, wanted, n_folds)
        return folds(n_rows, n_folds, self.random_state)

    def _judged(self, found: Strength) -> Strength:
        """Keep the F statistics; refuse instruments that are too few or too weak."""
        owner = type(self).__name__
        self.first_stage_f_, self.first_stage_f_each_ = found.f_statistic, found.each
        n_endogenous = int(np.sum(~found.is_exogenous))
        if found.n_excluded < n_endogenous:
            raise InputError(
                f"{owner} needs as many instruments as endogenous columns of X, {n_endogenous}, "
                f"beside those of X among them. Got {found.n_excluded}."
            )
        weakest = as_norm(self.weakest_f, "weakest_f", owner)
        if found.f_statistic < weakest:
            raise InputError(
                f"The instruments are too weak: the F statistic of the first stage is "
                f"{found.f_statistic:.3g}, below {weakest:g}. The answer would lean towards that "
                "of ordinary regression, with standard errors that do not say so. Find stronger "
                "instruments or more rows, or lower `weakest_f`."
            )
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
