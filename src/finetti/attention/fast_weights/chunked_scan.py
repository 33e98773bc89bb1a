"""The state of a rule in chunks of keys: matrix products, no loop over tokens.

Inside a chunk that begins with the state T₀ (D×d_v) every rule has the form T_j = A_j T₀ +
Σ_{i≤j} (A_j/A_i) k_i u_iᵀ, A_j the product of the decays so far, one number or one per channel.
Linear attention writes u_j = v_j. The delta rule, with unit keys, writes
u_j = step_j·(v_j − (α_j T_{j−1})ᵀk_j), in which all u_i before it stand: one unit lower triangular
system,

(I + M)U = step·(V − (A K)T₀),  M_ji = step_j·k_jᵀ(A_j/A_i)k_i for i < j

(the WY form of a product of Householder-like factors: Bischof and Van Loan, 1987; for the delta
rule Yang et al., arXiv 2406.06484, with gates 2412.06464). Ratios A_j/A_i are taken by logarithms
and never exceed 1.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import split_rows
from finetti.core.linalg.triangular import solve_lower

# Keys that one step takes: 64 was the fastest of 32, 64 and 128 for 64 and 128 dimensions. With a
# decay per channel the ratios of a chunk are C×C×D numbers.
CHUNK_LENGTH, CHANNEL_CHUNK_LENGTH = 64, 16


class UpdateRule(NamedTuple):
    """How a pair changes the state: without a ``step`` the value is added, with one the error.

    Both gates are numbers, or one per key; the logarithm of the decay also one per channel.
    """

    step: Float[Array, ""] | Float[Array, "L"] | None = None
    log_decay: Float[Array, ""] | Float[Array, "L"] | Float[Array, "L D"] | None = None


class Chunk(NamedTuple):
    """What one step of the scan takes; gates that are numbers are not in it."""

    query: Float[Array, "G C D"]
    keys: Float[Array, "C D"]
    values: Float[Array, "C d_v"]
    step: Float[Array, "C"] | None
    log_decay: Float[Array, "C"] | Float[Array, "C D"] | None
    counted: Bool[Array, "C"] | None  # of a decay that is a number: which keys it comes with


class Decay(NamedTuple):
    """What is left at place j of the state before the chunk, A_j, and of pair i, A_j/A_i."""

    of_state: Float[Array, "C #D"]
    of_pairs: Float[Array, "C C"] | Float[Array, "C C D"]

    @property
    def per_channel(self) -> bool:
        """Whether every channel decays by itself."""
        return self.of_pairs.ndim == 3

    def scores(self, rows: Float[Array, "N D"], keys: Float[Array, "C D"]) -> Float[Array, "N C"]:
        """x_jᵀ(A_j/A_i)k_i for i ≤ j, 0 above the diagonal; the rows are groups of C queries."""
        size = len(keys)
        if self.per_channel:
            groups = rows.reshape(-1, size, rows.shape[1])
            return jnp.einsum("gjd,jid,id->gji", groups, self.of_pairs, keys).reshape(-1, size)
        scores = (rows @ keys.T).reshape(-1, size, size) * self.of_pairs[None]
        return scores.reshape(-1, size)

    def carried(
        self, rows: Float[Array, "N D"], state: Float[Array, "D d_v"]
    ) -> Float[Array, "N d_v"]:
        """T₀ᵀ(A_j x_j)."""
        groups = rows.reshape(-1, len(self.of_state), rows.shape[1])
        if self.per_channel:
            return (groups * self.of_state[None]).reshape(rows.shape) @ state
        out = (rows @ state).reshape(*groups.shape[:2], -1) * self.of_state[None]
        return out.reshape(len(rows), -1)


def read_prefixes(
    rule: UpdateRule,
    query: Float[Array, "G P D"],
    keys: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    counted: Bool[Array, "L"] | None,
    chunk: int = CHUNK_LENGTH,
) -> Float[Array, "G P d_v"]:
    """The query at place t of each group reads the state after the keys 0…t.

    Keys that are not ``counted`` are zero, and nothing decays with them.
    """
    groups, places, _ = query.shape
    out = _scan(rule, query, keys[:places], values[:places], counted, chunk, places)[1]
    return out.swapaxes(0, 1).reshape(groups, -1, values.shape[1])[:, :places]


def last_state(
    rule: UpdateRule,
    keys: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    counted: Bool[Array, "L"] | None,
    chunk: int = CHUNK_LENGTH,
) -> Float[Array, "D d_v"]:
    """T after all keys."""
    if rule.step is None and rule.log_decay is None:
        return keys.T @ values
    no_queries = jnp.zeros((0, len(keys), keys.shape[1]), keys.dtype)
    return _scan(rule, no_queries, keys, values, counted, chunk, len(keys))[0]


def _scan(
    rule: UpdateRule,
    query: Float[Array, "G P D"],
    keys: Array,
    values: Array,
    counted: Array | None,
    chunk: int,
    places: int,
) -> tuple[Float[Array, "D d_v"], Float[Array, "N G C d_v"]]:
    """The state after all chunks, and what is read in each; all filled up with zeros."""
    step, log_decay = rule
    if log_decay is not None and log_decay.ndim == 2:
        chunk = min(chunk, CHANNEL_CHUNK_LENGTH)
    chunk = max(1, min(chunk, places))
    n_chunks = max(1, -(-places // chunk))

    def split(rows: Array) -> Array:
        rows = rows[:places]
        fill = (0, n_chunks * chunk - len(rows)), *((0, 0),) * (rows.ndim - 1)
        return split_rows(jnp.pad(rows, fill), chunk)

    if log_decay is None:
        counted = None
    elif log_decay.ndim == 0:
        counted = split(jnp.ones(len(keys), bool) if counted is None else counted)
    else:
        if counted is not None:
            kept = counted.reshape(-1, *(1,) * (log_decay.ndim - 1))
            log_decay = jnp.where(kept, log_decay, 0)
        log_decay, counted = split(log_decay), None
    chunks = Chunk(
        jnp.moveaxis(jax.vmap(split)(query), 0, 1),
        split(keys),
        split(values),
        split(step) if step is not None and step.ndim else None,
        log_decay if log_decay is not None and log_decay.ndim else None,
        counted,
    )
    start = jnp.zeros((keys.shape[1], values.shape[1]), values.dtype)
    return jax.lax.scan(partial(_step, rule), start, chunks)


def _step(
    rule: UpdateRule, state: Float[Array, "D d_v"], chunk: Chunk
) -> tuple[Float[Array, "D d_v"], Float[Array, "G C d_v"]]:
    """One chunk: the state after it, and what is read."""
    query, keys, values, step, *_ = chunk
    step = rule.step if step is None else step
    groups, (size, dimension), width = query.shape[0], keys.shape, values.shape[1]
    decay = _decay_factors(rule, chunk)
    asked = query.reshape(groups * size, dimension)
    written = values
    rows = asked if step is None else jnp.concatenate([asked, keys])
    scores, carried = decay.scores(rows, keys), decay.carried(rows, state)
    if step is not None:
        written = _corrections(step, scores[-size:], values, carried[-size:])
        scores, carried = scores[:-size], carried[:-size]
    out = carried + (scores.reshape(groups * size, size) @ written)
    last = decay.of_pairs[-1]
    last = keys * (last if decay.per_channel else last[:, None])
    kept = state * decay.of_state[-1][:, None]
    return kept + last.T @ written, out.reshape(groups, size, width)


def _corrections(
    step: Float[Array, ""] | Float[Array, "C"],
    scores: Float[Array, "C C"],
    values: Float[Array, "C d_v"],
    carried: Float[Array, "C d_v"],
) -> Float[Array, "C d_v"]:
    """U of the delta rule: what each key writes, given what the chunk has written before it."""
    step = step[:, None] if step.ndim else step
    system = jnp.tril(scores, -1) * step
    identity = jnp.eye(len(system), dtype=system.dtype)
    return solve_lower(system + identity, step * (values - carried))


def _decay_factors(rule: UpdateRule, chunk: Chunk) -> Decay:
    """Powers ≤ 1 below the diagonal, 0 above."""
    size, dtype = len(chunk.keys), chunk.keys.dtype
    visible = jnp.tril(jnp.ones((size, size), bool))
    if rule.log_decay is None:
        return Decay(jnp.ones((size, 1), dtype), visible.astype(dtype))
    if chunk.counted is not None:
        age = jnp.cumsum(chunk.counted.astype(dtype))
        # The exponents above the diagonal would be positive, and their powers not finite.
        since = jnp.where(visible, age[:, None] - age[None, :], 0) * rule.log_decay
        age = age * rule.log_decay
    else:
        # Sums of the decays between two places: their difference would lose its digits after a
        # decay to almost nothing.
        logs = chunk.log_decay
        assert logs is not None
        after = jnp.tril(jnp.ones((size, size), dtype), -1)
        terms = logs[:, None] * after.reshape(size, size, *(1,) * (logs.ndim - 1))
        since = jnp.tensordot(visible.astype(dtype), terms, 1)
        age = jnp.cumsum(logs, axis=0)
    visible = visible.reshape(size, size, *(1,) * (since.ndim - 2))
    between = jnp.where(visible, jnp.exp(since), 0)
    return Decay(jnp.exp(age).reshape(size, -1), between)
