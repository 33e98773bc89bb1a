"""Several heads, added, and the same function in the layout of practice."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.modules.attention_module import Attention
from finetti.attention.modules.softmax import Softmax
from finetti.attention.networks.activations import Activation, as_activation
from finetti.attention.networks.weights import as_projections, draw_projections, promote
from finetti.core.conversion import as_array
from finetti.core.errors import InputError, UnsupportedError, bad_argument
from finetti.core.numbers import as_whole


class SeveralHeads(eqx.Module):
    """H heads attn(QW_q^h, XW_k^h, XW_v^h), in either layout of their weights."""

    attention: eqx.AbstractVar[Attention]
    activation: eqx.AbstractVar[Activation]

    def __call__(
        self,
        queries: ArrayLike,
        tokens: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "*batch Q d_out"]:
        """The layer's output.

        Args:
            queries: (\\*batch, Q, d), before the heads' query weights.
            tokens: (\\*batch, T, d).
            mask: boolean (\\*batch, T) or (\\*batch, Q, T), shared by the heads.
            is_causal: whether query t reads the tokens 0…t only.
        """
        reading = _arrange(queries, tokens, mask, *self._by_head())
        return self._join(self.attention(*reading, is_causal=is_causal))

    def posterior(
        self,
        queries: ArrayLike,
        tokens: ArrayLike,
        mask: ArrayLike | None = None,
        predictive: bool = False,
        *,
        is_causal: bool = False,
    ) -> tuple[Float[Array, "*batch Q d_out"], Float[Array, "*batch Q d_out"]]:
        """The layer's output and the variance of each coordinate, heads independent.

        Head h knows its value with variance s_h in every coordinate, so that output coordinate o
        has the variance Σ_h s_h‖W_o^h[:, o]‖². Needs `ConditionalMean` and no activation.
        """
        heads = self.summed()
        whole = heads.absorbed()
        if not isinstance(self.attention, ConditionalMean):
            raise UnsupportedError(
                f"{type(self.attention).__name__} attention has no variance. Use ConditionalMean, "
                "whose answer is a posterior."
            )
        reading = _arrange(queries, tokens, mask, *whole._by_head())
        mean, variance = self.attention.posterior(*reading, predictive, is_causal=is_causal)
        squares = jnp.ones((whole.n_heads, mean.shape[-1]), variance.dtype)
        if heads.output_weights is not None:
            squares = jnp.sum(heads.output_weights.astype(variance.dtype) ** 2, axis=1)
        return jnp.sum(mean, axis=-3), jnp.einsum("...hq,ho->...qo", variance, squares)

    @abc.abstractmethod
    def summed(self) -> "MultiHead":
        """The same function as a sum of heads."""

    @abc.abstractmethod
    def _by_head(self) -> tuple[Array, Array, Array]:
        """W_q, W_k and W_v with a leading axis of heads."""

    @abc.abstractmethod
    def _join(self, read: Float[Array, "*batch H Q v"]) -> Float[Array, "*batch Q d_out"]:
        """The output from what each head has read."""


class MultiHead(SeveralHeads):
    """The sum of H heads, Σ_h σ(attn(QW_q^h, XW_k^h, XW_v^h))W_o^h    (B.2), zhang2022

    With ``output_weights=None`` the heads are added as they are, as paper E prints it; with W_o
    and σ it is the sum of heads of A.5, edelman2022 (W_o = W_C). `concatenated` gives the same
    function in the layout of practice.

    Args:
        query_weights, key_weights: (H, d, k).
        value_weights: (H, d, v).
        output_weights: (H, v, d_out), or None for the identity.
        attention: any member of the family; `Softmax()` by default.
        activation: σ, between a head and its output weights.

    >>> import jax, jax.numpy as jnp
    >>> heads = MultiHead.init(jax.random.key(0), n_heads=2, dimension=8, head_dimension=4)
    >>> tokens = jax.random.normal(jax.random.key(1), (10, 8))
    >>> same = heads.concatenated()(tokens, tokens)
    >>> bool(jnp.allclose(heads(tokens, tokens), same, atol=1e-6))
    True
    """

    query_weights: Float[Array, "H d_q k"]
    key_weights: Float[Array, "H d k"]
    value_weights: Float[Array, "H d v"]
    output_weights: Float[Array, "H v d_out"] | None
    attention: Attention
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        query_weights: ArrayLike,
        key_weights: ArrayLike,
        value_weights: ArrayLike,
        output_weights: ArrayLike | None = None,
        attention: Attention | None = None,
        activation: str | Activation = "identity",
    ):
        weights = query_weights, key_weights, value_weights, output_weights
        axes = "(H, d, k)", "(H, d, v)", "(H, v, d_out)"
        self.query_weights, self.key_weights, self.value_weights, self.output_weights = (
            as_projections("MultiHead", axes, *weights, own_queries=True)
        )
        self.attention = Softmax() if attention is None else attention
        self.activation = as_activation(activation, "MultiHead")

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        n_heads: int,
        dimension: int,
        head_dimension: int | None = None,
        attention: Attention | None = None,
        activation: str | Activation = "identity",
    ) -> "MultiHead":
        """Independent N(0, 1/fan-in) weights; head_dimension is dimension / n_heads by default."""
        if head_dimension is None:
            if dimension % n_heads:
                requirement = f"a divisor of the dimension {dimension}"
                raise bad_argument("n_heads", "MultiHead.init", requirement, n_heads)
            head_dimension = dimension // n_heads
        weights = draw_projections(key, dimension, head_dimension, n_heads)
        return cls(*weights, attention, activation)

    @property
    def n_heads(self) -> int:
        """H."""
        return self.query_weights.shape[0]

    def heads(
        self,
        queries: ArrayLike,
        tokens: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "*batch H Q d_out"]:
        """What each head adds."""
        reading = _arrange(queries, tokens, mask, *self._by_head())
        return self._each(self.attention(*reading, is_causal=is_causal))

    def absorbed(self) -> "MultiHead":
        """The same function without output weights: W_v^h W_o^h for W_v^h, paper E's form."""
        if self.output_weights is None:
            return self
        if self.activation.name != "identity":
            raise InputError(
                f"MultiHead.absorbed needs the identity between a head and its output weights, "
                f"and here it is {self.activation.name}. Keep the output weights, or use "
                "`concatenated`, which has them."
            )
        values, outputs = promote(self.value_weights, self.output_weights)
        return MultiHead(
            self.query_weights, self.key_weights, values @ outputs, None, self.attention
        )

    def concatenated(self) -> "ConcatenatedHeads":
        """The same function as one wide projection: σ([head_1 … head_H])W_o."""
        n_heads, _, width = self.value_weights.shape
        if self.output_weights is None:
            identity = jnp.eye(width, dtype=self.value_weights.dtype)
            output_weights = jnp.tile(identity, (n_heads, 1))
        else:
            output_weights = self.output_weights.reshape(n_heads * width, -1)
        query, keys, values = (jnp.concatenate(list(each), axis=1) for each in self._by_head())
        settings = n_heads, self.attention, self.activation
        return ConcatenatedHeads(query, keys, values, output_weights, *settings)

    def summed(self) -> "MultiHead":
        """This one."""
        return self

    def _by_head(self) -> tuple[Array, Array, Array]:
        return self.query_weights, self.key_weights, self.value_weights

    def _each(self, read: Float[Array, "*batch H Q v"]) -> Float[Array, "*batch H Q d_out"]:
        if self.output_weights is None:
            return self.activation(read)
        read, output_weights = promote(read, self.output_weights)
        return jnp.einsum("...hqv,hvo->...hqo", self.activation(read), output_weights)

    def _join(self, read: Float[Array, "*batch H Q v"]) -> Float[Array, "*batch Q d_out"]:
        return jnp.sum(self._each(read), axis=-3)


