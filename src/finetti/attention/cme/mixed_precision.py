"""CME attention in float32 where float32 will do, for the answer and for its gradient.

The kernel's entries are good to a few units of 2⁻²⁴ (`kernels` take care of that). Rounding them
moves each row of the system by about 2⁻²⁴‖α‖₂K(k, k), α = (K + λI)⁻¹V, as rounding the keys does,
and the answer by that times the query's weights, ‖w‖₂ ≤ ½√(K(q, q)/λ). Where this is small against
the values, and some rows evaluated in float64 agree, the answer stands; elsewhere (a small ridge,
values that follow no smooth function) float64 answers.

Gradients ask for more: that of the values is γ = (K + λI)⁻¹K(K, Q)ȳ itself, and rounding moves it
by cond·2⁻²⁴. But K + λI ⪰ λI, so that ‖R‖₂/λ bounds the error of any solution with the residual R,
and the residuals of α and γ cost one product more where the kernel is evaluated for its gradient.
Where γ alone is not good enough, one step of refinement (residual in float64, correction by the
float32 solver) may make it so; otherwise float64 gives the gradient.
"""

import abc
import functools
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.cme.gram_products import (
    CachedGram,
    KeySystem,
    cache_gram,
    gram_product,
    key_noise,
    product_gradients,
)
from finetti.attention.cme.routes import (
    Answer,
    Call,
    Output,
    Ridge,
    Route,
    masked_rows,
)
from finetti.attention.context_batch import ContextArrays
from finetti.core.numerics.float64 import float64_inside
from finetti.kernels.kernel import Kernel

# Estimated rounding of an answer, relative to the largest value, up to which float32 answers.
MAX_ROUNDING = 1.5e-5
# What the rows that are checked in float64 may do to an answer, relative to the largest value.
CHECK_RTOL = 5e-5
# Rows checked: half of them the farthest from the center.
CHECKED_ROWS = 32
# Bound on the relative error of α and of γ up to which they serve a gradient.
GRADIENT_RTOL = 1e-4
# Relative size of a correction of γ up to which what it leaves, about its square, is small.
MAX_CORRECTION = 5e-3
_ROUNDOFF = 2.0**-24


