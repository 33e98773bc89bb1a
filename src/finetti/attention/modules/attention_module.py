"""The interface of every attention module, and of those whose weights are found row by row."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import ContextArrays, Contexts, arrange, over_queries
from finetti.core.errors import UnsupportedError
from finetti.core.numerics.float64 import float64_inside
from finetti.kernels.kernel import Kernel, check_kernel

_INSTEAD = "ConditionalMean, which accepts any positive-definite kernel, or a nonnegative one"
# The mask value of jax.nn.dot_product_attention, so that fully masked queries agree with it.
_MASKED = -0.7


class PerQueryMaskWarning(UserWarning):
    """Said once: what a mask per query costs, and which argument avoids it."""


def per_query_cost(what: str, instead: str) -> str:
    """The text of a `PerQueryMaskWarning`."""
    return (
        f"A mask that differs between queries {what}. If it is causal, say is_causal=True; if it "
        "only hides padding, pass one mask for all queries (of the shape of the keys, or "
        f"key_value_seq_lengths; in Flax key_mask=True): {instead} for all."
    )


class Attention(eqx.Module):
    """attn(q, K, V) = Vᵀ Norm(K(K, q)): how a query reads keys and values (zhang2022, Section 2).

    Shapes, for all members of the family:

    - ``query`` is (\\*batch, \\*queries, d_k), ``keys`` (\\*batch, L, d_k), ``values``
      (\\*batch, L, d_v). The leading axes of ``keys`` are the batch; whatever axes ``query`` has
      beyond them are queries that read the same context, and share its factorization.
    - ``mask`` is boolean, True = may be read: (\\*batch, L) for all queries alike, or
      (\\*batch, \\*queries, L) for each query its own. A masked key counts as deleted, whatever it
      holds.
    - with ``is_causal`` the query at position t of the last query axis reads the keys 0…t.
    - the output is (\\*batch, \\*queries, d_v), the weights (\\*batch, \\*queries, L).
    """

    def __hash__(self) -> int:
        try:
            return hash(tuple(jax.tree.leaves(self)))
        except TypeError as error:
            raise TypeError(
                f"{type(self).__name__} holds arrays and cannot be hashed, as jax.jit asks of a "
                "function. Use equinox.filter_jit(attention), or jax.jit(lambda *tokens: "
                "attention(*tokens))."
            ) from error

    @abc.abstractmethod
    def __call__(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """What the query reads: a weighted sum of the values."""

    @abc.abstractmethod
    def weights(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """The weight of each key; 0 on masked ones."""

    def on_scaled_tokens(self, scale: Float[Array, ""]) -> "Attention":
        """The attention that reads √scale·query and √scale·keys."""
        raise NotImplementedError(f"{type(self).__name__} has no scale.")


class RowAttention(Attention):
    """Abstract: the weights of a query follow from the query, the keys and its mask."""

    # Whether the weights need no more than the precision of the data.
    in_data_precision: ClassVar[bool]

    @abc.abstractmethod
    def rows(
        self,
        query: Float[Array, "Q d_k"],
        keys: Float[Array, "L d_k"],
        mask: Bool[Array, "#Q L"] | None,
        bias: Float[Array, "#Q L"] | None = None,
    ) -> Float[Array, "Q L"]:
        """The weights, 0 on masked keys; ``bias`` is added to the logarithms of the scores."""

    def __call__(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """Σ_ℓ w_ℓ v_ℓ with the weights of `weights`."""
        return self.read(arrange(type(self).__name__, query, keys, values, mask), is_causal)

    def weights(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """The weight of each key; they sum to 1."""
        contexts = arrange(type(self).__name__, query, keys, None, mask)
        return self.read(contexts, is_causal, _weights_alone)

    def read(
        self,
        contexts: Contexts,
        is_causal: bool = False,
        read: Callable[..., Any] | None = None,
        *given: Any,
    ) -> Any:
        """``read(module, query, keys, values, mask, bias, *given)`` for every context, in blocks of
        queries and in the layout of the caller; by default the weighted sum of the values."""
        positions = contexts.positions(type(self).__name__) if is_causal else None
        return contexts.run(read_rows, self, given, read=read, positions=positions)


def read_rows(
    contexts: Contexts,
    module: RowAttention,
    given: tuple[Any, ...],
    *,
    read: Callable[..., Any] | None,
    positions: int | None,
) -> Any:
    """What `RowAttention.read` compiles."""

    def answer(module: RowAttention, arrays: ContextArrays, bias: Any, given: Any) -> Any:
        def rows(*block: Any) -> Any:
            return (read or _weighted_sum)(module, *block, *given)

        return over_queries(rows, arrays, positions, bias)

    answer = answer if module.in_data_precision else float64_inside(answer)
    found = answer(contexts.scaled(module), contexts.arrays, contexts.bias, given)
    return jax.tree.map(contexts.restore if read else contexts.restore_values, found)


def _weighted_sum(
    module: RowAttention, query: Array, keys: Array, values: Array, mask: Any, bias: Any
) -> Array:
    return module.rows(query, keys, mask, bias) @ values


def _weights_alone(
    module: RowAttention, query: Array, keys: Array, values: Array, mask: Any, bias: Any
) -> Array:
    return module.rows(query, keys, mask, bias)


class NormalizedAttention(RowAttention):
    """Norm_SM(s) = s / 1ᵀs on positive scores, given by their logarithms   (4.9), zhang2022"""

    @abc.abstractmethod
    def log_scores(
        self, query: Float[Array, "Q d_k"], keys: Float[Array, "L d_k"]
    ) -> Float[Array, "Q L"]:
        """log s(q, k_ℓ)."""

    def rows(
        self,
        query: Float[Array, "Q d_k"],
        keys: Float[Array, "L d_k"],
        mask: Bool[Array, "#Q L"] | None,
        bias: Float[Array, "#Q L"] | None = None,
    ) -> Float[Array, "Q L"]:
        """Score over sum of scores; they sum to 1."""
        return masked_softmax(with_bias(self.log_scores(query, keys), bias), mask)


def with_bias(
    logits: Float[Array, "Q L"], bias: Float[Array, "#Q L"] | None
) -> Float[Array, "Q L"]:
    """The logits, and the bias where there is one."""
    return logits if bias is None else logits + bias


def masked_softmax(
    logits: Float[Array, "*rows L"], mask: Bool[Array, "*broadcast"] | None
) -> Float[Array, "*rows L"]:
    """Weights that sum to 1, 0 on masked keys, without overflow.

    A query that may read nothing spreads its weight evenly, as ``jax.nn.dot_product_attention``
    does; so does one whose scores are all zero (log −∞).
    """
    return jax.nn.softmax(masked_logits(logits, mask), axis=-1)


def masked_logits(
    logits: Float[Array, "*rows L"], mask: Bool[Array, "*broadcast"] | None
) -> Float[Array, "*rows L"]:
    """The logits, on masked keys and where they are −∞ as low as a finite number that has sums."""
    lowest = jnp.asarray(_MASKED * float(jnp.finfo(logits.dtype).max), logits.dtype)
    logits = jnp.maximum(logits, lowest)
    return logits if mask is None else jnp.where(mask, logits, lowest)


def check_nonnegative(kernel: Kernel, owner: str, what: str, instead: str = _INSTEAD) -> None:
    """Refuse what is no kernel, and kernels of both signs where ``owner`` divides by their sums."""
    check_kernel(kernel, owner)
    if not kernel.is_positive:
        raise UnsupportedError(
            f"{owner} {what} the kernel's values, and {kernel} takes both signs. Use {instead} "
            "such as RBF or Exponential."
        )
