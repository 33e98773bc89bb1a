"""Decoding by a state: S is all that is kept of the context."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.decoding.decode_state import DecodeState, as_token
from finetti.attention.fast_weights.chunked_scan import last_state
from finetti.attention.fast_weights.state_attention import FastWeights


class FastWeightState(DecodeState):
    """S of linear attention or the delta rule, transposed; `start_decoding` makes one.

    In the precision of the data, or float32. A pair is written, and a query read, in O(D·d_v).
    """

    module: FastWeights
    state: Float[Array, "*batch D d_v"]
    dimension: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def append(self, key: ArrayLike, value: ArrayLike) -> "FastWeightState":
        """The state with one more key (\\*batch, d_k) and value (\\*batch, d_v)."""
        owner, (*batch, _, width) = "FastWeightState.append", self.state.shape
        key = as_token(owner, "key", key, (*batch, self.dimension), self.state.dtype)
        value = as_token(owner, "value", value, (*batch, width), self.state.dtype)
        step = _over(len(batch), _append)
        return eqx.tree_at(lambda s: s.state, self, step(self.module, self.state, key, value))

    def read(self, query: ArrayLike) -> tuple[Float[Array, "*batch d_v"], None]:
        """S φ(q) at ``query`` (\\*batch, d_k), and None: there is no variance."""
        batch = self.state.shape[:-2]
        shape = (*batch, self.dimension)
        query = as_token("FastWeightState.read", "query", query, shape, self.state.dtype)
        return _over(len(batch), _answer)(self.module, self.state, query).astype(self.dtype), None


def write_prompt(
    module: FastWeights, keys: Float[Array, "*batch L d_k"], values: Float[Array, "*batch L d_v"]
) -> FastWeightState:
    """The state of a prompt."""
    (*batch, _, dimension), width, dtype = keys.shape, values.shape[-1], keys.dtype
    working = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype
    # One key of zeros: features of no key at all are refused.
    one = jax.eval_shape(module.features, jax.ShapeDtypeStruct((1, dimension), working))
    state = jnp.zeros((*batch, one.shape[1], width), working)
    if keys.size:
        pairs = keys.astype(working), values.astype(working)
        state = _over(len(batch), _write)(module, *pairs)
    return FastWeightState(module, state, dimension, dtype)


def _over(axes: int, step: Any) -> Any:
    """``step(module, *operands)`` over the batch axes."""

    def run(module: FastWeights, *operands: Array) -> Array:
        mapped = partial(step, module)
        for _ in range(axes):
            mapped = jax.vmap(mapped)
        return mapped(*operands)

    return run


def _write(module: FastWeights, keys: Array, values: Array) -> Array:
    pairs = module.pairs(keys, values)
    return last_state(module.rule(keys.dtype), *pairs, None, module.chunk_length)


def _append(module: FastWeights, state: Array, key: Array, value: Array) -> Array:
    rule = module.rule(state.dtype)
    keys, values = module.pairs(key[None], value[None])
    if rule.log_decay is not None:
        state = jnp.exp(rule.log_decay) * state
    written = values if rule.step is None else rule.step * (values - keys @ state)
    return state + keys.T @ written


def _answer(module: FastWeights, state: Array, query: Array) -> Array:
    return module.features(query[None])[0] @ state
