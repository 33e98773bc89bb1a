"""Attention heads with weights of their own, one or several, added."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.context_batch import as_mask
from finetti.attention.modules.attention_module import Attention
from finetti.attention.modules.softmax import Softmax
from finetti.attention.networks.activations import Activation, as_activation
from finetti.attention.networks.weight_arrays import as_projections, draw_projections, promote
from finetti.core.arrays import as_array
from finetti.core.errors import InputError, UnsupportedError, bad_argument


class MultiHead(eqx.Module):
    """The sum of H heads, Σ_h σ(attn(QW_q^h, XW_k^h, XW_v^h))W_o^h    (B.2), zhang2022

    With ``output_weights=None`` the heads are added as they are, as paper E prints it; with W_o
    and σ it is the sum of heads of A.5, edelman2022 (W_o = W_C). It equals the layer of practice,
    σ([head_1 … head_H])W_o, where row block h of W_o is W_o^h. A head of Section 3.2, edelman2022,
    is the sum of one: `single`.

    Args:
        query_weights, key_weights: (H, d, k).
        value_weights: (H, d, v).
        output_weights: (H, v, d_out), or None for the identity.
        attention: any member of the family; `Softmax()` by default.
        activation: σ, between a head and its output weights.

    >>> import jax
    >>> heads = MultiHead.init(jax.random.key(0), n_heads=2, dimension=8, head_dimension=4)
    >>> tokens = jax.random.normal(jax.random.key(1), (10, 8))
    >>> heads(tokens, tokens).shape     # self-attention: every token is a query
    (10, 8)
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

    @classmethod
    def single(
        cls,
        query_weights: ArrayLike,
        key_weights: ArrayLike,
        value_weights: ArrayLike,
        output_weights: ArrayLike | None = None,
        attention: Attention | None = None,
        activation: str | Activation = "identity",
    ) -> "MultiHead":
        """One head from its matrices (d, k), (d, k), (d, v) and (v, d_out)."""
        matrices = query_weights, key_weights, value_weights
        query, keys, values = (as_array(matrix)[None] for matrix in matrices)
        output = None if output_weights is None else as_array(output_weights)[None]
        return cls(query, keys, values, output, attention, activation)

    @property
    def n_heads(self) -> int:
        """H."""
        return self.query_weights.shape[0]

    @property
    def score_matrices(self) -> Float[Array, "H d_q d"]:
        """M_h = W_q^h(W_k^h)ᵀ, on which alone the scores of softmax depend."""
        query_weights, key_weights = promote(self.query_weights, self.key_weights)
        return query_weights @ key_weights.swapaxes(-1, -2)

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
        return jnp.sum(self.heads(queries, tokens, mask, is_causal=is_causal), axis=-3)

    def heads(
        self,
        queries: ArrayLike,
        tokens: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "*batch H Q d_out"]:
        """What each head adds."""
        read = self.attention(*self._arrange(queries, tokens, mask), is_causal=is_causal)
        if self.output_weights is None:
            return self.activation(read)
        read, output_weights = promote(read, self.output_weights)
        return jnp.einsum("...hqv,hvo->...hqo", self.activation(read), output_weights)

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
        whole = self.absorbed()
        if not isinstance(self.attention, ConditionalMean):
            raise UnsupportedError(
                f"{type(self.attention).__name__} attention has no variance. Use ConditionalMean, "
                "whose answer is a posterior."
            )
        reading = whole._arrange(queries, tokens, mask)
        mean, variance = self.attention.posterior(*reading, predictive, is_causal=is_causal)
        squares = jnp.ones((whole.n_heads, mean.shape[-1]), variance.dtype)
        if self.output_weights is not None:
            squares = jnp.sum(self.output_weights.astype(variance.dtype) ** 2, axis=1)
        return jnp.sum(mean, axis=-3), jnp.einsum("...hq,ho->...qo", variance, squares)

    def absorbed(self) -> "MultiHead":
        """The same function without output weights: W_v^h W_o^h for W_v^h, paper E's form."""
        if self.output_weights is None:
            return self
        if self.activation.name != "identity":
            raise InputError(
                f"MultiHead.absorbed needs the identity between a head and its output weights, "
                f"and here it is {self.activation.name}. Keep the output weights."
            )
        values, outputs = promote(self.value_weights, self.output_weights)
        return MultiHead(
            self.query_weights, self.key_weights, values @ outputs, None, self.attention
        )

    def _arrange(
        self, queries: ArrayLike, tokens: ArrayLike, mask: ArrayLike | None
    ) -> tuple[Array, Array, Array, Array | None]:
        """QW_q^h, XW_k^h, XW_v^h and the mask of every head: the heads are one more batch axis."""
        owner, d = "MultiHead", self.key_weights.shape[1]
        queries, tokens = as_array(queries), as_array(tokens)
        if tokens.ndim < 2 or tokens.shape[-1] != d:
            raise bad_argument("tokens", owner, f"of shape (..., T, {d})", f"shape {tokens.shape}")
        *batch, length, _ = tokens.shape
        wanted = (*batch, "Q", self.query_weights.shape[1])
        fits = queries.ndim == len(wanted) and queries.shape[-1] == wanted[-1]
        if not fits or list(queries.shape[:-2]) != batch:
            requirement = f"of shape {wanted}, with the batch axes of the tokens"
            raise bad_argument("queries", owner, requirement, f"shape {queries.shape}")
        if mask is not None:
            mask = as_mask(owner, mask, tuple(batch), queries.shape[:-1], length, "token")
            shape = *batch, self.n_heads, *mask.shape[len(batch) :]
            mask = jnp.broadcast_to(jnp.expand_dims(mask, len(batch)), shape)
        weights = self.query_weights, self.key_weights, self.value_weights
        queries, tokens, *weights = promote(queries, tokens, *weights)
        query, keys, values = (
            jnp.einsum("...td,hdk->...htk", array, weight)
            for array, weight in zip((queries, tokens, tokens), weights, strict=True)
        )
        return query, keys, values, mask
