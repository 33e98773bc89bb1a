"""Inner products and distances between tokens, and the checks made on tokens."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finetti.core.arguments import check_positive
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.linalg.matrix_products import outer_products
from finetti.core.numerics.float64 import widest_float


def as_tokens(owner: str, rank: int, **arrays: Any) -> tuple[Any, ...]:
    """The arguments as arrays of one floating dtype and exactly ``rank`` axes; None stays None."""
    tokens = {name: as_array(array) for name, array in arrays.items() if array is not None}
    shape = "(d,)" if rank == 1 else "(L, d)"
    for name, array in tokens.items():
        if array.ndim != rank:
            advice = "Use jax.vmap for batches." if array.ndim > rank else ""
            requirement = f"an array of shape {shape}"
            raise bad_argument(name, owner, requirement, f"shape {array.shape}", advice)
        if array.shape[-1] == 0:
            raise bad_argument(name, owner, "of at least one dimension", f"shape {array.shape}")
    first, *others = tokens
    for name in others:
        given, wanted = tokens[name].shape[-1], tokens[first].shape[-1]
        if given != wanted:
            requirement = f"of the same token dimension as `{first}`, {wanted}"
            raise bad_argument(name, owner, requirement, given)
    dtype = widest_float(*tokens.values())
    return tuple(tokens[name].astype(dtype) if name in tokens else None for name in arrays)


def log_parameter(
    value: Any, argument: str, owner: str, ranks: tuple[int, ...] = (0,), dtype: Any = None
) -> Array:
    """The logarithm of a positive parameter: what is learned, so that it stays positive."""
    check_positive(value, argument, owner, ranks)
    array: Any = value if isinstance(value, jax.Array) else np.asarray(value)
    dtype = widest_float(array) if dtype is None else dtype
    if isinstance(array, jax.Array):
        # The explicit dtype makes the leaf strongly typed: it keeps its type under an optimizer.
        return jnp.log(jnp.asarray(array, dtype=dtype))
    # By NumPy, because JAX would compile programs for it.
    return as_array(np.log(array.astype(dtype)))


def positive(log_value: Array, dtype: Any, power: float = 1.0) -> Array:
    """The parameter (or a power of it) in ``dtype``, without loss: cast first, then exp."""
    return jnp.exp(power * log_value.astype(dtype))


def inner_products(xs: Float[Array, "L d"], ys: Float[Array, "M d"] | None) -> Float[Array, "L M"]:
    """``xs @ ys.T``; among ``xs`` themselves if ``ys`` is None, then with an exact diagonal."""
    if ys is None:
        return _with_diagonal(outer_products(xs, xs), jnp.sum(xs * xs, axis=1))
    return outer_products(xs, ys)


def squared_distances(
    xs: Float[Array, "L d"],
    ys: Float[Array, "M d"] | None,
    scaled: Callable[[Array], Array] = lambda differences: differences,
) -> Float[Array, "L M"]:
    """‖x‖² + ‖y‖² − 2x·y by one matrix product, of tokens in the unit that ``scaled`` gives them.

    Cancellation costs about ε·spread², hence the tokens are centered first and the result is
    clamped; in float32 that is not enough (`RBF` evaluates it in float64).
    """
    # The distance does not depend on the center, so neither does its gradient (that of the unit
    # would see it, were tokens scaled before). That of the ys serves all rows that are asked for:
    # compilers see the same expressions and share them.
    others = xs if ys is None else ys
    center = jax.lax.stop_gradient(jnp.mean(others, axis=0, keepdims=True))
    # Half of its digits will do, and stay one number: otherwise a compiler may contract the mean
    # with the difference (FMA) for the xs and not for the ys, and what it rounds does not cancel.
    center = jax.lax.reduce_precision(center, exponent_bits=11, mantissa_bits=26)
    # A token that is not finite, inside ``jit``, must not reach the distances of the others.
    center = jnp.where(jnp.isfinite(center), center, 0)
    a = scaled(xs - center)
    norms_a = jnp.sum(a * a, axis=1, keepdims=True)
    if ys is None:
        # The sum of the norms does not depend on their order: symmetric to the last bit.
        return _above_rounding(norms_a + norms_a.T - 2 * outer_products(a, a), norms_a, norms_a)
    b = scaled(ys - center)
    norms_b = jnp.sum(b * b, axis=1, keepdims=True)
    # The norms ride along as two more coordinates: one product, also backwards, and no sums over
    # rows and columns of the result.
    left = jnp.concatenate([-2 * a, norms_a, jnp.ones_like(norms_a)], axis=1)
    right = jnp.concatenate([b, jnp.ones_like(norms_b), norms_b], axis=1)
    return _above_rounding(outer_products(left, right), norms_a, norms_b)


@jax.custom_jvp
def _above_rounding(squares: Array, norms_a: Array, norms_b: Array) -> Array:
    """0 where the difference of the norms and the product is rounding: equal tokens are equal.

    Derivatives pass: those of the distance are right at 0, too, and the second is not 0 there.
    """
    rounding = (norms_a + norms_b.T) * (8 * jnp.finfo(squares.dtype).eps)
    return jnp.where(squares <= rounding, 0, squares)  # NaN stays what it is


@_above_rounding.defjvp
def _above_rounding_jvp(primals: Any, tangents: Any) -> Any:
    return _above_rounding(*primals), tangents[0]


def _with_diagonal(matrix: Array, diagonal: Array) -> Array:
    return jnp.where(jnp.eye(len(diagonal), dtype=bool), diagonal[:, None], matrix)
