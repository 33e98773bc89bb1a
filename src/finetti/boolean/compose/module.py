"""The network of gates as an Equinox module: residual blocks of attention and lookup."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.self_attention import Positions
from finetti.boolean.network.module import as_bits, rectified

if TYPE_CHECKING:
    from finetti.boolean.compose.composed import Composed


class GateBlock(eqx.Module):
    """x ← x + MHA(x),  x ← x + r(r(xW1 + b1)W2 + b2)W3, on every token."""

    heads: MultiHead
    inner: Float[Array, "d bumps"]
    inner_bias: Float[Array, " bumps"]
    middle: Float[Array, "bumps units"]
    middle_bias: Float[Array, " units"]
    outer: Float[Array, "units d"]

    def __init__(self, weights: dict[str, Array]):
        query, key = weights["query"], weights["key"]
        self.heads = MultiHead(query, key, weights["value"], weights["output"])
        self.inner, self.inner_bias = weights["inner"], weights["inner_bias"]
        self.middle, self.middle_bias = weights["middle"], weights["middle_bias"]
        self.outer = weights["outer"]

    def __call__(self, tokens: Float[Array, "*batch N d"]) -> Float[Array, "*batch N d"]:
        """The stream after this block."""
        tokens = tokens + self.heads(tokens, tokens)
        hidden = rectified(tokens, self.inner, self.inner_bias)
        hidden = rectified(hidden, self.middle, self.middle_bias)
        return tokens + hidden @ self.outer


class GateTransformer(eqx.Module):
    """Bits and gates as tokens, one `GateBlock` per level; the last gate's e_1 is the value.

    Args:
        composed: the network.
        dtype: of the leaves; JAX's default precision if None.
    """

    tokens: Float[Array, "2 d"]
    positions: Positions
    gates: Float[Array, "G d"]
    blocks: tuple[GateBlock, ...]

    def __init__(self, composed: "Composed", dtype: Any = None):
        dtype = jnp.zeros(()).dtype if dtype is None else jnp.dtype(dtype)
        weights = {name: jnp.asarray(each, dtype) for name, each in composed.weights.items()}
        self.tokens, self.gates = weights["embedding.tokens"], weights["embedding.gates"]
        self.positions = Positions(weights["embedding.positions"])
        blocks = []
        for number in range(composed.depth):
            start = f"blocks.{number}."
            own = {
                name.removeprefix(start): each
                for name, each in weights.items()
                if name.startswith(start)
            }
            blocks.append(GateBlock(own))
        self.blocks = tuple(blocks)

    def __call__(self, bits: ArrayLike) -> Float[Array, "*batch"]:
        """The value of the rule, shape (…, T) → (…)."""
        bits = as_bits(bits, len(self.positions.vectors), "GateTransformer")
        tokens = self.positions(self.tokens[bits.astype(int)])
        gates = jnp.broadcast_to(self.gates, (*bits.shape[:-1], *self.gates.shape))
        stream = jnp.concatenate([tokens, gates], axis=-2)
        for block in self.blocks:
            stream = block(stream)
        return stream[..., -1, 1]
