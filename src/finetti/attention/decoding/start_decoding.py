"""Incremental decoding: one interface for every attention that has a state."""

from jax.typing import ArrayLike

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.decoding.decode_state import DecodeState
from finetti.attention.decoding.factor_cache import factor_prompt
from finetti.attention.decoding.fast_weight_state import write_prompt
from finetti.attention.decoding.moment_cache import moments_of_prompt
from finetti.attention.fast_weights.state_attention import FastWeights
from finetti.attention.modules.attention_module import Attention, RowAttention
from finetti.core.arguments import check_finite
from finetti.core.arrays import as_array
from finetti.core.errors import InputError, UnsupportedError, bad_argument
from finetti.core.numerics.float64 import widest_float


def start_decoding(
    attention: Attention, keys: ArrayLike, values: ArrayLike, capacity: int | None = None
) -> DecodeState:
    """Read a prompt once; the state that is left grows by ``append`` and answers by ``read``.

    | attention | state | append | read |
    |---|---|---|---|
    | `LinearAttention`, `DeltaRule` | S, D×d_v | O(D·d_v) | O(D·d_v) |
    | `ConditionalMean`, kernel of D features, no capacity | D×D and D×d_v | O(D²) | O(D³) |
    | `ConditionalMean`, capacity C | the factor, C×C | O(C²) | O(C²) |

    ``read`` answers (answer, variance), with None for the variance of a state that has none.
    `Softmax`, `KernelSmoother` and `LocalLinear` have no state but the pairs themselves, and are
    refused.

    Args:
        attention: `ConditionalMean` with a `ridge` (not per token), `LinearAttention` or
            `DeltaRule`.
        keys: the prompt, (\\*batch, L, d_k); L may be 0.
        values: (\\*batch, L, d_v).
        capacity: the most keys there will be, at least L, for a `ConditionalMean` that keeps its
            factor; its kernel must be of bounded growth. The other states need none.

    >>> import jax.numpy as jnp
    >>> attention = ConditionalMean(ridge=0.1)
    >>> cache = start_decoding(attention, jnp.zeros((0, 2)), jnp.zeros((0, 1)), capacity=16)
    >>> cache = cache.append(jnp.zeros(2), jnp.ones(1))
    >>> mean, variance = cache.read(jnp.zeros(2))
    >>> f"{mean[0]:.3f} ± {variance**0.5:.3f}"
    '0.909 ± 0.302'
    """
    owner = "start_decoding"
    keys, values = as_array(keys), as_array(values)
    if keys.ndim < 2 or values.ndim != keys.ndim or values.shape[:-1] != keys.shape[:-1]:
        got = f"{values.shape} for keys {keys.shape}"
        raise bad_argument("values", owner, "one per key, (..., L, d_v)", got)
    check_finite(keys, "keys", owner)
    check_finite(values, "values", owner)
    dtype = widest_float(keys, values)
    keys, values = keys.astype(dtype), values.astype(dtype)
    if isinstance(attention, FastWeights):
        return write_prompt(attention, keys, values)
    if not isinstance(attention, ConditionalMean):
        raise _no_state(owner, attention)
    if attention.per_token:
        raise InputError(
            f"{owner} cannot use `ridge_per_token`: the ridge would change with every key. Use "
            "`ridge`."
        )
    if capacity is not None:
        return factor_prompt(attention, keys, values, capacity)
    if attention.kernel.feature_dimension(keys.shape[-1]) is None:
        advice = f"Its state is the factor of all keys, because {attention.kernel} has no finite "
        requirement = "the largest number of keys there will be"
        raise bad_argument("capacity", owner, requirement, None, advice + "feature map.")
    return moments_of_prompt(attention, keys, values)


def _no_state(owner: str, attention: Attention) -> Exception:
    name = type(attention).__name__
    if isinstance(attention, RowAttention):
        return UnsupportedError(
            f"{owner} has no state for {name}, whose state is the pairs themselves: keep the keys "
            f"and values, and call the {name} with them; a step costs O(L) either way. Use "
            "LinearAttention, DeltaRule or ConditionalMean for a state of its own."
        )
    requirement = "a ConditionalMean, LinearAttention or DeltaRule"
    return bad_argument("attention", owner, requirement, name)
