"""Kernel ridge regression with the exact kernels of infinitely many random heads."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from finetti.attention.random_features.context_kernel import ContextKernel
from finetti.attention.random_features.infinite_heads import InfiniteHeadKernel
from finetti.attention.random_features.infinite_mlp import InfiniteMLPKernel
from finetti.core.errors import bad_argument
from finetti.display.progress import Progress, late_progress
from finetti.estimators.memory import DECOMPOSITION_MATRICES, check_square_matrices
from finetti.estimators.random_features.learned_norms import LearnedNorms
from finetti.estimators.ridge_system import Floats, RidgeRule, decompose_gram
from finetti.estimators.sets.set_models import SetRegressor
from finetti.estimators.sets.token_sets import TokenSets, in_precision_of, mean_weights


class AttentionKernelRegressor(SetRegressor):
    """Random-feature attention with infinitely many heads, exactly: f(x) = c + Σ_i α_i K(x, x_i).

    What `RandomFeatureAttentionRegressor` and `RandomFeatureMLPRegressor` tend to as the number of
    heads or neurons grows. It costs n²N² for the kernel and n³ for the fit.

    Args:
        model: "attention" (RFA; BRFA with a ``mean``) or "mlp" (RFMLP).
        mean: W₀: "zero", "identity" or a matrix, of "attention".
        activation: "relu" or "exponential", of "attention".
        ridge: λ in Σ(y − f)² + λ‖f‖²_K: a number, "loo" (least exact leave-one-out error) or "gcv".
        ridges: the grid for "loo" and "gcv"; 19 values by default.
        fit_intercept: whether c is fitted.
        n_tokens: N of a table.
        token_scale: what every token is multiplied by: a number (1 leaves tokens as they are), or
            "auto", one over the root mean square length of the tokens of `fit`.

    Attributes:
        dual_coef_, intercept_: α and c.
        norms_: ‖f‖²_K = E‖v(W)‖², see `LearnedNorms`.
        ridge_, ridge_path_: the ridge, and the curve it was chosen by.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5, 3)) / 3**0.5
    >>> y = np.mean(X[:, 1:, 0] ** 2, axis=1)
    >>> AttentionKernelRegressor().fit(X[:150], y[:150]).score(X[150:], y[150:]) > 0.9
    True

    Reference: derived from the models of fu2023.
    """

    activation: Literal["relu", "exponential"]

    def __init__(
        self,
        model: Literal["attention", "mlp"] = "attention",
        *,
        mean: Any = "zero",
        activation: Literal["relu", "exponential"] = "relu",
        ridge: Any = "loo",
        ridges: Any = None,
        fit_intercept: bool = True,
        n_tokens: int = 1,
        token_scale: Any = "auto",
    ):
        self.model = model
        self.mean = mean
        self.activation = activation
        self.ridge = ridge
        self.ridges = ridges
        self.fit_intercept = fit_intercept
        self.n_tokens = n_tokens
        self.token_scale = token_scale

    def _fit(self, sets: TokenSets, targets: Floats, weights: Floats | None) -> None:
        owner = type(self).__name__
        rule = RidgeRule.of(self, "loo", "gcv")
        self.kernel_, self._sets = self._kernel(sets), sets
        n, flat = len(targets), targets.reshape(len(targets), -1)
        finite = "RandomFeatureMLP" if self.model == "mlp" else "RandomFeatureAttention"
        advice = f"use {finite}Regressor, whose memory does not grow with the rows"
        check_square_matrices(n, DECOMPOSITION_MATRICES, owner, advice)
        with late_progress(owner, 2, "steps") as report:
            report(Progress(0, 0, f"the kernel of {n} × {n} sets"))
            gram = self._gram(sets, None)
            report(Progress(1, 0, f"the decomposition of a {n} × {n} matrix"))
            intercept = bool(self.fit_intercept)
            system, rows = decompose_gram(gram, flat, weights, has_intercept=intercept)
        self.ridge_, self.ridge_path_ = rule.choose(system, [rows])
        dual = system.coefficients(self.ridge_)
        intercept, norm = system.intercept(dual), np.sum(dual * (gram @ dual), axis=0)
        if targets.ndim == 1:
            dual, intercept, norm = dual[:, 0], float(intercept[0]), float(norm[0])
        self.dual_coef_, self.intercept_, self.norms_ = dual, intercept, LearnedNorms(norm)

    def _predict(self, sets: TokenSets) -> NDArray[Any]:
        return self._gram(sets, self._sets) @ self.dual_coef_ + self.intercept_

    def _kernel(self, sets: TokenSets) -> ContextKernel:
        dimension, owner = sets.keys.shape[2], type(self).__name__
        with in_precision_of(sets):
            if self.model == "mlp":
                return InfiniteMLPKernel(dimension, sets.keys.shape[1])
            if self.model != "attention":
                raise bad_argument("model", owner, '"attention" or "mlp"', repr(self.model))
            return InfiniteHeadKernel(dimension, mean_weights(self.mean, owner), self.activation)

    def _gram(self, sets: TokenSets, others: TokenSets | None) -> Floats:
        with in_precision_of(sets):
            if others is None:
                gram = self.kernel_.gram(sets.query, sets.keys, mask=sets.mask)
            else:
                gram = self.kernel_.gram(
                    sets.query, sets.keys, others.query, others.keys, sets.mask, others.mask
                )
            return np.asarray(gram)  # whose precision says what is rounding
