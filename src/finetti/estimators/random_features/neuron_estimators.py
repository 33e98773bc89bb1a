"""The random-feature network that random-feature attention is compared with, as an estimator."""

from typing import Any

from finetti.attention.random_features.random_feature_mlp import RandomFeatureMLP
from finetti.core.errors import InputError
from finetti.estimators.random_features.feature_ridge import FeatureRegressor
from finetti.estimators.sets.token_sets import TokenSets


class RandomFeatureMLPRegressor(FeatureRegressor):
    """M random ReLU neurons on all tokens of a set at once, with fitted values (RFMLP).

    f(x₀, x_{1:N}) = c + Σ_m σ(⟨w_m, [x₀; x₁; …; x_N; 1]⟩) v_m,   w_m ∼ N(0, I/(N + 2))

    It sees the order of the tokens, and takes the number of them that it was fitted with. Inputs
    and the other arguments are those of `RandomFeatureAttentionRegressor`.

    Args:
        n_neurons: M; random-feature attention with H heads has as many parameters as H·(d + 1).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5, 3)) / 3**0.5
    >>> y = X[:, 1:, 0].mean(axis=1)
    >>> model = RandomFeatureMLPRegressor(random_state=0).fit(X[:150], y[:150])
    >>> model.score(X[150:], y[150:]) > 0.8
    True

    Reference: the comparison model of fu2023, stated from knowledge of the paper.
    """

    def __init__(
        self,
        n_neurons: int = 1000,
        *,
        ridge: Any = "loo",
        ridges: Any = None,
        fit_intercept: bool = True,
        n_tokens: int = 1,
        token_scale: Any = "auto",
        random_state: Any = None,
    ):
        self.n_neurons = n_neurons
        self.ridge = ridge
        self.ridges = ridges
        self.fit_intercept = fit_intercept
        self.n_tokens = n_tokens
        self.token_scale = token_scale
        self.random_state = random_state

    def _draw(self, key: Any, sets: TokenSets) -> RandomFeatureMLP:
        if sets.mask is not None and not sets.mask.all():
            raise InputError(
                "RandomFeatureMLPRegressor has weights for each position and takes sets of one "
                "size, without a mask. Use RandomFeatureAttentionRegressor for others."
            )
        return RandomFeatureMLP(key, self.n_neurons, sets.keys.shape[2], sets.keys.shape[1])
