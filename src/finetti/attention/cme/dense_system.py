"""The linear system behind conditional-mean attention, scaled so that no kernel overflows it.

With D = diag(e^{a_ℓ}) the system (K + λI)w = K(K, q) is solved as A x = e^{−c} D⁻¹K(K, q),
A = D⁻¹(K + Λ)D⁻¹, w = e^{c} D⁻¹x. Kernels that do not grow exponentially have a = 0 and
c = 0; others take a_ℓ = ½ log K(k_ℓ, k_ℓ), so that A has a unit diagonal however long the keys are.

With is_causal every query reads its own prefix of the context, at the price of one factorization:
with GGᵀ = A the leading t×t block of G is the factor of the first t keys, and forward substitution
is causal. W = G⁻¹K(K, Q) and U = G⁻¹V hold the answers of all prefixes at once,
out_t = Σ_{i≤t} W_it U_i with the variance K(q_t, q_t) − Σ_{i≤t} W_it².
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from finetti.attention.cme.routes import Answer, Call, Output, Ridge, Route, masked_rows
from finetti.attention.context_batch import ContextArrays
from finetti.core.linalg.positive_definite import (
    at_least_floor,
    gaussian_log_density,
    posdef_factor,
    posdef_solve,
)
from finetti.core.linalg.triangular import solve_lower
from finetti.kernels.kernel import Kernel

# Beyond e^±345 (1e150) a product of two entries leaves float64; answers saturate there.
_MAX_ENTRY = 1e150
_MAX_LOG = 345.0
_LARGEST_LOG = 709.0  # e^709 is just below the largest float64


class System(NamedTuple):
    """A, the scales a (None where the kernel needs none), and the keys that count."""

    kernel: Kernel
    keys: Float[Array, "L d_k"]
    matrix: Float[Array, "L L"]
    log_scale: Float[Array, "L"] | None
    mask: Bool[Array, "L"] | None
    ridge: Float[Array, ""]
    floored: Bool[Array, ""]


class Cross(NamedTuple):
    """e^{−c_q} D⁻¹K(K, q) for every query, and c (None where the kernel needs none)."""

    columns: Float[Array, "L Q"]
    log_scale: Float[Array, "Q"] | None


def build(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    mask: Bool[Array, "L"] | None,
    ridge: Float[Array, ""],
) -> System:
    """The matrix of (4.5), zhang2022.

    The diagonal floor: every key's ridge is at least `diagonal_floor` times K(k_ℓ, k_ℓ), below
    which float64 cannot tell the matrix from a singular one.
    """
    length, dimension = keys.shape
    if _needs_logarithms(kernel):
        log_scale = 0.5 * kernel.log_diagonal(keys)
        gram = jnp.exp(kernel.log_gram(keys) - log_scale[:, None] - log_scale[None, :])
        noise = ridge * jnp.exp(-2.0 * log_scale)
    else:
        log_scale, gram = None, _limited(kernel, kernel.gram(keys))
        noise = jnp.broadcast_to(ridge, (length,))
    raised = at_least_floor(noise, jnp.diagonal(gram), dimension)
    floored = noise < raised
    noise = raised
    if mask is not None:
        # A masked key keeps a 1 on the diagonal and nothing else: it decouples from the rest.
        gram = jnp.where(mask[:, None] & mask[None, :], gram, 0.0)
        noise = jnp.where(mask, noise, 1.0)
        floored = floored & mask
    matrix = gram + jnp.diag(noise)
    return System(kernel, keys, matrix, log_scale, mask, ridge, jnp.any(floored))


def cross(
    system: System, query: Float[Array, "Q d_k"], visible: Bool[Array, "L Q"] | None = None
) -> Cross:
    """The right-hand sides: one column per query, 0 on masked keys and on those not visible."""
    kernel, keys = system.kernel, system.keys
    if system.mask is not None:
        visible = system.mask[:, None] if visible is None else visible & system.mask[:, None]
    if system.log_scale is None:
        log_scale, columns = None, _limited(kernel, kernel.gram(keys, query))
    else:
        reach = kernel.log_gram(keys, query) - system.log_scale[:, None]
        if visible is not None:
            reach = jnp.where(visible, reach, -jnp.inf)
        highest = jnp.max(reach, axis=0)
        log_scale = jnp.where(jnp.isfinite(highest), highest, 0.0)
        columns = jnp.exp(reach - log_scale[None, :])
    if visible is not None:
        columns = jnp.where(visible, columns, 0.0)
    return Cross(columns, log_scale)


def solve_mean(
    system: System, values: Float[Array, "L d_v"], query: Float[Array, "Q d_k"]
) -> Float[Array, "Q d_v"]:
    """Vᵀ(K + λI)⁻¹K(K, q): solved for the values or for the queries, whichever are fewer."""
    if system.log_scale is None and values.shape[1] <= query.shape[0]:
        # Masked values are zero and their rows decoupled, so their coefficients are zero too.
        coefficients, _, _ = posdef_solve(system.matrix, values)
        rows = _limited(system.kernel, system.kernel.gram(query, system.keys))
        return rows @ coefficients
    return solve_weights(system, cross(system, query))[0].T @ values


def solve_weights(
    system: System, right: Cross
) -> tuple[Float[Array, "L Q"], Float[Array, "L Q"], Any]:
    """w = (K + λI)⁻¹K(K, q), the scaled solution x behind it, and (factor, shift) for diagnosis."""
    scaled, factor, shift = posdef_solve(system.matrix, right.columns)
    return unscale(system, right, scaled), scaled, (factor, shift)


def unscale(system: System, right: Cross, scaled: Float[Array, "L Q"]) -> Float[Array, "L Q"]:
    """w = e^{c} D⁻¹x, 0 on masked keys."""
    if right.log_scale is None or system.log_scale is None:
        return scaled
    exponent = right.log_scale[None, :] - system.log_scale[:, None]
    weights = scaled * jnp.exp(jnp.clip(exponent, -_MAX_LOG, _MAX_LOG))
    return weights if system.mask is None else jnp.where(system.mask[:, None], weights, 0.0)


def solve_variance(
    kernel: Kernel, query: Float[Array, "Q d_k"], right: Cross, scaled: Float[Array, "L Q"]
) -> Float[Array, "Q"]:
    """K(q, q) − K(q, K)(K + λI)⁻¹K(K, q) (B.1, zhang2022)."""
    return remaining_variance(kernel, query, right, jnp.sum(right.columns * scaled, axis=0))


def remaining_variance(
    kernel: Kernel, query: Float[Array, "Q d_k"], right: Cross, explained: Float[Array, "Q"]
) -> Float[Array, "Q"]:
    """K(q, q) less what the keys explain (in units e^{2c}), never below 0."""
    if right.log_scale is None:
        return jnp.maximum(jnp.clip(kernel.diagonal(query), 0.0, _MAX_ENTRY) - explained, 0.0)
    # In units of K(q, q) = e^g, which is at least e^{2c} (Cauchy–Schwarz).
    log_prior = kernel.log_diagonal(query)
    share = explained * jnp.exp(jnp.minimum(2.0 * right.log_scale - log_prior, _MAX_LOG))
    rest = jnp.maximum(1.0 - share, 0.0)
    fits = log_prior + jnp.log(rest) <= _LARGEST_LOG
    # By its root, which does not overflow before the variance does. Where that does, its gradient
    # is 0: infinity times the cotangent 0 of an answer that nobody uses would be NaN.
    root = jnp.exp(0.5 * jnp.where(fits & (rest > 0), log_prior, 0.0))
    return jnp.where((rest > 0) & ~fits, jnp.inf, root * rest * root)


def _needs_logarithms(kernel: Kernel) -> bool:
    """Whether Gram matrices are computed from logarithms."""
    return kernel.grows and kernel.is_positive


def _limited(kernel: Kernel, gram: Float[Array, "L M"]) -> Float[Array, "L M"]:
    """A Gram matrix within ±1e150. Larger entries of a kernel that grows exponentially and changes
    sign are NaN: it has no logarithm, and any number in their place would be a wrong answer."""
    if kernel.grows:
        return jnp.where(jnp.abs(gram) <= _MAX_ENTRY, gram, jnp.nan)
    return jnp.clip(gram, -_MAX_ENTRY, _MAX_ENTRY)


def log_likelihood(kernel: Kernel, ridge: Ridge, context: ContextArrays) -> Float[Array, ""]:
    """Σ_j log N(v_j; 0, K + λI) over the unmasked keys of one context."""
    mask = context.mask
    system = build(kernel, context.keys, mask, ridge.for_context(context))
    values = masked_rows(context.values, mask)
    samples, jacobian = values, 0.0
    if system.log_scale is not None:
        # N(v; 0, DAD) = N(D⁻¹v; 0, A) / |D|
        samples = values * jnp.exp(-system.log_scale)[:, None]
        scales = system.log_scale if mask is None else jnp.where(mask, system.log_scale, 0.0)
        jacobian = jnp.sum(scales)
    dimension = values.shape[1]
    density = gaussian_log_density(system.matrix, samples) - dimension * jacobian
    if mask is not None:
        # A masked key contributed N(0; 0, 1) per coordinate; take it out again.
        extra = jnp.sum(~mask).astype(values.dtype)
        density = density + 0.5 * dimension * extra * jnp.log(2 * jnp.pi).astype(values.dtype)
    return density


class Prefixes(NamedTuple):
    """G, the half-solved columns W (0 beyond each prefix) with their scale, and U = G⁻¹V."""

    factor: Float[Array, "L L"]
    half: Float[Array, "L Q"]
    half_values: Float[Array, "L d_v"]
    right: Cross


def prefix_mask(length: int, positions: Int[Array, "Q"]) -> Bool[Array, "L Q"]:
    """Key i is visible at position t iff i ≤ t, as in ``jax.nn.dot_product_attention``."""
    return jnp.arange(length)[:, None] <= positions[None, :]


def solve_prefixes(
    system: System,
    values: Float[Array, "L d_v"],
    query: Float[Array, "Q d_k"],
    positions: Int[Array, "Q"],
) -> Prefixes:
    """The factor of all prefixes and the half-solved columns, side by side in one solve."""
    visible = prefix_mask(values.shape[0], positions)
    right = cross(system, query, visible)
    factor = posdef_factor(system.matrix)
    halves = solve_lower(factor, jnp.concatenate([right.columns, values], axis=1))
    half, half_values = jnp.split(halves, [query.shape[0]], axis=1)
    return Prefixes(factor, jnp.where(visible, half, 0.0), half_values, right)


def prefix_mean(
    system: System, solved: Prefixes, values: Float[Array, "L d_v"]
) -> Float[Array, "Q d_v"]:
    """out_t = Σ_{i≤t} W_it U_i."""
    if solved.right.log_scale is not None:
        # U = G⁻¹D⁻¹V would underflow with the keys' scales; the weights bring both scales together.
        return prefix_weights(system, solved).T @ values
    return solved.half.T @ solved.half_values


def prefix_weights(system: System, solved: Prefixes) -> Float[Array, "L Q"]:
    """w_t = G_t⁻ᵀW_t: back substitution stays inside the prefix, because W is 0 beyond it."""
    scaled = solve_lower(solved.factor, solved.half, transpose=True)
    return unscale(system, solved.right, scaled)


def prefix_variance(
    kernel: Kernel, query: Float[Array, "Q d_k"], solved: Prefixes
) -> Float[Array, "Q"]:
    """K(q_t, q_t) − Σ_{i≤t} W_it²."""
    return remaining_variance(kernel, query, solved.right, jnp.sum(solved.half**2, axis=0))


class Cholesky(Route):
    """Answers everything."""

    name = "cholesky"

    def reason(self, call: Call) -> str:
        """Applies whenever no other route does."""
        return f"One float64 factorization ({call.length} keys)."

    def read(
        self,
        kernel: Kernel,
        ridge: Ridge,
        context: ContextArrays,
        output: Output,
        prefix: int | None,
    ) -> Answer:
        """One factor for all queries, and for all prefixes."""
        query, keys, values, mask = context
        system = build(kernel, keys, mask, ridge.for_context(context))
        values = masked_rows(values, mask)
        if prefix is not None:
            positions = jnp.arange(query.shape[0]) % prefix
            solved = solve_prefixes(system, values, query, positions)
            if output == "weights":
                return Answer(weights=prefix_weights(system, solved).T)
            mean = prefix_mean(system, solved, values)
            if output == "mean":
                return Answer(mean=mean)
            variance = prefix_variance(kernel, query, solved)
            return Answer(mean=mean, variance=variance, ridge=system.ridge)
        if output == "mean":
            return Answer(mean=solve_mean(system, values, query))
        right = cross(system, query)
        weights, scaled, _ = solve_weights(system, right)
        if output == "weights":
            return Answer(weights=weights.T)
        variance = solve_variance(kernel, query, right, scaled)
        return Answer(mean=weights.T @ values, variance=variance, ridge=system.ridge)