class MixedPrecisionRoute(Route):
    """A route that solves (K + Λ)x = b in float32 and, where that is too coarse, in float64."""

    in_data_precision = True

    def refusal(self, call: Call) -> str:
        """It gives one mean for all queries of a context."""
        if call.is_causal:
            return "cannot be causal: every prefix would be a system of its own."
        if call.per_query:
            return "cannot take a mask per query: every query would be a system of its own."
        if call.output != "mean":
            return "gives the mean only: weights and variances need a solve per query."
        name = type(call.kernel).__name__
        if call.kernel.grows:
            return f"needs a kernel of bounded growth, and {name} grows exponentially."
        if call.kernel.has_noise:
            return f"needs a kernel without White noise; give {name}'s as the ridge."
        return ""

    def read(
        self,
        kernel: Kernel,
        ridge: Ridge,
        context: ContextArrays,
        output: Output,
        prefix: int | None,
    ) -> Answer:
        """In float64 if the data are; else float32, checked."""
        values = masked_rows(context.values, context.mask)
        arguments = (
            kernel,
            ridge.for_context(context).astype(values.dtype),
            context._replace(values=values),
        )
        if values.dtype == jnp.float64:
            return Answer(mean=self.mean64(*arguments))
        return Answer(mean=mean_with_fallback(self, *arguments))

    @abc.abstractmethod
    def prepare(self, system: KeySystem, gram: Float[Array, "L L"] | None = None) -> Any:
        """What all solves with one matrix share: a factor, or a preconditioner. ``gram`` is K of
        all keys where it is held anyway."""

    @abc.abstractmethod
    def solve(self, prepared: Any, matvec: Any, right: Float[Array, "L k"]) -> Float[Array, "L k"]:
        """About (K + Λ)⁻¹b in the precision of the data; NaN where there is none."""

    @abc.abstractmethod
    def mean64(
        self, kernel: Kernel, ridge: Float[Array, ""], context: ContextArrays
    ) -> Float[Array, "Q d_v"]:
        """The answer in float64, NaN where there is none; differentiable."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def mean_with_fallback(
    solver: MixedPrecisionRoute, kernel: Kernel, ridge: Float[Array, ""], context: ContextArrays
) -> Float[Array, "Q d_v"]:
    """Vᵀ(K + λI)⁻¹K(K, q) of float32 data. Masked values must be zero."""
    # A factor asks for the lower half of K(K, K) only.
    return _solved(solver, kernel, ridge, context, among_keys=None)[0]


def _forward(
    solver: MixedPrecisionRoute, kernel: Kernel, ridge: Array, context: ContextArrays
) -> Any:
    # Small matrices are evaluated once for all that follows, the gradient included.
    among_keys = cache_gram(kernel, context.keys, context.keys)
    return _solved(solver, kernel, ridge, context, among_keys)


def _solved(
    solver: MixedPrecisionRoute,
    kernel: Kernel,
    ridge: Array,
    context: ContextArrays,
    among_keys: CachedGram | None,
) -> Any:
    """The answer, and what a gradient needs."""
    query, keys, values, mask = context
    system = KeySystem(kernel, keys, key_noise(kernel, ridge, keys), mask)
    reading = cache_gram(kernel, query, keys)
    held = among_keys.gram if among_keys else None
    prepared = solver.prepare(*jax.lax.stop_gradient((system, held)))
    alpha = _solve(solver, prepared, system, values)
    mean = reading.gram @ alpha if reading else gram_product(kernel, query, keys, alpha)
    among, across = jnp.max(kernel.diagonal(keys)), jnp.max(kernel.diagonal(query))
    largest = jnp.maximum(among, across)
    weight = jnp.maximum(1.0, 0.5 * jnp.sqrt(largest / jnp.min(system.noise)))
    size = weight * jnp.sqrt(among) * jnp.sqrt(largest)
    accepted = _for_all(
        _rounds_little(values, alpha, size) & _rows_agree(system, values, alpha, weight)
    )
    answer = jax.lax.cond(
        accepted, lambda: mean, lambda: _in_float64(solver, kernel, ridge, context)
    )
    return answer, (ridge, query, values, system, prepared, alpha, accepted, among_keys, reading)


def _backward(solver: MixedPrecisionRoute, residuals: Any, cotangent: Array) -> Any:
    ridge, query, values, system, prepared, alpha, accepted, among_keys, reading = residuals
    kernel, keys, noise, mask = system
    kept = system.kept[:, None]

    of_reading, _ = product_gradients(kernel, query, keys, alpha, cotangent, reading)
    right = kept * of_reading.vectors
    gamma = _solve(solver, prepared, system, right)

    def are_close() -> tuple[Array, Array]:
        """Whether α and γ are, by what (K + Λ)α and (K + Λ)γ miss."""
        solutions = jnp.concatenate([alpha, gamma], axis=1)
        if among_keys:
            images = among_keys.gram @ solutions
        else:
            images = gram_product(kernel, keys, keys, solutions)
        wanted = jnp.concatenate([values, right], axis=1)
        missed = wanted - kept * images - noise[:, None] * solutions
        close = _is_close(solutions, missed, noise)
        return jnp.all(close[: values.shape[1]]), jnp.all(close[values.shape[1] :])

    def corrected() -> tuple[Array, Array]:
        """Where K(K, Q)ȳ is large and smooth, float32 cannot even hold it: its residual, summed in
        float64, is small again."""
        missed = _adjoint_residual(system, query, cotangent, gamma)
        correction = _solve(solver, prepared, system, missed.astype(gamma.dtype))
        length, whole = (jnp.sqrt(jnp.sum(part**2)) for part in (correction, gamma))
        return gamma + correction, length <= MAX_CORRECTION * whole

    def gradients(gamma: Array) -> Any:
        """The cotangents of all arguments for this γ."""
        # d(Aα) = 0 says Ā = −γαᵀ.
        of_system, _ = product_gradients(kernel, keys, keys, alpha, -gamma, among_keys)
        _, pull_noise = jax.vjp(key_noise, kernel, ridge, keys)
        of_noise = pull_noise(-jnp.sum(gamma * alpha, axis=1))
        add = functools.partial(jax.tree.map, lambda *parts: sum(parts))
        of_kernel = add(of_reading.kernel, of_system.kernel, of_noise[0])
        of_keys = of_reading.keys + of_system.keys + of_system.rows + of_noise[2]
        return of_kernel, of_noise[1], ContextArrays(of_reading.rows, of_keys, gamma, None)

    def slow() -> Any:
        def mean(kernel: Kernel, ridge: Array, query: Array, keys: Array, values: Array) -> Array:
            given = ContextArrays(query, keys, values, mask)
            return _in_float64(solver, kernel, ridge, given)

        pull = jax.vjp(mean, kernel, ridge, query, keys, values)[1]
        of_kernel, of_ridge, of_query, of_keys, of_values = pull(cotangent)
        return of_kernel, of_ridge, ContextArrays(of_query, of_keys, of_values, None)

    alpha_is_close, gamma_is_close = are_close()
    usable = _for_all(accepted & alpha_is_close)
    gamma, is_good = jax.lax.cond(
        _for_all(usable & gamma_is_close), lambda: (gamma, jnp.asarray(True)), corrected
    )
    return jax.lax.cond(_for_all(usable & is_good), lambda: gradients(gamma), slow)


@float64_inside
@jax.jit
def _adjoint_residual(system: KeySystem, query: Array, cotangent: Array, gamma: Array) -> Array:
    """K(K, Q)ȳ − (K + Λ)γ."""
    kernel, keys, noise, _ = system
    right = gram_product(kernel, keys, query, cotangent)
    inside = system.kept[:, None] * (right - gram_product(kernel, keys, keys, gamma))
    return inside - noise[:, None] * gamma


mean_with_fallback.defvjp(_forward, _backward)


def _in_float64(
    solver: MixedPrecisionRoute, kernel: Kernel, ridge: Array, context: ContextArrays
) -> Array:
    mean = float64_inside(functools.partial(_mean64, solver))(kernel, ridge, context)
    return mean.astype(context.query.dtype)


@functools.partial(jax.jit, static_argnums=0)
def _mean64(solver: MixedPrecisionRoute, *arguments: Any) -> Array:
    return solver.mean64(*arguments)


def _solve(solver: MixedPrecisionRoute, prepared: Any, system: KeySystem, right: Array) -> Array:
    """(K + Λ)⁻¹b, differentiated implicitly: gradients of gradients exist too."""
    return jax.lax.custom_linear_solve(
        system.apply,
        right,
        lambda _, right: _solve_scaled(solver, prepared, system, right),
        symmetric=True,
    )


@functools.partial(jax.jit, static_argnums=0)
def _solve_scaled(
    solver: MixedPrecisionRoute, prepared: Any, system: KeySystem, right: Array
) -> Array:
    # In units of each column: squares of small and of large numbers leave float32.
    size = jnp.max(jnp.abs(right), axis=0, keepdims=True)
    size = jnp.where(size > 0, size, 1.0)
    return size * solver.solve(prepared, system.apply, right / size)


def _rounds_little(values: Array, alpha: Array, size: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the estimated rounding is small for every coordinate of the values."""
    largest = jnp.max(jnp.abs(values), axis=0)
    # In units of the values, as in `_solve_scaled`.
    relative = alpha / jnp.where(largest > 0, largest, 1.0)[None, :]
    # NaN, from a solve that failed, is not less than anything.
    rounding = _ROUNDOFF * size * jnp.sqrt(jnp.sum(relative**2, axis=0))
    return jnp.all(rounding <= MAX_ROUNDING)


