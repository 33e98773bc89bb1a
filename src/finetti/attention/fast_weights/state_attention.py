"""The interface of attention by a state, and how its calls are computed."""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import (
    ContextArrays,
    Contexts,
    arrange,
    mark_unknown,
    over_contexts,
    set_aside_spoiled,
)
from finetti.attention.fast_weights.chunked_scan import Rule, last_state, read_prefixes
from finetti.attention.modules.attention_module import Attention

# Numbers in the keys of a context from which contexts run one after the other: together they would
# be turned to (chunk, context, …) and back, and nothing of them would stay in a near cache.
MIN_ALONE_ENTRIES = 2**14


class FastWeights(Attention):
    """Abstract: the pairs of a context are written into a matrix S; the answer is S φ(q).

    The answer is linear in the values, with weights that depend on keys and their order only. Work
    is linear in L: chunks of keys are matrix products (`finetti.attention.fast_weights`), in the
    precision of the data or float32. A query that may read nothing answers 0. Gradients are reverse
    mode.
    """

    chunk_length: eqx.AbstractVar[int]

    @abc.abstractmethod
    def rule(self, dtype: Any) -> Rule:
        """How a pair changes the state."""

    @abc.abstractmethod
    def features(self, tokens: Float[Array, "N d_k"]) -> Float[Array, "N D"]:
        """φ of queries."""

    @abc.abstractmethod
    def pairs(
        self, keys: Float[Array, "L d_k"], values: Float[Array, "L d_v"]
    ) -> tuple[Float[Array, "L D"], Float[Array, "L d_v"]]:
        """What is written of keys and values that all count."""

    @abc.abstractmethod
    def _read_each(self, contexts: Contexts) -> Array:
        """The answers where every query has a mask of its own."""

    def __call__(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """S φ(q), S written by all keys that may be read; with ``is_causal`` by the keys 0…t."""
        contexts = arrange(type(self).__name__, query, keys, values, mask)
        return contexts.restore_values(self.read(contexts, is_causal))

    def weights(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """What each value is multiplied by: of either sign, and they need not sum to 1."""
        contexts = arrange(type(self).__name__, query, keys, None, mask)
        size, length, _ = contexts.keys.shape
        # The answer to the values e_1, …, e_L.
        units = jnp.broadcast_to(jnp.eye(length, dtype=contexts.keys.dtype), (size, length, length))
        return contexts.restore(self.read(contexts._replace(values=units), is_causal))

    def read(self, contexts: Contexts, is_causal: bool = False) -> Array:
        """The answers in the layout of ``contexts``."""
        contexts = contexts.at_least_float32()
        # Where nothing is asked, there are no positions either.
        is_causal = is_causal and contexts.query.shape[1] > 0
        positions = contexts.positions(type(self).__name__) if is_causal else None
        arrays, known = set_aside_spoiled(contexts.arrays, positions)
        if contexts.per_query:
            contexts = contexts._replace(**arrays._asdict())
            contexts = contexts.causal(type(self).__name__) if is_causal else contexts
            return mark_unknown(self._read_each(contexts), known)
        return mark_unknown(run_rule(positions)(self, arrays), known)


@functools.cache
def run_rule(positions: int | None) -> Callable[..., Array]:
    """One compiled function per number of positions; None where all queries read all keys."""

    def run(module: FastWeights, arrays: ContextArrays) -> Array:
        def one(query: Array, keys: Array, values: Array, mask: Array | None) -> Array:
            rule = module.rule(keys.dtype)
            written = masked_pairs(module, keys, values, mask)
            asked = module.features(query)
            if positions is None:
                return asked @ last_state(rule, *written, mask, module.chunk_length)
            groups = asked.reshape(-1, positions, asked.shape[1])
            out = read_prefixes(rule, groups, *written, mask, module.chunk_length)
            return out.reshape(len(query), -1)

        if len(arrays.keys) == 1 or math.prod(arrays.keys.shape[1:]) < MIN_ALONE_ENTRIES:
            return over_contexts(one, arrays)
        # The states of all contexts, kept for the gradient, take longer to write than to make.
        return over_contexts(jax.checkpoint(one), arrays, max_entries=1)

    return jax.jit(run)


def masked_pairs(
    module: FastWeights,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
) -> tuple[Float[Array, "L D"], Float[Array, "L d_v"]]:
    """What is written; zeros for a key that does not count."""
    keys, values = module.pairs(keys, values)
    if mask is None:
        return keys, values
    return jnp.where(mask[:, None], keys, 0), jnp.where(mask[:, None], values, 0)
