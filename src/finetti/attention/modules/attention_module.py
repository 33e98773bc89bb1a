"""The interface of every attention module."""

import abc

import equinox as eqx
import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float


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
