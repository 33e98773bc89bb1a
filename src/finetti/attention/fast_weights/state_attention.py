"""The interface of attention by a state, and how its calls are computed."""

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import ContextArrays, Contexts, arrange, over_contexts
from finetti.attention.fast_weights.chunked_scan import UpdateRule, last_state, read_prefixes
from finetti.attention.modules.attention_module import Attention, PerQueryMaskWarning
from finetti.core.errors import warn_user

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
    # What is said where every query has a mask of its own, if that costs more.
    per_query_cost: ClassVar[str] = ""

    @abc.abstractmethod
    def rule(self, dtype: Any) -> UpdateRule:
        """How a pair changes the state."""

    @abc.abstractmethod
    def features(self, tokens: Float[Array, "N d_k"]) -> Float[Array, "N D"]:
        """φ of queries."""

    @abc.abstractmethod
    def pairs(
        self, keys: Float[Array, "L d_k"], values: Float[Array, "L d_v"]
    ) -> tuple[Float[Array, "L D"], Float[Array, "L d_v"]]:
        """What is written of keys and values that all count."""

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
        return self.read(arrange(type(self).__name__, query, keys, values, mask), is_causal)

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
        return self.read(contexts, is_causal, is_weights=True)

    def read(
        self,
        contexts: Contexts,
        is_causal: bool = False,
        gates: UpdateRule | None = None,
        *,
        is_weights: bool = False,
    ) -> Array:
        """The answers, or the weights of the values, in the layout of the caller.

        ``gates`` stand in place of those of `rule`: numbers, or as `head_layout.Heads.gate` takes
        them.
        """
        if contexts.layout.per_query and self.per_query_cost:
            warn_user(self.per_query_cost, PerQueryMaskWarning)
        # Where nothing is asked, there are no positions either.
        is_causal = is_causal and contexts.layout.queries > 0
        positions = contexts.positions(type(self).__name__) if is_causal else None
        return contexts.run(read_state, self, gates, positions=positions, is_weights=is_weights)

    def read_own_masks(
        self, arrays: ContextArrays, shared: UpdateRule, own: UpdateRule
    ) -> Float[Array, "B Q d_v"]:
        """The answers where every query has a mask of its own: one state for each."""
        return _over_states(self, arrays, shared, own, None)


def read_state(
    contexts: Contexts,
    module: FastWeights,
    gates: UpdateRule | None,
    *,
    positions: int | None,
    is_weights: bool,
) -> Array:
    """What `FastWeights.read` compiles."""
    arrays = contexts.arrays
    if is_weights:
        # The answer to the values e_1, …, e_L.
        size, length, _ = arrays.keys.shape
        units = jnp.eye(length, dtype=arrays.keys.dtype)
        arrays = arrays._replace(values=jnp.broadcast_to(units, (size, length, length)))
    module = contexts.scaled(module)
    shared, own = module.rule(arrays.keys.dtype), UpdateRule()
    if gates is not None:
        shared = UpdateRule(*(None if gate is None or gate.ndim else gate for gate in gates))
        own = UpdateRule(*(gate if gate is not None and gate.ndim else None for gate in gates))
        heads = contexts.layout.heads
        assert heads is not None
        own = jax.tree.map(heads.gate, own)
        shared, own = jax.tree.map(lambda gate: gate.astype(arrays.keys.dtype), (shared, own))
    if contexts.layout.per_query:
        arrays = arrays if positions is None else arrays.causal(positions)
        answers = module.read_own_masks(arrays, shared, own)
    else:
        answers = _over_states(module, arrays, shared, own, positions)
    return contexts.restore(answers) if is_weights else contexts.restore_values(answers)


def _over_states(
    module: FastWeights,
    arrays: ContextArrays,
    shared: UpdateRule,
    own: UpdateRule,
    positions: int | None,
) -> Float[Array, "B Q d_v"]:
    """``own`` gates are (B, L, …), ``shared`` ones numbers."""

    def one(query: Array, keys: Array, values: Array, mask: Array | None, own: UpdateRule) -> Array:
        rule = UpdateRule(*(a if b is None else b for a, b in zip(shared, own, strict=True)))
        written = masked_pairs(module, keys, values, mask)
        asked = module.features(query)
        if positions is None:
            return asked @ last_state(rule, *written, mask, module.chunk_length)
        groups = asked.reshape(-1, positions, asked.shape[1])
        out = read_prefixes(rule, groups, *written, mask, module.chunk_length)
        return out.reshape(len(query), -1)

    if len(arrays.keys) == 1 or math.prod(arrays.keys.shape[1:]) < MIN_ALONE_ENTRIES:
        return over_contexts(one, arrays, None, own)
    # The states of all contexts, kept for the gradient, take longer to write than to make.
    return over_contexts(jax.checkpoint(one), arrays, 1, own)


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
