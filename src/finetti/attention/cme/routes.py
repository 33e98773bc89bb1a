"""What a route of CME attention is: when it applies, and how it answers."""

import abc
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float

from finetti.attention.context_batch import ContextArrays
from finetti.kernels.kernel import Kernel

Output = Literal["mean", "posterior", "weights"]
RouteName = Literal["auto", "cholesky", "mixed", "primal", "conjugate_gradients"]


class Call(NamedTuple):
    """The shapes of a call and what is asked for: all that decides how it is answered."""

    kernel: Kernel
    length: int
    queries: int
    d_k: int
    d_v: int
    per_query: bool = False
    is_causal: bool = False
    output: Output = "mean"
    dtype: DTypeLike = jnp.float32

    @property
    def features(self) -> int | None:
        """The dimension of the kernel's feature map, None if it has no finite one."""
        return self.kernel.feature_dimension(self.d_k)


class Ridge(NamedTuple):
    """λ, and whether it multiplies the number of keys read."""

    value: Float[Array, ""]
    per_token: bool

    def for_context(self, context: ContextArrays) -> Float[Array, ""]:
        """The ridge of this context."""
        if not self.per_token:
            return self.value
        length = context.keys.shape[0]
        count = jnp.asarray(length) if context.mask is None else jnp.sum(context.mask)
        return self.value * count.astype(self.value.dtype)


class Answer(NamedTuple):
    """What was asked for; the rest is None."""

    mean: Float[Array, "Q d_v"] | None = None
    variance: Float[Array, "Q"] | None = None
    weights: Float[Array, "Q L"] | None = None
    ridge: Float[Array, ""] | None = None


@dataclass(frozen=True)
class Plan:
    """The route of a call, and the reason for the choice."""

    route: str
    is_causal: bool
    per_query: bool
    reason: str


class Route(abc.ABC):
    """One way to answer a call."""

    name: str
    # Whether it decides itself what is done in float64; else everything is.
    in_data_precision = False
    # Entries of Gram matrices, 128 MB in float64, that are in work at once.
    max_entries = 2**24

    def refusal(self, call: Call) -> str:
        """Why it cannot answer, or nothing."""
        return ""

    @abc.abstractmethod
    def reason(self, call: Call) -> str:
        """Why "auto" would take it for this call, or nothing."""

    @abc.abstractmethod
    def read(
        self,
        kernel: Kernel,
        ridge: Ridge,
        context: ContextArrays,
        output: Output,
        prefix: int | None,
    ) -> Answer:
        """One context. With ``prefix``, the period of the queries' positions, it is causal."""


def masked_rows(rows: Float[Array, "L d"], mask: Bool[Array, "L"] | None) -> Float[Array, "L d"]:
    """The rows, 0 where they are masked."""
    return rows if mask is None else jnp.where(mask[:, None], rows, 0.0)