class ConcatenatedHeads(SeveralHeads):
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
        self.n_heads = as_whole(n_heads, "n_heads", owner)
        weights = query_weights, key_weights, value_weights, output_weights
        axes = "(d, H·k)", "(d, H·v)", "(H·v, d_out)"
        weights = as_projections(owner, axes, *weights, own_queries=True)
        self.query_weights, self.key_weights, self.value_weights, self.output_weights = weights
        for name in ("query_weights", "value_weights"):
            wide = getattr(self, name)
            if wide.shape[1] % self.n_heads:
                requirement = f"with a number of columns that {self.n_heads} heads divide"
                raise bad_argument(name, owner, requirement, f"shape {wide.shape}")
        self.attention = Softmax() if attention is None else attention
        self.activation = as_activation(activation, owner)

    def summed(self) -> MultiHead:
        """The same function as a sum of heads."""
        outputs = self.output_weights.reshape(self.n_heads, -1, self.output_weights.shape[1])
        return MultiHead(*self._by_head(), outputs, self.attention, self.activation)

    def _by_head(self) -> tuple[Array, Array, Array]:
        query, keys, values = (
            wide.reshape(wide.shape[0], self.n_heads, -1).swapaxes(0, 1)
            for wide in (self.query_weights, self.key_weights, self.value_weights)
        )
        return query, keys, values

    def _join(self, read: Float[Array, "*batch H Q v"]) -> Float[Array, "*batch Q d_out"]:
        wide = jnp.moveaxis(read, -3, -2)  # (…, Q, H, v)
        wide = wide.reshape(*wide.shape[:-2], -1)
        wide, output_weights = promote(wide, self.output_weights)
        return self.activation(wide) @ output_weights


def _arrange(
    queries: ArrayLike, tokens: ArrayLike, mask: ArrayLike | None, *by_head: Array
) -> tuple[Array, Array, Array, Array | None]:
    """QW_q^h, XW_k^h, XW_v^h and the mask, for every head: the heads are one more batch axis."""
    owner, (n_heads, d_query, _), d = "MultiHead", by_head[0].shape, by_head[1].shape[1]
    queries, tokens = as_array(queries), as_array(tokens)
    if tokens.ndim < 2 or tokens.shape[-1] != d:
        raise bad_argument("tokens", owner, f"of shape (..., T, {d})", f"shape {tokens.shape}")
    *batch, length, _ = tokens.shape
    if list(queries.shape[:-2]) != batch or queries.ndim < 2 or queries.shape[-1] != d_query:
        requirement = f"of shape {(*batch, 'Q', d_query)}, with the batch axes of the tokens"
        raise bad_argument("queries", owner, requirement, f"shape {queries.shape}")
    if mask is not None:
        mask = as_array(mask)
        one, each = (*batch, length), (*batch, queries.shape[-2], length)
        if mask.shape not in (one, each):
            requirement = f"of shape {one} or {each}"
            raise bad_argument("mask", owner, requirement, f"shape {mask.shape}")
        shape = *batch, n_heads, *mask.shape[len(batch) :]
        mask = jnp.broadcast_to(jnp.expand_dims(mask, len(batch)), shape)
    queries, tokens, *weights = promote(queries, tokens, *by_head)
    query, keys, values = (
        jnp.einsum("...td,hdk->...htk", array, weight)
        for array, weight in zip((queries, tokens, tokens), weights, strict=True)
    )
    return query, keys, values, mask
