"""Random-feature attention by the constrained fit of its theorem, as scikit-learn estimators."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.attention.random_features.random_heads import Activation
from finetti.core.arguments import as_positive, as_whole
from finetti.core.errors import warn_user
from finetti.core.numerics.extremes import largest_of
from finetti.estimators.constrained import minimize_constrained
from finetti.estimators.constrained_risk import ConstrainedRisk
from finetti.estimators.learned_norms import LearnedNorms
from finetti.estimators.losses import check_loss
from finetti.estimators.norm_limits import BlockLimits
from finetti.estimators.random_features import (
    draw_heads,
    drawn,
    features_of,
    outputs_of,
    over_chunks,
)
from finetti.estimators.ridge import Floats
from finetti.estimators.set_models import SetModel, SetRegressor, SignClassifier
from finetti.estimators.sets import TokenSets, in_precision_of

WORSE = 1.01  # times the loss of the mean: what chance and rounding do not explain


@dataclass(frozen=True)
class Constraints:
    """Both norms of the theorem and their limits; of several outputs the largest.

    Args:
        norm_sum: Σ_m ‖v_m‖.
        norm_sum_limit: K₁.
        square_sum: Σ_m ‖v_m‖².
        square_sum_limit: K₂/M.
    """

    norm_sum: float
    norm_sum_limit: float
    square_sum: float
    square_sum_limit: float


class _Constrained(SetModel):
    """The constrained fit; see `ConstrainedAttentionRegressor`."""

    losses: ClassVar[tuple[str, ...]]
    activation: Activation

    def __init__(
        self,
        n_heads: int = 100,
        *,
        norm_sum: float = 10.0,
        square_sum: float | None = None,
        mean: Any = "zero",
        activation: Activation = "relu",
        width: float = 1.0,
        tol: float = 1e-6,
        max_iter: int = 10_000,
        n_tokens: int = 1,
        token_scale: Any = "auto",
        random_state: Any = None,
    ):
        self.n_heads = n_heads
        self.norm_sum = norm_sum
        self.square_sum = square_sum
        self.mean = mean
        self.activation = activation
        self.width = width
        self.tol = tol
        self.max_iter = max_iter
        self.n_tokens = n_tokens
        self.token_scale = token_scale
        self.random_state = random_state

    @property
    @abc.abstractmethod
    def _loss_name(self) -> str:
        """Which of `losses`."""

    def _fit(self, sets: TokenSets, targets: Floats, weights: Floats) -> None:
        owner = type(self).__name__
        loss = check_loss(
            self._loss_name, self.losses, as_positive(self.width, "width", owner), owner
        )
        norm_sum = as_positive(self.norm_sum, "norm_sum", owner)
        square_sum = 10 * norm_sum**2
        if self.square_sum is not None:
            square_sum = as_positive(self.square_sum, "square_sum", owner)
        n_heads = as_whole(self.n_heads, "n_heads", owner)
        limits = BlockLimits(norm_sum, (square_sum / n_heads) ** 0.5)
        model = drawn(self, sets)
        parts = [part.astype(np.float64) for _, part in over_chunks(features_of, model, sets)]
        # f has no 1/M in front, Φ has M^(−1/2).
        features = np.concatenate(parts) * n_heads**0.5
        columns = targets.reshape(len(targets), -1)
        shares = weights / weights.sum()
        tol, max_iter = (
            as_positive(self.tol, "tol", owner),
            as_whole(self.max_iter, "max_iter", owner),
        )
        risks = [
            ConstrainedRisk(features, column, shares, loss, limits, self.n_heads)
            for column in columns.T
        ]
        found = [
            minimize_constrained(risk, tol=tol, max_iter=max_iter, name=owner) for risk in risks
        ]
        self.gap_ = largest_of(each.gap for each in found)
        self.n_iter_ = max(each.n_iter for each in found)
        self.objective_ = sum(each.objective for each in found) / len(found)
        lengths = [np.linalg.norm(each.blocks, axis=1) for each in found]
        self.constraints_ = Constraints(
            largest_of(float(each.sum()) for each in lengths),
            norm_sum,
            largest_of(float(each @ each) for each in lengths),
            square_sum / self.n_heads,
        )
        if self.gap_ > self.tol:
            warn_user(
                f"{owner} stopped after {self.n_iter_} iterations with a duality gap of "
                f"{self.gap_:.1e}, more than tol = {self.tol:g}: the mean loss is at most that "
                "much above the least one. Lower `norm_sum`, or raise `max_iter`.",
                ConvergenceWarning,
            )
        for risk, minimum in zip(risks, found, strict=True):
            self._compare_with_mean(minimum.objective, risk.value_of_mean())
        values = np.stack([each.blocks for each in found], axis=2)
        values = values[:, :, 0] if targets.ndim == 1 else values
        self.norms_ = LearnedNorms.of_values(values, 2)
        with in_precision_of(sets):
            # As NumPy arrays: those of JAX lose float64 in a pickle.
            self.model_ = jax.tree.map(
                np.asarray, model.with_values(values.astype(sets.keys.dtype))
            )

    def _compare_with_mean(self, objective: float, of_mean: float) -> None:
        """Warn where the mean of the targets, which is outside the class, would fit better."""
        if self._loss_name != "huber" or objective <= WORSE * of_mean:
            return
        warn_user(
            f"{type(self).__name__} fits worse than the mean of the targets alone: its mean loss "
            f"is {objective:.3g}, that of the mean {of_mean:.3g}. It has no intercept, and the "
            f"limit norm_sum = {self.norm_sum:g} (or `square_sum`) keeps its outputs small. Center "
            "and scale the targets, TransformedTargetRegressor(model, "
            "transformer=StandardScaler()) of scikit-learn, or raise `norm_sum`."
        )

    def _draw(self, key: Any, sets: TokenSets) -> RandomFeatureAttention:
        return draw_heads(self, key, sets)

    def _predict(self, sets: TokenSets) -> NDArray[Any]:
        parts = [part.astype(np.float64) for _, part in over_chunks(outputs_of, self.model_, sets)]
        return np.concatenate(parts)


class ConstrainedAttentionRegressor(SetRegressor, _Constrained):
    """Random-feature attention with values of limited norms, fitted as its theorem says.

    min (1/n) Σ_j l(f(x_j) − y_j)   with   Σ_m ‖v_m‖ ≤ K₁   and   Σ_m ‖v_m‖² ≤ K₂/M

    f is that of `RandomFeatureAttentionRegressor` without the intercept c, and inputs are the same;
    l is Huber's loss of slope 1: r²/(2w) for |r| ≤ w, |r| − w/2 beyond. An excess risk of order
    √(B(f*)·(1/n + d²/M)) follows for K₁ ≈ √B(f*) and K₂ ≈ B(f*)/δ (`finetti bound R-norm-rfa`).
    The fit stops when its duality gap proves it optimal to ``tol``. Features of all rows are kept
    in memory; a second output is a fit of its own.

    Targets should be centered and of a size of about 1, for example by scikit-learn's
    TransformedTargetRegressor; a fit that is worse than their mean alone warns.

    Args:
        n_heads: M.
        norm_sum: K₁.
        square_sum: K₂; by default 10·K₁², δ = 0.1. At most K₁² it alone binds.
        mean: W₀: "zero" (RFA), "identity" (BRFA), or a matrix.
        activation: σ: "relu", "exponential" or "softmax".
        width: w of the loss.
        tol: the duality gap at which to stop.
        max_iter: iterations at most; a ConvergenceWarning says which gap was reached.
        n_tokens: N of a table.
        token_scale: what every token is multiplied by: a number (1 leaves tokens as they are), or
            "auto", one over the root mean square length of the tokens of `fit`.
        random_state: of the draw.

    Attributes:
        model_: the fitted `finetti.attention.RandomFeatureAttention`, of tokens times
            ``token_scale_``.
        objective_: the mean loss, averaged over outputs.
        gap_: by how much it lies above the least one at most (the largest of several outputs).
        constraints_: both norms and their limits.
        norms_: as of `RandomFeatureAttentionRegressor`.
        n_iter_: iterations.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5, 3)) / 3**0.5
    >>> y = np.mean(X[:, 1:, 0] ** 2, axis=1)
    >>> model = ConstrainedAttentionRegressor(20, norm_sum=2.0, random_state=0).fit(X, y)
    >>> model.gap_ <= 1e-6, model.constraints_.norm_sum <= 2.0 + 1e-9
    (True, True)

    Reference: the constrained empirical risk minimization of fu2023, stated from knowledge of the
    paper.
    """

    losses = ("huber",)

    @property
    def _loss_name(self) -> str:
        return "huber"


class ConstrainedAttentionClassifier(SignClassifier, _Constrained):
    """`ConstrainedAttentionRegressor` on ±1 with a loss of the margin z = y·f(x).

    Args:
        loss: "logistic", log(1 + e^−z); or "smoothed hinge", 0 for z ≥ 1, (1 − z)²/(2w) down to
            z = 1 − w and 1 − z − w/2 below.
        n_heads: M; this and the other arguments as in `ConstrainedAttentionRegressor`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5, 3)) / 3**0.5
    >>> y = np.mean(X[:, 1:, 0] ** 2, axis=1) > 0.3
    >>> model = ConstrainedAttentionClassifier(20, norm_sum=5.0, random_state=0).fit(X, y)
    >>> model.gap_ <= 1e-6, model.score(X, y) > 0.8
    (True, True)
    """

    losses = ("logistic", "smoothed hinge")

    def __init__(
        self,
        n_heads: int = 100,
        *,
        loss: Literal["logistic", "smoothed hinge"] = "logistic",
        norm_sum: float = 10.0,
        square_sum: float | None = None,
        mean: Any = "zero",
        activation: Activation = "relu",
        width: float = 1.0,
        tol: float = 1e-6,
        max_iter: int = 10_000,
        n_tokens: int = 1,
        token_scale: Any = "auto",
        random_state: Any = None,
    ):
        super().__init__(
            n_heads,
            norm_sum=norm_sum,
            square_sum=square_sum,
            mean=mean,
            activation=activation,
            width=width,
            tol=tol,
            max_iter=max_iter,
            n_tokens=n_tokens,
            token_scale=token_scale,
            random_state=random_state,
        )
        self.loss = loss

    @property
    def _loss_name(self) -> str:
        return self.loss
