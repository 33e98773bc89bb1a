"""Random heads: how their frozen weights are drawn, and what they make of scores."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from finetti.attention.modules.attention_module import masked_softmax
from finetti.core.arguments import as_whole, check_finite
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import widest_float

Activation = Literal["relu", "exponential", "softmax"]


def with_bias(tokens: Float[Array, "*lead d"]) -> Float[Array, "*lead d+1"]:
    """x̃ = [x; 1]."""
    return jnp.concatenate([tokens, jnp.ones_like(tokens[..., :1])], axis=-1)


def draw_heads(
    key: PRNGKeyArray,
    n_heads: int,
    dimension: int,
    sampling: str,
    head_dimension: int | None,
    owner: str,
) -> Float[Array, "M D D"]:
    """W_m with entries of variance 1/4, so that ⟨W_m, x̃₀x̃ᵢᵀ⟩ has variance 1 on the unit sphere.

    direct: iid N(0, 1/4). factored: QᵀK/(2√D) with Q, K of D rows iid N(0, 1), which tends to the
    former as D grows.
    """
    if sampling not in ("direct", "factored"):
        raise bad_argument("sampling", owner, '"direct" or "factored"', repr(sampling))
    width = dimension + 1
    if sampling == "direct":
        if head_dimension is not None:
            requirement = 'None when sampling is "direct"'
            raise bad_argument("head_dimension", owner, requirement, head_dimension)
        return jax.random.normal(key, (n_heads, width, width)) / 2
    rows = as_whole(head_dimension, "head_dimension", owner)
    queries, keys = jax.random.normal(key, (2, n_heads, rows, width))
    return jnp.einsum("mri,mrj->mij", queries, keys) / (2 * rows**0.5)


def resolve_mean(mean_weights: Any, dimension: int, owner: str) -> Float[Array, "D D"] | None:
    """W₀ as a matrix on [x; 1]: a d×d one acts on the tokens alone; None stands for zero."""
    if mean_weights is None:
        return None
    requirement = (
        f'None, "identity" or a matrix of shape ({dimension}, {dimension}) or '
        f"({dimension + 1}, {dimension + 1})"
    )
    if isinstance(mean_weights, str):
        if mean_weights != "identity":
            raise bad_argument("mean_weights", owner, requirement, repr(mean_weights))
        mean_weights = jnp.eye(dimension)
    matrix = as_array(mean_weights)
    if matrix.shape not in ((dimension, dimension), (dimension + 1, dimension + 1)):
        raise bad_argument("mean_weights", owner, requirement, f"shape {matrix.shape}")
    matrix = matrix.astype(widest_float(matrix))
    check_finite(matrix, "mean_weights", owner)
    missing = dimension + 1 - len(matrix)
    return jnp.pad(matrix, ((0, missing), (0, missing)))


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
    count: Any = scores.shape[-1]
    if mask is not None:
        mask = jnp.broadcast_to(mask, scores.shape)
        # At least 1, so that it can divide.
        count = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1).astype(scores.dtype)
        # Before the exponential: what it makes of a masked score must not reach the gradient.
        scores = jnp.where(mask, scores, 0)
    if activation == "softmax":
        weights = masked_softmax(scores, mask)
    else:
        weights = (jax.nn.relu if activation == "relu" else jnp.exp)(scores) / count
    return weights if mask is None else jnp.where(mask, weights, 0)
