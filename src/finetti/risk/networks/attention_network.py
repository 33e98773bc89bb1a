"""The networks of paper E's risk: one attention between learned tokens and an aggregation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.attention import Attention, FeedForward, LinearMap, project_ball, rbf_attention
from finetti.attention.networks.weight_arrays import as_sequence, as_weights, draw, promote
from finetti.core.arguments import as_whole
from finetti.core.errors import bad_argument
from finetti.risk.networks.weight_limits import NormLimits


class AttentionNetwork(eqx.Module):
    """f_θ(X; msk) = agg(attn(q_θ(msk), k_θ(X), v_θ(X)))                  (4.7), (5.1), zhang2022

    q_θ(x) = W_qᵀnn(x; A), k_θ(x) = W_kᵀnn(x; A), v_θ(x) = W_vᵀnn(x; A), nn(x; A) = ReLU(Ax).

    Args:
        feed_forward: nn, a `FeedForward` without outer layer and skip; its ``inner`` is Aᵀ.
        query_weights, key_weights: W_q and W_k, shape (hidden, d_p).
        value_weights: W_v, shape (hidden, d_v).
        aggregation: agg: from (n, d_v) to (n, d_y); `LinearMap` for Wᵀ, or any callable.
        attention: how a query reads; by default softmax in the RBF form (5.4). Its own numbers
            (bandwidth, ridge) stay fixed, as in the paper.
        limits: keeps the network in the class of Assumption 5.1; None for no limits.

    >>> import jax
    >>> network = AttentionNetwork.init(jax.random.key(0), token_dimension=3, out_dimension=2)
    >>> tokens = jax.random.normal(jax.random.key(1), (5, 7, 3))    # 5 sequences of 7 tokens
    >>> network(tokens, mask_token=tokens[:, 0]).shape
    (5, 2)
    """

    feed_forward: FeedForward
    query_weights: Float[Array, "hidden d_p"]
    key_weights: Float[Array, "hidden d_p"]
    value_weights: Float[Array, "hidden d_v"]
    aggregation: Callable[[Any], Any]
    attention: Attention
    limits: NormLimits | None = eqx.field(static=True)

    def __init__(
        self,
        feed_forward: FeedForward,
        query_weights: ArrayLike,
        key_weights: ArrayLike,
        value_weights: ArrayLike,
        aggregation: Callable[[Any], Any],
        attention: Attention | None = None,
        *,
        limits: NormLimits | None = None,
    ):
        owner = "AttentionNetwork"
        if feed_forward.outer is not None or feed_forward.skip:
            requirement = "FeedForward(inner, outer=None, skip=False), which is ReLU(Ax) of (4.7)"
            raise bad_argument("feed_forward", owner, requirement, "one with more")
        hidden = feed_forward.out_dimension
        sizes = (hidden, None)
        self.query_weights = as_weights(
            query_weights, "query_weights", owner, "(hidden, d_p)", sizes
        )
        width = self.query_weights.shape[1]
        self.key_weights = as_weights(
            key_weights, "key_weights", owner, "(hidden, d_p)", (hidden, width)
        )
        self.value_weights = as_weights(
            value_weights, "value_weights", owner, "(hidden, d_v)", sizes
        )
        self.feed_forward, self.aggregation = feed_forward, aggregation
        self.attention = rbf_attention(width, "5.4") if attention is None else attention
        self.limits = limits

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        token_dimension: int,
        out_dimension: int,
        *,
        hidden_dimension: int | None = None,
        head_dimension: int | None = None,
        value_dimension: int | None = None,
        attention: Attention | None = None,
        aggregation: Callable[[Any], Any] | None = None,
        limits: NormLimits | None = None,
    ) -> "AttentionNetwork":
        """Independent N(0, 1/fan-in) weights; A twice that variance, as half of ReLU is silent.

        Args:
            key: a JAX random key.
            token_dimension: of x and of the mask token.
            out_dimension: d_y.
            hidden_dimension: of nn(x), four times the token's by default.
            head_dimension, value_dimension: d_p and d_v, the token's by default.
            attention, limits: as above.
            aggregation: instead of a linear one.
        """
        token_dimension = as_whole(token_dimension, "token_dimension", "AttentionNetwork")
        out_dimension = as_whole(out_dimension, "out_dimension", "AttentionNetwork")
        hidden = 4 * token_dimension if hidden_dimension is None else hidden_dimension
        width = token_dimension if head_dimension is None else head_dimension
        values = token_dimension if value_dimension is None else value_dimension
        inner, query, keys, value, output = jax.random.split(key, 5)
        if aggregation is None:
            aggregation = LinearMap(draw(output, values, out_dimension, fan_in=values))
        return cls(
            FeedForward(
                2**0.5 * draw(inner, token_dimension, hidden, fan_in=token_dimension), skip=False
            ),
            draw(query, hidden, width, fan_in=hidden),
            draw(keys, hidden, width, fan_in=hidden),
            draw(value, hidden, values, fan_in=hidden),
            aggregation,
            attention,
            limits=limits,
        )

    @property
    def token_dimension(self) -> int:
        """The dimension of a token."""
        return self.feed_forward.inner.shape[0]

    def limited(self) -> "AttentionNetwork":
        """The network with its matrices as they act: within the limits, if there are any."""
        limits = self.limits
        if limits is None:
            return self
        attention = limits.attention, limits.attention_size
        inner = limits.scaled(
            self.feed_forward.inner, limits.feed_forward, limits.feed_forward_size
        )
        aggregation = self.aggregation
        if isinstance(aggregation, LinearMap):
            weights = limits.scaled(aggregation.weights, limits.aggregation, float("inf"))
            aggregation = eqx.tree_at(lambda a: a.weights, aggregation, weights)
        return dataclasses.replace(
            self,
            feed_forward=FeedForward(inner, skip=False),
            query_weights=limits.scaled(self.query_weights, *attention),
            key_weights=limits.scaled(self.key_weights, *attention),
            value_weights=limits.scaled(self.value_weights, *attention),
            aggregation=aggregation,
        )

    def values(self, tokens: ArrayLike) -> Float[Array, "... L d_v"]:
        """v_θ(x) of every token, (…, L, d)."""
        acting = self.limited()
        return jnp.matmul(*promote(acting.feed_forward(tokens), acting.value_weights))

    def _read(self, tokens: ArrayLike, mask_token: ArrayLike, mask: ArrayLike | None) -> Array:
        tokens = as_sequence(tokens, "tokens", "AttentionNetwork", self.token_dimension)
        hidden = self.feed_forward(tokens)
        asked = self.feed_forward(jnp.asarray(mask_token)[..., None, :])[..., 0, :]
        if asked.shape[:-1] != tokens.shape[:-2]:
            requirement = f"of shape {(*tokens.shape[:-2], self.token_dimension)}, one per sequence"
            got = f"shape {jnp.shape(mask_token)}"
            raise bad_argument("mask_token", "AttentionNetwork", requirement, got)
        queries, keys, values = (
            jnp.matmul(*promote(one, weights))
            for one, weights in (
                (asked, self.query_weights),
                (hidden, self.key_weights),
                (hidden, self.value_weights),
            )
        )
        fixed = jax.tree.map(
            lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, self.attention
        )
        return fixed(queries, keys, values, mask)

    def __call__(
        self, tokens: ArrayLike, mask_token: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "n d_y"]:
        """f_θ(X; msk) of every sequence.

        Args:
            tokens: X, shape (n, L, d).
            mask_token: msk, shape (n, d).
            mask: True where a token may be read, shape (n, L).
        """
        acting = self.limited()
        out = acting.aggregation(acting._read(tokens, mask_token, mask))
        if self.limits is None or self.limits.output == float("inf"):
            return out
        return project_ball(out, self.limits.output)
