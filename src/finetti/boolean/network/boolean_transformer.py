"""The compiled network as an Equinox module, made of the parts in `finetti.attention`."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.token_maps import Positions
from finetti.boolean.certificate import Check
from finetti.boolean.embeddings.token_embedding import ONE_BIT, Embedding
from finetti.boolean.language.rule import binary_array
from finetti.core.arrays import is_concrete
from finetti.core.errors import bad_argument


def relu_layer(x: Array, weights: Array, bias: Array) -> Array:
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
        weights: by name.
    """

    inner: Float[Array, "features bumps"]
    inner_bias: Float[Array, " bumps"]
    middle: Float[Array, "bumps units"] | None
    middle_bias: Float[Array, " units"] | None
    outer: Float[Array, "units *written"]

    def __init__(self, weights: dict[str, Array]):
        self.inner, self.inner_bias = weights["inner"], weights["inner_bias"]
        self.middle, self.middle_bias = weights.get("middle"), weights.get("middle_bias")
        self.outer = weights["outer"]

    def __call__(self, features: Float[Array, "*batch features"]) -> Array:
        """The value at every row, or what is written into every token."""
        hidden = relu_layer(features, self.inner, self.inner_bias)
        if self.middle is not None and self.middle_bias is not None:
            hidden = relu_layer(hidden, self.middle, self.middle_bias)
        return hidden @ self.outer


class BooleanBlock(eqx.Module):
    """The heads and the lookup of one block."""

    heads: MultiHead
    lookup: ReluLookup

    def __init__(self, weights: dict[str, Array]):
        query, key = weights["query"], weights["key"]
        self.heads = MultiHead(query, key, weights["value"], weights["output"])
        self.lookup = ReluLookup(weights)


class BooleanTransformer(eqx.Module):
    """Readers ([CLS], or one token per gate) and X(b), through blocks of heads and lookups.

    At [CLS]: lookup(MHA(x_[CLS]; [CLS], X(b))). With gates: x ← x + MHA(x), x ← x + lookup(x) on
    every token and in every block, and e_1 of the last gate is the value. Every part is a leaf that
    can be looked at, changed and trained. It writes all tokens out; `Compiled.predict` does not.

    Args:
        written: every matrix by name (`Compiled.weights`).
        embedding: how bits become tokens.
        dtype: of the leaves; JAX's default precision if None.
    """

    tokens: Float[Array, "2 d"]
    positions: Positions
    readers: Float[Array, "readers d"]
    blocks: tuple[BooleanBlock, ...]
    embedding: Embedding = eqx.field(static=True)
    residual: bool = eqx.field(static=True)

    def __init__(self, written: dict[str, Any], embedding: Embedding, dtype: Any = None):
        dtype = jnp.zeros(()).dtype if dtype is None else jnp.dtype(dtype)
        weights = {name: jnp.asarray(each, dtype) for name, each in written.items()}
        self.tokens, self.embedding = weights["embedding.tokens"], embedding
        self.positions = Positions(weights["embedding.positions"])
        self.residual = weights["blocks.0.outer"].ndim == 2
        self.readers = weights["embedding.readers"]
        blocks: dict[int, dict[str, Array]] = {}
        for name, each in weights.items():
            kind, *rest = name.split(".")
            if kind == "blocks":
                blocks.setdefault(int(rest[0]), {})[rest[1]] = each
        self.blocks = tuple(BooleanBlock(blocks[number]) for number in sorted(blocks))

    def embed(self, bits: ArrayLike) -> Float[Array, "*batch N d"]:
        """The readers, then X(b)."""
        bits = as_bits(bits, len(self.positions.vectors), "BooleanTransformer")
        vectors = self.positions.vectors
        vectors = jnp.broadcast_to(vectors, (*bits.shape, vectors.shape[1]))
        tokens = self.embedding.embed(bits, self.tokens, vectors)
        readers = jnp.broadcast_to(self.readers, (*bits.shape[:-1], *self.readers.shape))
        return jnp.concatenate([readers, tokens], axis=-2)

    def features(self, bits: ArrayLike) -> Float[Array, "*batch features"]:
        """What [CLS], or the first gate, reads in the first block."""
        tokens = self.embed(bits)
        return self.blocks[0].heads(tokens[..., :1, :], tokens)[..., 0, :]

    def __call__(self, bits: ArrayLike) -> Float[Array, "*batch"]:
        """The value of the rule, shape (…, T) → (…)."""
        if not self.residual:
            return self.blocks[0].lookup(self.features(bits))
        stream = self.embed(bits)
        for block in self.blocks:
            stream = stream + block.heads(stream, stream)
            stream = stream + block.lookup(stream)
        return stream[..., len(self.readers) - 1, ONE_BIT]
