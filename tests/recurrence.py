"""The rules as they are defined, one token after the other: slow and obvious."""

import jax
import jax.numpy as jnp


def recurrence(rule, query, keys, values, counted=None):
    """What the query at each place reads after its key was written, and the last state S.

    S ← Sα, then S ← S + vkᵀ, or S ← S − β(Sk − v)kᵀ with β = step/‖k‖². Gates are numbers, or one
    per key, the decay also one per channel. A key that is not ``counted`` is passed over.
    """
    length = len(keys)
    decay = jnp.ones(()) if rule.log_decay is None else jnp.exp(rule.log_decay)
    decay = decay if decay.ndim else jnp.broadcast_to(decay, (length,))
    decay = decay if decay.ndim == 2 else decay[:, None]
    step = jnp.zeros(()) if rule.step is None else rule.step
    step = jnp.broadcast_to(step, (length,))
    counted = jnp.ones(length, bool) if counted is None else counted

    def write(state, pair):
        asked, key, value, counts, alpha, rate = pair
        faded = state * alpha[None, :].astype(state.dtype)
        if rule.step is None:
            written = faded + jnp.outer(value, key)
        else:
            square = key @ key
            beta = jnp.where(square > 0, rate / jnp.where(square > 0, square, 1), 0)
            written = faded - beta.astype(state.dtype) * jnp.outer(faded @ key - value, key)
        state = jnp.where(counts, written, state)
        return state, state @ asked

    start = jnp.zeros((values.shape[1], keys.shape[1]), values.dtype)
    state, out = jax.lax.scan(write, start, (query, keys, values, counted, decay, step))
    return out, state
