"""Float64 where it matters, whatever the precision of the program around it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _cast(tree: Any, dtype: DTypeLike) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if _is_float(leaf) else leaf, tree)


def _cast_like(tree: Any, like: Any) -> Any:
    return jax.tree.map(
        lambda leaf, model: leaf.astype(model.dtype) if _is_float(model) else leaf, tree, like
    )


def float64_inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run ``function`` in float64 inside a program of any precision, without the global x64 flag.

    Floating arguments are cast up, floating results come back in the precision of the arguments
    (the promotion of all of them). Works under ``jit``, ``vmap`` and reverse-mode ``grad``, also
    repeated; forward mode is refused by JAX. JAX transposes a linearised function outside the
    ``enable_x64`` block, where the casts would be cut back to float32; hence the explicit VJP,
    which opens the block on both ways. For the same reason ``function`` must do without primitives
    that JAX lowers late by tracing Python again (``argmax``, ``sort`` by key and their kin).
    """

    def result_dtype(arguments: Any) -> Any:
        dtypes = [leaf.dtype for leaf in jax.tree.leaves(arguments) if _is_float(leaf)]
        with jax.numpy_dtype_promotion("standard"):
            return jnp.result_type(*dtypes)

    @jax.custom_vjp
    def run(*arguments: Any) -> Any:
        with jax.enable_x64(True):
            return _cast(function(*_cast(arguments, jnp.float64)), result_dtype(arguments))

    def forward(*arguments: Any) -> Any:
        with jax.enable_x64(True):
            result, pullback = jax.vjp(function, *_cast(arguments, jnp.float64))
            # Zero-size stand-ins remember the dtypes to which the cotangents must return.
            models = jax.tree.map(lambda leaf: jnp.zeros((0,), leaf.dtype), arguments)
            return _cast(result, result_dtype(arguments)), (pullback, models)

    def backward(residuals: Any, cotangents: Any) -> Any:
        pullback, models = residuals
        with jax.enable_x64(True):
            return _cast_like(pullback(_cast(cotangents, jnp.float64)), models)

    run.defvjp(forward, backward)

    def as_arrays(*arguments: Any) -> Any:
        return run(*jax.tree.map(jnp.asarray, arguments))

    return as_arrays


def float64() -> Any:
    """A context in which JAX works in float64: ``with float64(): ...``."""
    return jax.enable_x64(True)


def widest_float(*arrays: Array) -> Any:
    """The floating dtype that holds all of ``arrays`` (integers count as the default float)."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*arrays)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
