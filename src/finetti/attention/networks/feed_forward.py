"""The feed-forward part of paper E's network."""

import equinox as eqx
import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.weights import as_sequence, as_weights, promote
from finetti.core.errors import bad_argument


class FeedForward(eqx.Module):
    """X̄ = ReLU(XA^x)A^σ + X                                            (C.1), zhang2022

    Args:
        inner: A^x, shape (d, d_σ).
        outer: A^σ, shape (d_σ, d), or None for one layer, nn(x; A) = ReLU(Ax) of (4.7).
        skip: whether X is added.
    """

    inner: Float[Array, "d d_σ"]
    outer: Float[Array, "d_σ d"] | None
    skip: bool = eqx.field(static=True)

    def __init__(self, inner: ArrayLike, outer: ArrayLike | None = None, skip: bool = True):
        owner = "FeedForward"
        self.inner = as_weights(inner, "inner", owner, "(d, d_σ)", (None, None))
        width = self.inner.shape[1]
        if outer is not None:
            outer = as_weights(outer, "outer", owner, "(d_σ, d)", (width, None))
            width = outer.shape[1]
        if skip and width != self.inner.shape[0]:
            requirement = f"False, because dimension {self.inner.shape[0]} goes to {width}"
            raise bad_argument("skip", owner, requirement, skip)
        self.outer, self.skip = outer, bool(skip)

    @property
    def out_dimension(self) -> int:
        """The dimension of X̄."""
        return (self.inner if self.outer is None else self.outer).shape[1]

    def __call__(self, tokens: ArrayLike) -> Float[Array, "*batch T d"]:
        """X̄."""
        tokens = as_sequence(tokens, "tokens", "FeedForward", self.inner.shape[0])
        tokens, inner = promote(tokens, self.inner)
        out = jax.nn.relu(tokens @ inner)
        if self.outer is not None:
            tokens, out, outer = promote(tokens, out, self.outer)
            out = out @ outer
        return out + tokens if self.skip else out
