"""What random-feature models share: their trained values and the precision they work in."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.core.arrays import check_finite
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_whole
from finetti.core.precision import widest_float


def working_dtype(tokens: Array) -> Any:
    """The dtype of the tokens, or float32 if that is shorter: sums over keys need the digits."""
    return tokens.dtype if jnp.finfo(tokens.dtype).bits >= 32 else jnp.float32


def zero_values(
    shape: tuple[int, ...], output_dimension: int | None, owner: str
) -> Float[Array, "..."]:
    """Values of ``shape`` for a number, with a last axis d_out for a vector.

    They start at zero: the model is linear in them, so there is no symmetry to break.
    """
    if output_dimension is not None:
        shape = (*shape, as_whole(output_dimension, "output_dimension", owner))
    return jnp.zeros(shape)


def check_values(values: ArrayLike, shape: tuple[int, ...], owner: str) -> Float[Array, "..."]:
    """``values`` if they have this shape, or this shape and one more axis."""
    array = jnp.asarray(values)
    fits = array.ndim in (len(shape), len(shape) + 1) and array.shape[: len(shape)] == shape
    if not fits or array.size == 0:
        raise bad_argument(
            "values", owner, f"of shape {shape} or {(*shape, 'd_out')}", f"shape {array.shape}"
        )
    check_finite(array, "values", owner)
    return array.astype(widest_float(array))