def _rows_agree(
    system: KeySystem, values: Array, alpha: Array, weight: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether some rows of (K + Λ)α = V hold in float64."""
    system, values, alpha = jax.lax.stop_gradient((system, values, alpha))
    keys, mask = system.keys, system.mask
    length = keys.shape[0]
    offsets = keys - jnp.mean(keys, axis=0, keepdims=True)
    distances = jnp.max(jnp.abs(offsets), axis=1)
    if mask is not None:
        distances = jnp.where(mask, distances, -1.0)
    count = min(CHECKED_ROWS // 2, length)
    spread = jnp.arange(count) * length // count
    rows = jnp.concatenate([jax.lax.top_k(distances, count)[1], spread.astype(jnp.int32)])

    missed = jnp.abs(_residual_of_rows(system, values, alpha, rows).astype(keys.dtype))
    if mask is not None:
        missed = jnp.where(mask[rows, None], missed, 0.0)
    largest = jnp.max(jnp.abs(values), axis=0)
    return jnp.all(weight * jnp.max(missed, axis=0) <= CHECK_RTOL * largest)


@float64_inside
@jax.jit
def _residual_of_rows(system: KeySystem, values: Array, alpha: Array, rows: Array) -> Array:
    product = system.kernel.gram(system.keys[rows], system.keys) @ alpha
    return values[rows] - (product + system.noise[rows, None] * alpha[rows])


def _is_close(solution: Array, missed: Array, noise: Array) -> Bool[Array, "k"]:
    """Whether ‖R‖₂/λ, which bounds the error, is small against the solution, for every column."""
    size = jnp.max(jnp.abs(solution), axis=0)
    unit = jnp.where(size > 0, size, 1.0)[None, :]
    error = jnp.sqrt(jnp.sum((missed / unit) ** 2, axis=0)) / jnp.min(noise)
    return error <= GRADIENT_RTOL * jnp.sqrt(jnp.sum((solution / unit) ** 2, axis=0))


def _for_all(accepted: Bool[Array, ""]) -> Bool[Array, ""]:
    """One decision for a whole batch, so that batching keeps the branch a branch."""

    @jax.custom_batching.custom_vmap
    def decide(accepted: Array) -> Array:
        return accepted

    @decide.def_vmap
    def decide_together(size: int, batched: list[bool], accepted: Array) -> tuple[Array, bool]:
        return _for_all(jnp.all(accepted)), False

    return decide(jax.lax.stop_gradient(accepted))
