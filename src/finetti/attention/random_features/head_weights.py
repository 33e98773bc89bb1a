"""What a random head makes of its scores: the weight of each key."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.normalized import masked_softmax
from finetti.core.errors import bad_argument

Activation = Literal["relu", "exponential", "softmax"]


def check_activation(activation: str, owner: str) -> None:
    """Refuse unknown names."""
    if activation not in get_args(Activation):
        known = '"relu", "exponential" or "softmax"'
        raise bad_argument("activation", owner, known, repr(activation))


def head_weights(
    scores: Float[Array, "Q L"], mask: Bool[Array, "#Q L"] | None, activation: str
) -> Float[Array, "Q L"]:
    """σ(scores)/N with N the number of unmasked keys, or the softmax over them; 0 on masked keys.

    A query that may read nothing gets no weight at all, whatever the activation.
    """
    if mask is not None:
        mask = jnp.broadcast_to(mask, scores.shape)
        # Before the exponential: what it makes of a masked score must not reach the gradient.
        scores = jnp.where(mask, scores, 0)
    if activation == "softmax":
        weights = masked_softmax(scores, mask)
    else:
        act = jax.nn.relu if activation == "relu" else jnp.exp
        weights = act(scores) / count_keys(scores, mask)
    return weights if mask is None else jnp.where(mask, weights, 0)


def count_keys(
    scores: Float[Array, "Q L"], mask: Bool[Array, "Q L"] | None
) -> Float[Array, "#Q 1"]:
    """N, at least 1 so that it can divide."""
    if mask is None:
        return jnp.full((1, 1), scores.shape[-1], scores.dtype)
    return jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1).astype(scores.dtype)
