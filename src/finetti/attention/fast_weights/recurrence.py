"""The rules as they are defined, one token after the other: slow and obvious, beside `chunks`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.fast_weights.chunked_scan import Rule


def recurrence(
    rule: Rule,
    query: Float[Array, "L D"],
    keys: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    counted: Bool[Array, "L"] | None = None,
) -> tuple[Float[Array, "L d_v"], Float[Array, "d_v D"]]:
    """What the query at each place reads after its key was written, and the last state S.

    S ← αS, then S ← S + vkᵀ, or S ← S − β(Sk − v)kᵀ with β = step/‖k‖². A key that is not
    ``counted`` is passed over.
    """
    decay = 1.0 if rule.log_decay is None else jnp.exp(rule.log_decay)
    counted = jnp.ones(len(keys), bool) if counted is None else counted

    def write(state: Array, pair: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        asked, key, value, counts = pair
        faded = decay * state
        if rule.step is None:
            written = faded + jnp.outer(value, key)
        else:
            square = key @ key
            beta = jnp.where(square > 0, rule.step / jnp.where(square > 0, square, 1), 0)
            written = faded - beta * jnp.outer(faded @ key - value, key)
        state = jnp.where(counts, written, state)
        return state, state @ asked

    start = jnp.zeros((values.shape[1], keys.shape[1]), values.dtype)
    state, out = jax.lax.scan(write, start, (query, keys, values, counted))
    return out, state
