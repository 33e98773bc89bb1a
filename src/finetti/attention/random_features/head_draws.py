"""The frozen weights of random heads: how they are drawn, and their mean."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.core.arrays import check_finite
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_whole
from finetti.core.precision import widest_float


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
    matrix = jnp.asarray(mean_weights)
    if matrix.shape not in ((dimension, dimension), (dimension + 1, dimension + 1)):
        raise bad_argument("mean_weights", owner, requirement, f"shape {matrix.shape}")
    matrix = matrix.astype(widest_float(matrix))
    check_finite(matrix, "mean_weights", owner)
    missing = dimension + 1 - len(matrix)
    return jnp.pad(matrix, ((0, missing), (0, missing)))
