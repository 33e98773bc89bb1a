"""Projection of tokens onto a ball: the normalization of paper S's deep network."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.core.arrays import check_positive, check_rank
from finetti.core.precision import widest_float


def project_ball(rows: ArrayLike, radius: float = 1.0) -> Float[Array, "*lead d"]:
    """Π_norm: each row shortened to length ``radius`` if it is longer (A.9, edelman2022).

    1-Lipschitz, as every projection onto a convex set; dividing by the length, the projection onto
    the sphere, is not (S-lemma-A.9-sphere).

    >>> import jax.numpy as jnp
    >>> project_ball(jnp.array([[3.0, 4.0], [0.0, 0.5]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.5]]
    """
    rows = jnp.asarray(rows)
    check_rank(rows, 1, "(..., d)", "rows", "project_ball")
    check_positive(radius, "radius", "project_ball")
    return _project(rows.astype(widest_float(rows)), float(radius))


@partial(jax.jit, static_argnums=1)
def _project(rows: Float[Array, "*lead d"], radius: float) -> Float[Array, "*lead d"]:
    # Measured in units of the largest entry, so that squares neither overflow nor vanish.
    top = jnp.max(jnp.abs(rows), axis=-1, keepdims=True)
    unit = jax.lax.stop_gradient(jnp.maximum(top, radius))
    squares = jnp.sum((rows / unit) ** 2, axis=-1, keepdims=True)
    limit = (radius / unit) ** 2
    # Below the limit the quotient is 1, also for its gradient.
    outside = squares > limit
    length = jnp.sqrt(jnp.where(outside, squares, limit)) * unit
    return jnp.where(outside, rows * (radius / length), rows)
