"""What every network checks of its weights, and how it draws them."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.core.arrays import check_finite
from finetti.core.errors import bad_argument
from finetti.core.precision import widest_float


def as_weights(
    value: ArrayLike, argument: str, owner: str, axes: str, sizes: tuple[int | None, ...]
) -> Float[Array, "..."]:
    """``value`` as a floating array with the axes named in ``axes``; None is any size ≥ 1."""
    array = jnp.asarray(value)
    fits = array.ndim == len(sizes) and all(
        size >= 1 and wanted in (None, size)
        for size, wanted in zip(array.shape, sizes, strict=True)
    )
    if not fits:
        known = ", ".join("any" if size is None else str(size) for size in sizes)
        raise bad_argument(argument, owner, f"of shape {axes} = ({known})", f"shape {array.shape}")
    check_finite(array, argument, owner)
    return array.astype(widest_float(array))


def as_sequence(
    value: ArrayLike, argument: str, owner: str, dimension: int
) -> Float[Array, "*batch T d"]:
    """``value`` as tokens (…, T, d) with at least one token of the given dimension."""
    array = jnp.asarray(value)
    if array.ndim < 2 or array.shape[-1] != dimension or array.shape[-2] == 0:
        raise bad_argument(argument, owner, f"of shape (..., T, {dimension})", array.shape)
    check_finite(array, argument, owner)
    return array.astype(widest_float(array))


def promote(*arrays: Array) -> tuple[Array, ...]:
    """The arrays in the widest of their floating dtypes."""
    dtype = widest_float(*arrays)
    return tuple(array.astype(dtype) for array in arrays)


def draw(key: PRNGKeyArray, *shape: int, fan_in: int) -> Float[Array, "..."]:
    """Independent N(0, 1/fan_in) weights: a token of length 1 keeps its length on average."""
    return jax.random.normal(key, shape) / fan_in**0.5
