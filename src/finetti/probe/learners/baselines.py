"""Baselines by name: factories of estimators that see the bits as a table (m, T).

Each is what its library makes of a small table; options are the arguments of the factory.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from finetti.core.numerics.random_keys import generator
from finetti.estimators.conditional_mean import ConditionalMeanClassifier
from finetti.estimators.random_feature_attention import RandomFeatureAttentionClassifier
from finetti.estimators.random_feature_mlp import RandomFeatureMLPRegressor


class L1Logistic(ClassifierMixin, BaseEstimator):
    """ℓ1 logistic regression on ±1 bits, its strength by cross-validated log loss.

    min_w C Σ log(1 + exp(−y(w·x + c))) + ‖w‖₁

    Args:
        n_strengths: values of C on a logarithmic grid from 1e-2 to 1e4.
        n_folds: of the cross-validation, as far as there are samples of the rarer label; with one
            such sample there is none, and C = 1.
    """

    def __init__(self, n_strengths: int = 10, n_folds: int = 5, random_state: Any = None):
        self.n_strengths = n_strengths
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit to bits and labels."""
        folds = min(self.n_folds, *np.unique(y, return_counts=True)[1])
        # liblinear penalizes the intercept like a weight; a large scale makes that negligible.
        shared: dict[str, Any] = {"solver": "liblinear", "intercept_scaling": 100.0}
        shared |= {"random_state": self.random_state, "max_iter": 10_000}
        if folds < 2:
            model: Any = LogisticRegression(l1_ratio=1.0, **shared)
        else:
            shared |= {"Cs": np.logspace(-2, 4, self.n_strengths), "cv": int(folds)}
            shared |= {"l1_ratios": (1.0,), "use_legacy_attributes": False}
            model = LogisticRegressionCV(scoring="neg_log_loss", **shared)
        self.model_ = model.fit(2 * X - 1, y)
        self.classes_ = model.classes_
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """The more probable label."""
        return self.model_.predict(2 * X - 1)


def l1(n_strengths: int = 10, n_folds: int = 5, random_state: Any = None) -> L1Logistic:
    """ℓ1 logistic regression: the classic learner of sparse linear rules."""
    return L1Logistic(n_strengths, n_folds, random_state)


def tree(max_depth: int | None = None, min_samples_leaf: int = 1) -> DecisionTreeClassifier:
    """A decision tree, grown until its leaves are pure."""
    return DecisionTreeClassifier(max_depth=max_depth, min_samples_leaf=min_samples_leaf)


def boosting(
    max_iter: int = 100, learning_rate: float = 0.1, min_samples_leaf: int = 5
) -> HistGradientBoostingClassifier:
    """Gradient-boosted trees. Their library's leaves of 20 samples hold no positive of 100."""
    return HistGradientBoostingClassifier(
        max_iter=max_iter, learning_rate=learning_rate, min_samples_leaf=min_samples_leaf
    )


def cme(n_starts: int = 1) -> ConditionalMeanClassifier:
    """CME attention over the samples: a row of bits is the query, the training rows are the keys.

    The RBF kernel on bits, its length and the ridge by marginal likelihood: (4.5), zhang2022.
    """
    return ConditionalMeanClassifier(n_starts=n_starts)


def sign_tokens(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Bits (m, T) as T tokens of one number, −1 or 1.

    >>> sign_tokens(np.array([[0, 1]])).tolist()
    [[[-1.0], [1.0]]]
    """
    return (2 * bits[..., None] - 1).astype(np.float32)


def rf_mlp(n_neurons: int = 1000) -> Pipeline:
    """Random ReLU neurons on all bits, with fitted values: fu2023's comparison model.

    Every position is a token of one number, −1 or 1. The values are fitted to labels 0 and 1 by
    ridge regression (exact leave-one-out), and a prediction of 1/2 or more is a 1.
    """
    return make_pipeline(FunctionTransformer(sign_tokens), RandomFeatureMLPRegressor(n_neurons))


def position_tokens(bits: NDArray[Any], width: int) -> NDArray[np.float32]:
    """Bits (m, T) as tokens (m, T + 1, 2·width), of which the first asks and is always the same.

    Token t is (p_t, ±p_t)/√2 with a random unit vector p_t of its position, always the same, and
    the sign of its bit: attention does not see the order of tokens, so these must say it.

    >>> tokens = position_tokens(np.array([[0, 1]]), width=4)
    >>> tokens.shape, np.linalg.norm(tokens, axis=2).round(6).tolist()
    ((1, 3, 8), [[1.0, 1.0, 1.0]])
    """
    length = bits.shape[1]
    codes = generator("position tokens", length, width).normal(size=(length, width))
    codes /= np.linalg.norm(codes, axis=1, keepdims=True) * np.sqrt(2)
    signs = 2 * bits[..., None] - 1
    tokens = np.concatenate([np.broadcast_to(codes, (*bits.shape, width)), signs * codes], axis=2)
    asking = np.full((len(bits), 1, 2 * width), (2 * width) ** -0.5)
    return np.concatenate([asking, tokens], axis=1).astype(np.float32)


def rfa(n_heads: int = 50, width: int = 16, activation: str = "relu") -> Pipeline:
    """Random-feature attention (fu2023): random heads, values fitted by ridge regression.

    Tokens are those of `position_tokens`. With "relu" it is linear in the bits; with "softmax"
    they compete for the attention of a head.
    """
    tokens = FunctionTransformer(position_tokens, kw_args={"width": width})
    kind: Any = activation
    return make_pipeline(tokens, RandomFeatureAttentionClassifier(n_heads, activation=kind))
