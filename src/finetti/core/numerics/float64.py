"""Float64 where it matters, whatever the precision of the program around it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike

from finetti.core.errors import InputError


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _cast(tree: Any, dtype: DTypeLike) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if _is_float(leaf) else leaf, tree)


def _floats(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]


def _with_floats(tree: Any, floats: Sequence[Any]) -> Any:
    """``tree`` with its floating leaves replaced, in order."""
    rest = iter(floats)
    return jax.tree.map(lambda leaf: next(rest) if _is_float(leaf) else leaf, tree)


def _like(floats: Sequence[Any], models: Any) -> list[Any]:
    pairs = zip(floats, _floats(models), strict=True)
    return [leaf.astype(model.dtype) for leaf, model in pairs]


def _result_dtype(arguments: Any) -> Any:
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*(leaf.dtype for leaf in _floats(arguments)))


def float64_inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run ``function`` in float64 inside a program of any precision, without the global x64 flag.

    Floating arguments are cast up, floating results come back in the precision of the arguments
    (the promotion of all of them). Works under ``jit``, ``vmap`` and reverse-mode ``grad``, also
    repeated; forward mode is refused by JAX. JAX transposes and batches a traced function outside
    the ``enable_x64`` block, where the casts would be cut back to float32; hence explicit rules for
    both, which open the block again. For the same reason ``function`` must do without primitives
    that JAX lowers late by tracing Python again (``argmax``, ``sort`` by key and their kin).

    Around a compiled function (``@float64_inside`` over ``@jax.jit``), what a program calls again
    with equal shapes, and its rules do so a lot, is traced once.
    """

    @jax.custom_vjp
    def run(*arguments: Any) -> Any:
        return _in_block(up_and_down)(*arguments)

    def up_and_down(*arguments: Any) -> Any:
        return _cast(function(*_cast(arguments, jnp.float64)), _result_dtype(arguments))

    def with_pullback(*arguments: Any) -> Any:
        result, pullback = jax.vjp(function, *_cast(arguments, jnp.float64))
        return _cast(result, _result_dtype(arguments)), pullback

    def forward(*arguments: Any) -> Any:
        # JAX must not differentiate these operations again: `known` says how to.
        result, pullback = _in_block(with_pullback)(*jax.lax.stop_gradient(arguments))
        return known(arguments, result, pullback), (arguments, pullback)

    def backward(residuals: Any, cotangents: Any) -> Any:
        arguments, pullback = residuals
        return _pull(function, arguments, pullback, cotangents)

    @jax.custom_vjp
    def known(arguments: Any, result: Any, pullback: Any) -> Any:
        """The result at ``arguments``, computed already; its gradient is that of ``run``."""
        return result

    known.defvjp(
        lambda *operands: (known(*operands), (operands[0], operands[2])),
        lambda residuals, cotangents: (backward(residuals, cotangents), None, None),
    )
    run.defvjp(forward, backward)

    def as_arrays(*arguments: Any) -> Any:
        # Where the whole program has float64, JAX's own rules will do, and compile faster.
        route = up_and_down if jnp.result_type(float) == jnp.float64 else run
        return route(*jax.tree.map(jnp.asarray, arguments))

    return as_arrays


def _in_block(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` in an ``enable_x64`` block that opens again when the call is batched."""

    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        result_structure: Any = None

        def flat(*leaves: Any) -> list[Any]:
            nonlocal result_structure
            result = function(*structure.unflatten(leaves))
            result_leaves, result_structure = jax.tree.flatten(result)
            return result_leaves

        with jax.enable_x64(True):
            results = _batched_in_block(flat)(*leaves)
        return result_structure.unflatten(results)

    return call


def _batched_in_block(flat: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @jax.custom_batching.custom_vmap
    def call(*leaves: Any) -> list[Any]:
        with jax.enable_x64(True):
            return flat(*leaves)

    @call.def_vmap
    def batched_call(size: int, batched: Any, *leaves: Any) -> Any:
        axes = tuple(0 if is_batched else None for is_batched in batched)
        mapped = jax.vmap(flat, in_axes=axes, axis_size=size)
        with jax.enable_x64(True):
            results = _batched_in_block(mapped)(*leaves)
        return results, [True] * len(results)

    return call


def _pull(function: Callable[..., Any], arguments: Any, pullback: Any, cotangents: Any) -> Any:
    """Cotangents of the arguments: by the stored pullback, differentiable by a fresh one."""

    @jax.custom_vjp
    def apply(arguments: Any, pullback: Any, given: list[Any]) -> list[Any]:
        return _in_block(stored)(arguments, pullback, given)

    def stored(arguments: Any, pullback: Any, given: list[Any]) -> list[Any]:
        pulled = pullback(_with_floats(cotangents, _cast(given, jnp.float64)))
        return _like(_floats(pulled), arguments)

    def fresh(arguments: Any, given: list[Any]) -> list[Any]:
        return _floats(jax.vjp(function, *arguments)[1](_with_floats(cotangents, given)))

    def backward(residuals: Any, second: list[Any]) -> Any:
        def again(arguments: Any, given: list[Any]) -> list[Any]:
            return _like(float64_inside(fresh)(arguments, given), arguments)

        of_arguments, of_given = jax.vjp(again, *residuals)[1](second)
        return of_arguments, None, of_given

    apply.defvjp(lambda *operands: (apply(*operands), (operands[0], operands[2])), backward)
    # Only floating arguments have a cotangent.
    zeros = jax.tree.map(lambda leaf: leaf if _is_float(leaf) else None, arguments)
    return _with_floats(zeros, apply(arguments, pullback, _floats(cotangents)))


def float64() -> Any:
    """A context in which JAX works in float64: ``with float64(): ...``."""
    return jax.enable_x64(True)


def widest_float(*arrays: Array) -> Any:
    """The floating dtype that holds all of ``arrays`` (integers count as the default float)."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*arrays)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise InputError(
            f"Tokens and weights must be real numbers. Got {dtype} instead. Give the real and the "
            "imaginary part as coordinates of their own."
        )
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
