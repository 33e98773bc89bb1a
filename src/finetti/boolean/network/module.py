"""The compiled network as an Equinox module, made of the parts in `finetti.attention`."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.self_attention import ClassToken, Positions
from finetti.boolean.check import Check
from finetti.boolean.embeddings.base import Embedding
from finetti.boolean.functions.base import binary_array
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.core.arrays import is_concrete
from finetti.core.errors import bad_argument


def rectified(x: Array, weights: Array, bias: Array) -> Array:
    """r(xW + b) on every token."""
    hidden = x @ weights
    return jax.nn.relu(hidden + jnp.broadcast_to(bias, hidden.shape))


def warn_of_single(dtype: Any, check: Check) -> None:
    """Warn that a module in float32 will be wrong, where nobody asked for a precision."""
    if dtype is None and jnp.zeros(()).dtype == jnp.float32 and not check.usable32:
        warnings.warn(
            f"This network is not usable in float32 (error {check.error32:.2g}), JAX's default "
            'precision. Switch on jax.config.update("jax_enable_x64", True), or ask for a dtype.',
            stacklevel=3,
        )


def as_bits(bits: ArrayLike, length: int, owner: str) -> Array:
    """Bits of shape (…, T), of real numbers; their values are checked where they are known."""
    array = jnp.asarray(binary_array(bits, owner) if is_concrete(bits) else bits)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise bad_argument("bits", owner, "zeros and ones", f"an array of {array.dtype}")
    if array.ndim == 0 or array.shape[-1] != length:
        raise bad_argument("bits", owner, f"of shape (..., T = {length})", f"shape {array.shape}")
    return array


class ReluLookup(eqx.Module):
    """x ↦ r(r(xW1 + b1)W2 + b2)w   (Lemma B.8, edelman2022); without W2 where one layer is enough.

    Args:
        lookup: the weights.
        dtype: of the leaves.
    """

    inner: Float[Array, "features bumps"]
    inner_bias: Float[Array, " bumps"]
    middle: Float[Array, "bumps units"] | None
    middle_bias: Float[Array, " units"] | None
    outer: Float[Array, " units"]

    def __init__(self, lookup: Lookup, dtype: Any):
        arrays = {name: jnp.asarray(array, dtype) for name, array in lookup.arrays.items()}
        self.inner, self.inner_bias = arrays["inner"], arrays["inner_bias"]
        self.middle, self.middle_bias = arrays.get("middle"), arrays.get("middle_bias")
        self.outer = arrays["outer"]

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        """The value at every row."""
        hidden = rectified(features, self.inner, self.inner_bias)
        if self.middle is not None and self.middle_bias is not None:
            hidden = rectified(hidden, self.middle, self.middle_bias)
        return hidden @ self.outer


class BooleanTransformer(eqx.Module):
    """lookup(MHA(x_[CLS]; [CLS], X(b)))  with X(b) = E_b + P, or diag(b)V for the bag.

    One layer of ordinary softmax attention: every part is a leaf that can be looked at, changed
    and trained. It writes all T tokens out; `Compiled.predict` does not.

    Args:
        head: the weights below the lookup.
        lookup: the weights of the lookup.
        dtype: of the leaves; JAX's default precision if None.
    """

    tokens: Float[Array, "2 d"]
    positions: Positions
    cls: ClassToken
    heads: MultiHead
    lookup: ReluLookup
    embedding: Embedding = eqx.field(static=True)

    def __init__(self, head: HeadWeights, lookup: Lookup, dtype: Any = None):
        dtype = jnp.zeros(()).dtype if dtype is None else jnp.dtype(dtype)
        query, key, value, output = (
            jnp.asarray(each, dtype) for each in (head.query, head.key, head.value, head.output)
        )
        self.tokens = jnp.asarray(head.tokens, dtype)
        self.positions = Positions(jnp.asarray(head.positions.dense(), dtype))
        self.cls = ClassToken(jnp.asarray(head.cls, dtype))
        self.heads = MultiHead(query, key, value, output)
        self.lookup = ReluLookup(lookup, dtype)
        self.embedding = head.embedding

    def embed(self, bits: ArrayLike) -> Float[Array, "*batch T d"]:
        """X(b)."""
        bits = as_bits(bits, len(self.positions.vectors), "BooleanTransformer")
        vectors = self.positions.vectors
        vectors = jnp.broadcast_to(vectors, (*bits.shape, vectors.shape[1]))
        return self.embedding.embed(bits, self.tokens, vectors)

    def features(self, bits: ArrayLike) -> Float[Array, "*batch features"]:
        """What [CLS] reads."""
        tokens = self.cls(self.embed(bits))
        return self.heads(tokens[..., :1, :], tokens)[..., 0, :]

    def __call__(self, bits: ArrayLike) -> Float[Array, "*batch"]:
        """The value of the rule, shape (…, T) → (…)."""
        return self.lookup(self.features(bits))
