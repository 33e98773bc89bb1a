"""Random-feature attention as scikit-learn estimators."""

from typing import Any

from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.attention.random_features.random_heads import Activation
from finetti.estimators.random_features.feature_ridge import (
    FeatureClassifier,
    FeatureRegressor,
    FeatureRidge,
    draw_heads,
)
from finetti.estimators.sets.token_sets import TokenSets


class _RandomHeads(FeatureRidge):
    """M random heads; see `RandomFeatureAttentionRegressor`."""

    activation: Activation

    def __init__(
        self,
        n_heads: int = 100,
        *,
        mean: Any = "zero",
        activation: Activation = "relu",
        ridge: Any = "loo",
        ridges: Any = None,
        fit_intercept: bool = True,
        n_tokens: int = 1,
        token_scale: Any = "auto",
        random_state: Any = None,
    ):
        self.n_heads = n_heads
        self.mean = mean
        self.activation = activation
        self.ridge = ridge
        self.ridges = ridges
        self.fit_intercept = fit_intercept
        self.n_tokens = n_tokens
        self.token_scale = token_scale
        self.random_state = random_state

    def _draw(self, key: Any, sets: TokenSets) -> RandomFeatureAttention:
        return draw_heads(self, key, sets)


class RandomFeatureAttentionRegressor(FeatureRegressor, _RandomHeads):
    """Attention with M frozen random heads whose values are fitted by ridge regression.

    f(x₀, x_{1:N}) = c + Σ_m (1/N) Σ_i σ(⟨W₀ + W_m, x̃₀x̃ᵢᵀ⟩) ⟨v_m, x̃ᵢ⟩,   x̃ = [x; 1]

    One input is a set of tokens: ``X`` is (n, N, d), a list of arrays (N_i, d), or a table
    (n, N·d) with ``n_tokens=N``. Token 0 is the query x₀ and the others are the keys, in any order;
    a token alone is both. `fit` and `predict` take the ``query`` (n, d) apart, too, and a ``mask``
    (n, N) of the tokens that there are. The paper has tokens on the unit sphere; ``token_scale``
    brings others to a length of about 1, so that a table may come from a StandardScaler. Rows that
    do not fit in memory come as a Dask array, or one part after the other, see `partial_fit`.

    Args:
        n_heads: M.
        mean: W₀: "zero" (RFA), "identity" (BRFA, for targets that depend on ⟨x₀, xᵢ⟩), or a matrix.
        activation: σ: "relu" is the paper's; "exponential"; "softmax" replaces σ/N.
        ridge: λ in Σ(y − f)² + λ‖β‖², β = √M v: a number, "loo" (least exact leave-one-out error)
            or "gcv" (generalized cross-validation).
        ridges: the grid for "loo" and "gcv"; 19 values by default.
        fit_intercept: whether c is fitted.
        n_tokens: N of a table.
        token_scale: what every token is multiplied by: a number (1 leaves tokens as they are), or
            "auto", one over the root mean square length of the tokens of `fit`.
        random_state: of the draw.

    Attributes:
        model_: the fitted `finetti.attention.RandomFeatureAttention`; `predict` is it plus c.
        token_scale_: what tokens are multiplied by before ``model_`` reads them.
        coef_, intercept_: β on its features, and c.
        norms_: M Σ‖v_m‖² and Σ‖v_m‖, what the theorem bounds (`LearnedNorms`).
        ridge_, ridge_path_: the ridge, and the curve it was chosen by.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5, 3)) / 3**0.5
    >>> y = np.mean(X[:, 1:, 0] ** 2, axis=1)
    >>> model = RandomFeatureAttentionRegressor(random_state=0).fit(X[:150], y[:150])
    >>> model.score(X[150:], y[150:]) > 0.8
    True

    Reference: fu2023, stated from knowledge of the paper.
    """


class RandomFeatureAttentionClassifier(FeatureClassifier, _RandomHeads):
    """`RandomFeatureAttentionRegressor` on ±1: one output for two classes, else one for each.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 5, 3)) / 3**0.5
    >>> y = np.where(np.mean(X[:, 1:, 0] ** 2, axis=1) > 0.3, "wide", "narrow")
    >>> model = RandomFeatureAttentionClassifier(random_state=0).fit(X[:200], y[:200])
    >>> model.score(X[200:], y[200:]) > 0.8
    True
    """
