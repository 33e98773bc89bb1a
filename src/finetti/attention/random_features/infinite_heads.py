"""The kernel of random-feature attention with infinitely many heads."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.random_features.context_kernel import ContextKernel, Input
from finetti.attention.random_features.random_heads import (
    Activation,
    check_activation,
    resolve_mean,
    with_bias,
)
from finetti.attention.random_features.rectified import arc_cosine, rectified_product
from finetti.core.arguments import as_whole
from finetti.core.errors import UnsupportedError, bad_argument


class InfiniteHeadKernel(ContextKernel):
    """lim Φ(x)·Φ(x') of `RandomFeatureAttention` as the number of heads grows, exactly.

    K(x, x') = (1/(N N')) Σ_ij E[σ(tᵢ + gᵢ) σ(t'ⱼ + g'ⱼ)] ⟨x̃ᵢ, x̃'ⱼ⟩,   tᵢ = ⟨W₀, x̃₀x̃ᵢᵀ⟩

    with normal g of variance sᵢ² = ‖x̃₀‖²‖x̃ᵢ‖²/4 (1 on the unit sphere) and covariance
    cᵢⱼ = ⟨x̃₀, x̃'₀⟩⟨x̃ᵢ, x̃'ⱼ⟩/4. The expectation is, with u = c/(s s'),

    - RFA: s s' κ₁(u), the arc-cosine kernel (`arc_cosine`);
    - BRFA: s s' E[σ(t/s + g) σ(t'/s' + g')] through the bivariate normal distribution function
      (`rectified_product`; about 1e-15 in float64). The series Σ_l μ_l(t) μ_l(t') u^l agrees but
      converges slowly near |u| = 1;
    - exponential: exp(t + t' + (s² + s'²)/2 + c), the mean of a log-normal.

    The functions of this kernel's space are the infinite-head class, K's norm their E‖v(W)‖².

    Args:
        dimension: d of query and keys.
        mean_weights: W₀, as in `RandomFeatureAttention`; a leaf that can be trained here.
        activation: "relu" or "exponential". There is no formula for "softmax": it is refused.

    >>> import jax.numpy as jnp
    >>> x = jnp.array([1.0, 0.0]), jnp.array([[0.0, 1.0], [1.0, 0.0]])
    >>> round(float(InfiniteHeadKernel(dimension=2)(*x, *x)), 4)
    0.6522

    Reference: derived from the model of fu2023 (which is stated from knowledge of the paper); κ₁
    and the series are its Hermite expansion.
    """

    mean_weights: Float[Array, "D D"] | None
    dimension: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(self, dimension: int, mean_weights: Any = None, activation: Activation = "relu"):
        owner = type(self).__name__
        check_activation(activation, owner)
        if activation == "softmax":
            raise UnsupportedError(
                "The softmax variant has no infinite-head kernel in closed form: the softmax "
                "divides by a sum over all keys, so the expectation is a Gaussian integral over "
                "all N + N' scores at once instead of one pair. Estimate it by `features` with "
                'many heads, or use activation="relu" or "exponential".'
            )
        self.dimension = as_whole(dimension, "dimension", owner)
        self.mean_weights = resolve_mean(mean_weights, self.dimension, owner)
        self.activation = activation

    def _value(self, x: Input, y: Input) -> Float[Array, ""]:
        queries = with_bias(x.query), with_bias(y.query)
        keys = with_bias(x.keys), with_bias(y.keys)
        inner = keys[0] @ keys[1].T
        covariance = jnp.dot(*queries) * inner / 4
        deviations = [
            jnp.linalg.norm(query) * jnp.linalg.norm(key, axis=1) / 2
            for query, key in zip(queries, keys, strict=True)
        ]
        means = [self._means(query, key) for query, key in zip(queries, keys, strict=True)]
        products = self._products(means, deviations, covariance)
        return x.share @ (products * inner) @ y.share

    def _means(self, query: Float[Array, " D"], keys: Float[Array, "N D"]) -> Array | None:
        """tᵢ = ⟨W₀, x̃₀x̃ᵢᵀ⟩; None for zero."""
        if self.mean_weights is None:
            return None
        return keys @ (query @ self.mean_weights.astype(query.dtype))

    def _products(self, means: Any, deviations: Any, covariance: Array) -> Float[Array, "N M"]:
        """E[σ(tᵢ + gᵢ) σ(t'ⱼ + g'ⱼ)] for all pairs of keys."""
        s, other_s = deviations
        if self.activation == "exponential":
            logs = [
                deviation**2 / 2 + (0 if mean is None else mean)
                for mean, deviation in zip(means, deviations, strict=True)
            ]
            return jnp.exp(logs[0][:, None] + logs[1][None, :] + covariance)
        sizes = s[:, None] * other_s[None, :]
        correlation = covariance / sizes
        if self.mean_weights is None:
            return sizes * arc_cosine(correlation)
        a = jnp.broadcast_to((means[0] / s)[:, None], sizes.shape)
        b = jnp.broadcast_to((means[1] / other_s)[None, :], sizes.shape)
        return sizes * rectified_product(a, b, correlation)

    def _check(self, owner: str, prefix: str, keys: Array, mask: Any) -> None:
        if keys.shape[-1] != self.dimension:
            requirement = f"of dimension d = {self.dimension}"
            raise bad_argument(f"{prefix}keys", owner, requirement, f"shape {keys.shape}")
