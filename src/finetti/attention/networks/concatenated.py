"""Several heads beside each other, in the layout of practice."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.base import Attention
from finetti.attention.networks.activations import Activation, as_activation
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.reading import arrange_reading
from finetti.attention.networks.weights import alike, as_weights
from finetti.attention.softmax import Softmax
from finetti.core.errors import bad_argument
from finetti.kernels.geometry import as_count


class ConcatenatedHeads(eqx.Module):
    """σ([head_1 … head_H])W_o with head_h = attn(QW_q^h, XW_k^h, XW_v^h): the usual layer.

    Block h of each wide matrix belongs to head h. `summed` gives the same function as the sum of
    (B.2), zhang2022: a row block of W_o is the output matrix of its head.

    Args:
        query_weights, key_weights: (d, H·k).
        value_weights: (d, H·v).
        output_weights: (H·v, d_out).
        n_heads: H.
        attention: any member of the family; `Softmax()` by default.
        activation: σ, applied before W_o.
    """

    query_weights: Float[Array, "d Hk"]
    key_weights: Float[Array, "d Hk"]
    value_weights: Float[Array, "d Hv"]
    output_weights: Float[Array, "Hv d_out"]
    attention: Attention
    n_heads: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        query_weights: ArrayLike,
        key_weights: ArrayLike,
        value_weights: ArrayLike,
        output_weights: ArrayLike,
        n_heads: int,
        attention: Attention | None = None,
        activation: str | Activation = "identity",
    ):
        owner = "ConcatenatedHeads"
        self.n_heads = as_count(n_heads, "n_heads", owner)
        queries = as_weights(query_weights, "query_weights", owner, "(d, H·k)", (None, None))
        keys = as_weights(key_weights, "key_weights", owner, "(d, H·k)", (None, queries.shape[1]))
        values = as_weights(
            value_weights, "value_weights", owner, "(d, H·v)", (keys.shape[0], None)
        )
        for name, wide in (("query_weights", queries), ("value_weights", values)):
            if wide.shape[1] % self.n_heads:
                requirement = f"with a number of columns that {self.n_heads} heads divide"
                raise bad_argument(name, owner, requirement, f"shape {wide.shape}")
        self.output_weights = as_weights(
            output_weights, "output_weights", owner, "(H·v, d_out)", (values.shape[1], None)
        )
        self.query_weights, self.key_weights, self.value_weights = queries, keys, values
        self.attention = Softmax() if attention is None else attention
        self.activation = as_activation(activation, owner)

    def __call__(
        self, queries: ArrayLike, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch Q d_out"]:
        """The layer's output; arguments as in `MultiHead`."""
        weights = map(self._by_head, (self.query_weights, self.key_weights, self.value_weights))
        read = self.attention(*arrange_reading(queries, tokens, mask, *weights))
        beside = jnp.moveaxis(read, -3, -2)  # (…, Q, H, v)
        beside = beside.reshape(*beside.shape[:-2], -1)
        beside, output_weights = alike(beside, self.output_weights)
        return self.activation(beside) @ output_weights

    def posterior(
        self, queries: ArrayLike, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> tuple[Float[Array, "*batch Q d_out"], Float[Array, "*batch Q d_out"]]:
        """As `MultiHead.posterior`."""
        return self.summed().posterior(queries, tokens, mask)

    def summed(self) -> MultiHead:
        """The same function as a sum of heads."""
        return MultiHead(
            self._by_head(self.query_weights),
            self._by_head(self.key_weights),
            self._by_head(self.value_weights),
            self.output_weights.reshape(self.n_heads, -1, self.output_weights.shape[1]),
            self.attention,
            self.activation,
        )

    def _by_head(self, wide: Float[Array, "d Hk"]) -> Float[Array, "H d k"]:
        return wide.reshape(wide.shape[0], self.n_heads, -1).swapaxes(0, 1)
