"""Attention with frozen random heads and trained values: a linear model in random features."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.attention.context_batch import Contexts, arrange, block_size, map_blocks
from finetti.attention.random_features.infinite_heads import InfiniteHeadKernel
from finetti.attention.random_features.random_feature_model import (
    RandomFeatureModel,
    parts,
    zero_values,
)
from finetti.attention.random_features.random_heads import (
    Activation,
    check_activation,
    draw_heads,
    head_weights,
    resolve_mean,
    with_bias,
)
from finetti.core.arguments import as_whole
from finetti.core.errors import UnsupportedError, bad_argument


class RandomFeatureAttention(RandomFeatureModel):
    """M random heads whose scores are frozen and whose values are trained (RFA; BRFA with a mean).

    f(x₀, x_{1:N}) = Σ_m (1/N) Σ_i σ(⟨W₀ + W_m, x̃₀x̃ᵢᵀ⟩) ⟨v_m, x̃ᵢ⟩,   x̃ = [x; 1]

    The values of a head are ⟨v_m, x̃ᵢ⟩: they belong to the model and are read off the keys, so a
    call takes a query and keys only, and this is not an `Attention`. Shapes and masks are those of
    `Attention`: ``query`` (\\*batch, \\*queries, d), ``keys`` (\\*batch, N, d), a masked key counts
    as deleted (N is the number of unmasked ones), and a query that may read nothing gets 0.

    The draw is frozen: it gets no gradient (but weight decay would move it; `trainable` says which
    leaves to give to an optimizer). Heads are computed in blocks, so that memory stays bounded in
    M, in the batch and in the gradient.

    Args:
        key: the randomness of the draw.
        n_heads: M.
        dimension: d of query and keys. The paper has them on the unit sphere, where
            ⟨W_m, x̃₀x̃ᵢᵀ⟩ ∼ N(0, 1); any others are accepted, with variance ‖x̃₀‖²‖x̃ᵢ‖²/4.
        output_dimension: d_out of a vector output; None for a number.
        mean_weights: W₀. None for zero (RFA), "identity" for [[I, 0], [0, 0]] (BRFA), or a matrix,
            d×d (embedded like the identity) or (d+1)×(d+1).
        activation: "relu" is the paper's σ; "exponential" replaces it by exp, "softmax" replaces
            σ/N by the softmax over the keys.
        sampling: "direct", W_m with entries iid N(0, 1/4); or "factored", W_m = QᵀK/(2√D).
        head_dimension: D of "factored".

    >>> import jax, jax.numpy as jnp
    >>> attention = RandomFeatureAttention(jax.random.key(0), n_heads=100, dimension=2)
    >>> query, keys = jnp.array([1.0, 0.0]), jnp.array([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    >>> attention.features(query, keys).shape
    (300,)
    >>> float(attention(query, keys))  # the values start at zero
    0.0

    Reference: the random-feature attention of fu2023, stated from knowledge of the paper rather
    than quoted; the exponential and softmax variants are ours.
    """

    mean_weights: Float[Array, "D D"] | None
    activation: Activation = eqx.field(static=True)
    sampling: str = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        n_heads: int,
        dimension: int,
        output_dimension: int | None = None,
        *,
        mean_weights: Any = None,
        activation: Activation = "relu",
        sampling: str = "direct",
        head_dimension: int | None = None,
    ):
        owner = type(self).__name__
        n_heads = as_whole(n_heads, "n_heads", owner)
        dimension = as_whole(dimension, "dimension", owner)
        check_activation(activation, owner)
        self.mean_weights = resolve_mean(mean_weights, dimension, owner)
        self.draws = draw_heads(key, n_heads, dimension, sampling, head_dimension, owner)
        self.values = zero_values((n_heads, dimension + 1), output_dimension, owner)
        self.activation, self.sampling = activation, sampling

    @property
    def n_heads(self) -> int:
        """M."""
        return self.draws.shape[0]

    @property
    def dimension(self) -> int:
        """d."""
        return self.draws.shape[1] - 1

    @property
    def _values_shape(self) -> tuple[int, ...]:
        return self.n_heads, self.dimension + 1

    def features(
        self, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "... columns"]:
        """Φ(x) = M^(−1/2) [(1/N) Σ_i σ(⟨W₀ + W_m, x̃₀x̃ᵢᵀ⟩) x̃ᵢ]_m, head after head.

        Φ(x)·Φ(x') estimates `infinite_kernel` without bias, at the rate M^(−1/2). Since f has no
        1/M in front, f(x) = √M · Φ(x)·vec(V): coefficients β of a linear fit on Φ are the values
        ``(beta / M**0.5).reshape(M, d + 1)``.
        """
        contexts = self._arrange(".features", query, keys, mask)
        return contexts.restore(self._features(*parts(contexts)))

    def preactivations(self, query: ArrayLike, keys: ArrayLike) -> Float[Array, "... M N"]:
        """⟨W₀ + W_m, x̃₀x̃ᵢᵀ⟩ of every head and key; all in memory at once."""
        contexts = self._arrange(".preactivations", query, keys, None)
        tokens, others, _ = parts(contexts)
        factors = with_bias(tokens), self._head_matrices(tokens), with_bias(others)
        return contexts.restore(jnp.einsum("bqi,mij,bnj->bqmn", *factors))

    def infinite_kernel(self) -> InfiniteHeadKernel:
        """The exact limit of Φ(x)·Φ(x') as M → ∞; refused for "softmax" and "factored"."""
        if self.sampling == "factored":
            raise UnsupportedError(
                "RandomFeatureAttention has no closed-form infinite_kernel with factored sampling: "
                "for finite head_dimension the scores are not Gaussian. Its limit as "
                "head_dimension grows is InfiniteHeadKernel(dimension, mean_weights, activation)."
            )
        return InfiniteHeadKernel(self.dimension, self.mean_weights, self.activation)

    def _arrange(
        self, method: str, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None
    ) -> Contexts:
        owner = type(self).__name__ + method
        contexts = arrange(owner, query, keys, None, mask)
        if contexts.layout.d_k != self.dimension:
            requirement = f"of the dimension of the draw, d = {self.dimension}"
            raise bad_argument("keys", owner, requirement, f"shape {jnp.shape(keys)}")
        return contexts

    def _read(self, query: Array, keys: Array, mask: Array | None) -> Array:
        def per_head(weights: Array, keys: Array, value: Array) -> Float[Array, "Q d_out"]:
            return weights @ (keys @ value)

        output = self._over_heads(query, keys, mask, per_head, lambda heads: jnp.sum(heads, axis=0))
        return output[..., 0] if self.values.ndim == 2 else output

    @jax.jit
    def _features(self, query: Array, keys: Array, mask: Array | None) -> Array:
        def line_up(heads: Float[Array, "M Q D"]) -> Float[Array, "Q M*D"]:
            return jnp.swapaxes(heads, 0, 1).reshape(query.shape[1], -1) * self.n_heads**-0.5

        return self._over_heads(query, keys, mask, lambda weights, keys, _: weights @ keys, line_up)

    def _head_matrices(self, like: Array) -> Float[Array, "M D D"]:
        """W₀ + W_m, without gradient."""
        weights = self.draws.astype(like.dtype)
        if self.mean_weights is not None:
            weights = weights + self.mean_weights.astype(like.dtype)[None]
        return jax.lax.stop_gradient(weights)

    def _over_heads(
        self, query: Array, keys: Array, mask: Array | None, per_head: Any, finish: Any
    ) -> Array:
        """``finish`` of what ``per_head(weights (Q, N), keys (N, d+1), v_m)`` gives for all heads.

        Both loops run in blocks: contexts outside, heads inside.
        """
        matrices = self._head_matrices(query)
        values = self.values.reshape(*self.values.shape[:2], -1).astype(query.dtype)
        n_queries, length = query.shape[1], keys.shape[1]

        def one_context(context: Any) -> Array:
            tokens, others, readable = context
            tokens, others = with_bias(tokens), with_bias(others)

            def one_head(head: Any) -> Array:
                matrix, value = head
                # Three factors; the shorter of query and keys first is cheaper.
                few = n_queries <= length
                scores = (tokens @ matrix) @ others.T if few else tokens @ (matrix @ others.T)
                weights = head_weights(scores, readable, self.activation)
                return per_head(weights, others, value)

            return finish(map_blocks(one_head, (matrices, values), n_queries * length))

        scores_at_once = min(self.n_heads, block_size(n_queries * length)) * n_queries * length
        return map_blocks(one_context, (query, keys, mask), scores_at_once)
