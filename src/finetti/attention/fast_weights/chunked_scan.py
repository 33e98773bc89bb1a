"""The state of a rule in chunks of keys: matrix products, no loop over tokens.

Inside a chunk that begins with the state S₀ every rule has the form S_j = α^j S₀ + Σ_{i≤j} α^{j−i}
u_i k_iᵀ. Linear attention writes u_j = v_j. The delta rule, with unit keys, writes
u_j = step·(v_j − αS_{j−1}k_j), in which all u_i before it stand: one unit lower triangular system,

(I + step·M)U = step·(V − A K S₀ᵀ),  M_ji = α^{j−i} k_j·k_i for i < j,  A = diag(α^j)

(the WY form of a product of Householder-like factors: Bischof and Van Loan, 1987; for the delta
rule Yang et al., arXiv 2406.06484). Powers of α stand for distances inside a chunk only, so that
none is larger than 1.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.core.linalg.triangular import solve_lower

# Keys that one step takes: 64 was the fastest of 32, 64 and 128 for 64 and 128 dimensions.
CHUNK_LENGTH = 64


class Rule(NamedTuple):
    """How a pair changes the state: without a ``step`` the value is added, with one the error."""

    step: Float[Array, ""] | None = None
    log_decay: Float[Array, ""] | None = None


class Fading(NamedTuple):
    """What is left, at each place of a chunk, of the state before it and of each pair in it."""

    of_state: Float[Array, "C"]
    of_pairs: Float[Array, "C C"]


def read_prefixes(
    rule: Rule,
    query: Float[Array, "G P D"],
    keys: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    counted: Bool[Array, "L"] | None,
    chunk: int = CHUNK_LENGTH,
) -> Float[Array, "G P d_v"]:
    """The query at place t of each group reads the state after the keys 0…t.

    Keys that are not ``counted`` are zero, and nothing fades with them.
    """
    groups, places, dimension = query.shape
    chunk = min(chunk, places)
    n_chunks = -(-places // chunk)
    blocks = _chunks(rule, keys[:places], values[:places], counted, chunk, n_chunks)
    padded = jnp.pad(query, ((0, 0), (0, n_chunks * chunk - places), (0, 0)))
    split = padded.reshape(groups, n_chunks, chunk, dimension).swapaxes(0, 1)
    start = jnp.zeros((dimension, values.shape[1]), values.dtype)
    _, out = jax.lax.scan(partial(_step, rule), start, (split, *blocks))
    return out.swapaxes(0, 1).reshape(groups, n_chunks * chunk, -1)[:, :places]


def last_state(
    rule: Rule,
    keys: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    counted: Bool[Array, "L"] | None,
    chunk: int = CHUNK_LENGTH,
) -> Float[Array, "D d_v"]:
    """Sᵀ after all keys."""
    if rule.step is None and rule.log_decay is None:
        return keys.T @ values
    length, dimension = keys.shape
    chunk = max(1, min(chunk, length))
    n_chunks = -(-length // chunk)
    blocks = _chunks(rule, keys, values, counted, chunk, n_chunks)
    nobody = jnp.zeros((n_chunks, 0, chunk, dimension), keys.dtype)
    start = jnp.zeros((dimension, values.shape[1]), values.dtype)
    return jax.lax.scan(partial(_step, rule), start, (nobody, *blocks))[0]


def _chunks(
    rule: Rule, keys: Array, values: Array, counted: Array | None, chunk: int, n_chunks: int
) -> tuple[Array, Array, Array | None]:
    """Keys, values and which of them count, filled up with zeros that do not."""
    fill = n_chunks * chunk - len(keys)

    def split(rows: Array) -> Array:
        padded = jnp.pad(rows, ((0, fill), *((0, 0),) * (rows.ndim - 1)))
        return padded.reshape(n_chunks, chunk, *rows.shape[1:])

    if rule.log_decay is not None:
        counted = jnp.ones(len(keys), bool) if counted is None else counted[: len(keys)]
        return split(keys), split(values), split(counted)
    return split(keys), split(values), None


def _step(
    rule: Rule,
    state: Float[Array, "D d_v"],
    block: tuple[Array, Array, Array, Array | None],
) -> tuple[Float[Array, "D d_v"], Float[Array, "G C d_v"]]:
    """One chunk (queries, keys, values, which count): the state after it, and what is read."""
    query, keys, values, counted = block
    groups, (size, dimension), width = query.shape[0], keys.shape, values.shape[1]
    fading = _fading(rule, size, counted, keys.dtype)
    asked = query.reshape(groups * size, dimension)
    written = values
    if rule.step is not None:
        rows = jnp.concatenate([asked, keys])
        scores, carried = rows @ keys.T, rows @ state
        written = _corrections(rule.step, fading, scores[-size:], values, carried[-size:])
        scores, carried = scores[:-size], carried[:-size]
    else:
        scores, carried = asked @ keys.T, asked @ state
    seen = scores.reshape(groups, size, size) * fading.of_pairs[None]
    kept = carried.reshape(groups, size, width) * fading.of_state[None, :, None]
    out = kept + (seen.reshape(groups * size, size) @ written).reshape(kept.shape)
    last = keys * fading.of_pairs[-1][:, None]
    return state * fading.of_state[-1] + last.T @ written, out


def _corrections(
    step: Array, fading: Fading, scores: Array, values: Array, carried: Array
) -> Float[Array, "C d_v"]:
    """U of the delta rule: what each key writes, given what the chunk has written before it."""
    system = jnp.tril(scores * fading.of_pairs, -1) * step
    surprise = values - carried * fading.of_state[:, None]
    return solve_lower(system + jnp.eye(len(system), dtype=system.dtype), step * surprise)


def _fading(rule: Rule, size: int, counted: Array | None, dtype: Any) -> Fading:
    """α to the number of keys that counted since: ≤ 1 below the diagonal, 0 above."""
    visible = jnp.tril(jnp.ones((size, size), bool))
    if rule.log_decay is None or counted is None:
        return Fading(jnp.ones(size, dtype), visible.astype(dtype))
    age = jnp.cumsum(counted.astype(dtype))
    # The exponents above the diagonal would be positive, and their powers not finite.
    since = jnp.where(visible, age[:, None] - age[None, :], 0)
    between = jnp.where(visible, jnp.exp(since * rule.log_decay), 0)
    return Fading(jnp.exp(age * rule.log_decay), between)
