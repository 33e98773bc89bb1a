"""Softmax attention."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.modules.attention_module import (
    NormalizedAttention,
    masked_logits,
    with_bias,
)
from finetti.core.arguments import check_positive


class Softmax(NormalizedAttention):
    """attn_SM(q, K, V) = Vᵀ softmax(scale · Kq)                             (4.10), zhang2022

    Args:
        scale: multiplies query·key; 1 as in the papers (networks use 1/√d_k).

    >>> import jax.numpy as jnp
    >>> Softmax()(jnp.zeros(2), keys=jnp.eye(2), values=jnp.array([[1.0], [3.0]]))
    Array([2.], dtype=float32)
    """

    in_data_precision = True  # as JAX's own attention
    scale: float = eqx.field(static=True)

    def __init__(self, scale: float = 1.0):
        check_positive(scale, "scale", "Softmax")
        self.scale = float(scale)

    def log_scores(
        self, query: Float[Array, "Q d_k"], keys: Float[Array, "L d_k"]
    ) -> Float[Array, "Q L"]:
        """scale · Kq."""
        return jnp.asarray(self.scale, query.dtype) * (query @ keys.T)

    def on_scaled_tokens(self, scale: Float[Array, ""]) -> "ScaledSoftmax":
        """The same with another scale, which may be unknown until the program runs."""
        return ScaledSoftmax(self.scale * scale)


class ScaledSoftmax(NormalizedAttention):
    """`Softmax` with a scale that is an array."""

    in_data_precision = True
    scale: Float[Array, ""]

    def log_scores(
        self, query: Float[Array, "Q d_k"], keys: Float[Array, "L d_k"]
    ) -> Float[Array, "Q L"]:
        """scale · Kq."""
        return self.scale.astype(query.dtype) * (query @ keys.T)


def sum_and_residual(
    module: NormalizedAttention, query: Array, keys: Array, values: Array, mask: Any, bias: Any
) -> tuple[Float[Array, "Q d_v"], Float[Array, "Q"]]:
    """The weighted sum, and the log of the sum of scores, without a gradient."""
    logits = masked_logits(with_bias(module.log_scores(query, keys), bias), mask)
    residual = jax.nn.logsumexp(jax.lax.stop_gradient(logits), axis=-1)
    return jax.nn.softmax(logits, axis=-1) @ values, residual
