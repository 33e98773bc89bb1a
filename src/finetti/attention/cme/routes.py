"""The routes of CME attention, each for one context; `ConditionalMean` compiles and batches."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.cme import causal, primal
from finetti.attention.cme import system as linear
from finetti.attention.cme.blockwise import Blockwise
from finetti.attention.cme.checked import Solver, checked_mean, key_noise
from finetti.attention.cme.iterative import ConjugateGradients
from finetti.attention.cme.plan import Wants
from finetti.core.solves import gaussian_log_density
from finetti.kernels.base import Kernel

CHUNK = 128


class Ridge(NamedTuple):
    """λ, and whether it multiplies the number of keys read."""

    value: Float[Array, ""]
    per_token: bool


class Answer(NamedTuple):
    """What was asked for; the rest is None."""

    mean: Float[Array, "Q d_v"] | None = None
    variance: Float[Array, "Q"] | None = None
    weights: Float[Array, "Q L"] | None = None
    ridge: Float[Array, ""] | None = None


def read_cholesky(
    kernel: Kernel,
    ridge: Ridge,
    wants: Wants,
    prefix: int | None,
    query: Float[Array, "Q d_k"],
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
) -> Answer:
    """One factorization of the keys' system. ``prefix`` is the period of the queries' positions."""
    system = linear.build(kernel, keys, mask, ridge.value, ridge.per_token)
    values = _masked(values, mask)
    if prefix is not None:
        positions = jnp.arange(query.shape[0]) % prefix
        solved = causal.solve_prefixes(kernel, system, keys, values, query, positions)
        if wants == "weights":
            return Answer(weights=causal.prefix_weights(system, solved).T)
        mean = causal.prefix_mean(system, solved, values)
        if wants == "mean":
            return Answer(mean=mean)
        variance = causal.prefix_variance(kernel, query, solved)
        return Answer(mean=mean, variance=variance, ridge=system.ridge)
    if wants == "mean":
        return Answer(mean=linear.solve_mean(kernel, system, keys, values, query))
    right = linear.cross(kernel, system, keys, query)
    weights, scaled, _ = linear.solve_weights(system, right)
    if wants == "weights":
        return Answer(weights=weights.T)
    variance = linear.solve_variance(kernel, query, right, scaled)
    return Answer(mean=weights.T @ values, variance=variance, ridge=system.ridge)


def read_primal(
    kernel: Kernel,
    ridge: Ridge,
    wants: Wants,
    prefix: int | None,
    query: Float[Array, "Q d_k"],
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
) -> Answer:
    """One factorization in the space of features; causal by chunks."""
    features = _masked(kernel.features(keys), mask)
    values = _masked(values, mask)
    query_features = kernel.features(query)
    level = _level(ridge, keys, mask)
    noise = key_noise(kernel, level, keys)
    if wants == "weights":
        return Answer(weights=primal.primal_weights(features, query_features, noise).T)
    if prefix is None:
        answer = primal.primal_read(features, values, query_features, noise)
    else:
        # Query heads that share the context run side by side, each over its own positions.
        groups = query_features.reshape(-1, prefix, query_features.shape[1])
        chunk = max(1, min(CHUNK, prefix))
        answer = jax.vmap(
            lambda group: primal.primal_prefixes(features, values, group, noise, chunk)
        )(groups)
        answer = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), answer)
    if wants == "mean":
        return Answer(mean=answer.mean)
    return Answer(mean=answer.mean, variance=answer.variance, ridge=level)


def read_iterative(
    kernel: Kernel,
    ridge: Ridge,
    query: Float[Array, "Q d_k"],
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
) -> Answer:
    """Conjugate gradients in float32 where that is enough, else in float64."""
    return _read_checked(ConjugateGradients(), kernel, ridge, query, keys, values, mask)


def read_mixed(
    kernel: Kernel,
    ridge: Ridge,
    query: Float[Array, "Q d_k"],
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
) -> Answer:
    """A float32 factorization, or where that is too coarse a float64 one."""
    return _read_checked(Blockwise(), kernel, ridge, query, keys, values, mask)


def _read_checked(
    solver: Solver,
    kernel: Kernel,
    ridge: Ridge,
    query: Array,
    keys: Array,
    values: Array,
    mask: Array | None,
) -> Answer:
    level = _level(ridge, keys, mask).astype(keys.dtype)
    context = kernel, level, query, keys, _masked(values, mask), mask
    if keys.dtype == jnp.float64:
        return Answer(mean=solver.mean64(*context))
    return Answer(mean=checked_mean(solver, *context))


def not_a_number_where_read(
    answer: Answer,
    parameters: Any,
    finite: Bool[Array, "Q 1"],
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
) -> Answer:
    """The answer, NaN for queries that are not ``finite`` or read what is not: inside ``jit``
    nothing refuses them, and a solve that fails answers with the prior."""
    rows = jnp.all(jnp.isfinite(keys), axis=1) & jnp.all(jnp.isfinite(values), axis=1)
    context = jnp.all(rows if mask is None else rows | ~mask)
    for leaf in jax.tree.leaves(parameters):
        context &= ~jnp.any(jnp.isnan(leaf))
    clean = finite[:, 0] & context

    def marked(leaf: Array) -> Array:
        columns = clean.reshape(-1, *(1,) * (leaf.ndim - 1))
        return jnp.where(columns, leaf, jnp.nan) if leaf.ndim else leaf

    return jax.tree.map(marked, answer)


def log_likelihood(
    kernel: Kernel,
    ridge: Ridge,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
) -> Float[Array, ""]:
    """Σ_j log N(v_j; 0, K + λI) over the unmasked keys."""
    system = linear.build(kernel, keys, mask, ridge.value, ridge.per_token)
    values = _masked(values, mask)
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


def _level(ridge: Ridge, keys: Array, mask: Array | None) -> Float[Array, ""]:
    """λ, or λ times the number of keys read."""
    if not ridge.per_token:
        return ridge.value
    count = jnp.asarray(keys.shape[0]) if mask is None else jnp.sum(mask)
    return ridge.value * count.astype(ridge.value.dtype)


def _masked(rows: Float[Array, "L d"], mask: Bool[Array, "L"] | None) -> Float[Array, "L d"]:
    return rows if mask is None else jnp.where(mask[:, None], rows, 0.0)
