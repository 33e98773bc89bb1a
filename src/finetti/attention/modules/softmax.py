"""Softmax attention."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.normalized import NormalizedAttention
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

    def _log_scores(
        self, query: Float[Array, "Q d_k"], keys: Float[Array, "L d_k"]
    ) -> Float[Array, "Q L"]:
        return jnp.asarray(self.scale, query.dtype) * (query @ keys.T)
