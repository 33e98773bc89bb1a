"""What decoding keeps of a context, and how it is kept."""

import abc
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.core.arguments import check_finite
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import float64_inside


class DecodeState(eqx.Module):
    """Abstract: a context that grows by one pair at a time; a plain pytree for jit and scan."""

    @abc.abstractmethod
    def append(self, key: ArrayLike, value: ArrayLike) -> "DecodeState":
        """The state with one more key (\\*batch, d_k) and value (\\*batch, d_v)."""

    @abc.abstractmethod
    def read(
        self, query: ArrayLike
    ) -> tuple[Float[Array, "*batch d_v"], Float[Array, "*batch"] | None]:
        """The answer at ``query`` (\\*batch, d_k) and its variance; None where there is none."""


def as_token(
    owner: str, name: str, token: ArrayLike, shape: tuple[int, ...], dtype: Any
) -> Float[Array, "..."]:
    """One token for each context of the batch, checked."""
    token = as_array(token)
    if token.shape != shape:
        raise bad_argument(name, owner, f"of shape {shape}", f"shape {token.shape}")
    check_finite(token, name, owner)
    return token.astype(dtype)


class Double(NamedTuple):
    """A float64 array as high + low in the precision of the data, at least float32: it survives
    float32 programs."""

    high: Float[Array, "..."]
    low: Float[Array, "..."]


@functools.cache
def batched(step: Callable[..., Any], axes: int, operands: int, dtype: Any) -> Callable[..., Any]:
    """``step(module, length, *operands)`` over the batch axes, in float64 inside."""
    mapped = step
    for _ in range(axes):
        mapped = jax.vmap(mapped, in_axes=(None, None) + (0,) * operands)

    least = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype

    def keep(result: Any) -> Any:
        # Two parts in half precision would lose what the split into two has kept.
        if isinstance(result, Double):
            return Double(result.high.astype(least), result.low.astype(least))
        return result.astype(dtype)

    @float64_inside
    def run(*arguments: Any) -> Any:
        return mapped(*arguments)

    @jax.jit
    def call(*arguments: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            results = run(*arguments)
        return jax.tree.map(keep, results, is_leaf=lambda leaf: isinstance(leaf, Double))

    return call


def split(array: Float[Array, "..."]) -> Double:
    """A float64 array in two parts."""
    # reduce_precision, because XLA may drop a cast to float32 and back as excess precision.
    high = jax.lax.reduce_precision(array, exponent_bits=8, mantissa_bits=23)
    return Double(high, array - high)


def join(double: Double) -> Float[Array, "..."]:
    """What was split."""
    return double.high + double.low
