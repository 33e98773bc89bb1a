"""The attention head in general: a score, a normalization, and a map on either side."""

import math

import equinox as eqx
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from finetti.attention.context_batch import as_mask
from finetti.attention.networks.activations import Activation
from finetti.attention.networks.head_parts import (
    BilinearScore,
    LinearMap,
    Normalization,
    Score,
    SoftmaxNormalization,
    TokenMap,
)
from finetti.attention.networks.weights import clear_masked, draw_projections
from finetti.core.arrays import check_finite, check_rank
from finetti.core.conversion import as_array
from finetti.core.errors import bad_argument
from finetti.core.forms import Form
from finetti.core.precision import widest_float


class Head(eqx.Module):
    """y = φ_out(φ_in(X)ᵀ Norm(Score(x_1, z), …, Score(x_T, z)))   Definition 3.2, edelman2022

    A Transformer head is `Head.transformer`: there Score(x, z) = zᵀW_QW_Kᵀx, φ_in(x) = W_Vᵀx,
    φ_out(x) = W_Cᵀσ(x), Norm = softmax. Any part can be replaced by another of its family.

    Args:
        score: Score(x, z).
        norm: Norm.
        phi_in: φ_in, applied to each token before it is read.
        phi_out: φ_out, applied to what was read.

    >>> import jax
    >>> head = Head.init(jax.random.key(0), dimension=8, head_dimension=4)
    >>> tokens = jax.random.normal(jax.random.key(1), (10, 8))
    >>> head(tokens, query=tokens).shape     # self-attention: every token is a query
    (10, 8)
    >>> head.norm_lipschitz(), head.norm_lipschitz("printed")
    (1.0, 2.0)
    """

    score: Score
    norm: Normalization
    phi_in: TokenMap
    phi_out: TokenMap

    @classmethod
    def transformer(
        cls,
        query_weights: ArrayLike,
        key_weights: ArrayLike,
        value_weights: ArrayLike,
        output_weights: ArrayLike,
        activation: str | Activation = "identity",
    ) -> "Head":
        """The Transformer head σ(softmax(zᵀW_QW_KᵀXᵀ)XW_V)W_C.

        Args:
            query_weights, key_weights: W_Q and W_K, shape (d, k).
            value_weights: W_V, shape (d, k_v).
            output_weights: W_C, shape (k_v, d_out).
            activation: σ, with σ(0) = 0.
        """
        phi_in, phi_out = LinearMap(value_weights), LinearMap(output_weights, activation)
        if phi_out.weights.shape[0] != phi_in.weights.shape[1]:
            width = phi_in.weights.shape[1]
            requirement = f"of shape (k_v = {width}, d_out), as `value_weights` has it"
            got = f"shape {phi_out.weights.shape}"
            raise bad_argument("output_weights", "Head.transformer", requirement, got)
        score = BilinearScore(query_weights, key_weights)
        return cls(score, SoftmaxNormalization(), phi_in, phi_out)

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        dimension: int,
        head_dimension: int,
        activation: str | Activation = "identity",
    ) -> "Head":
        """A Transformer head from R^d to R^d with independent N(0, 1/fan-in) weights."""
        return cls.transformer(*draw_projections(key, dimension, head_dimension), activation)

    def __call__(
        self, tokens: ArrayLike, query: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """y for every query.

        Args:
            tokens: X, shape (\\*batch, T, d).
            query: z, shape (\\*batch, \\*queries, d_z).
            mask: boolean, True where a token may be read, shape (\\*batch, T) for all queries alike
                or (\\*batch, \\*queries, T).
        """
        tokens, flat, lead = _arrange(tokens, query, mask)
        weights = self._weights(tokens, flat, lead, mask)
        out = self.phi_out(weights @ self.phi_in(tokens))
        return out.reshape(*lead, out.shape[-1])

    def weights(
        self, tokens: ArrayLike, query: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """Norm(Score(x_1, z), …, Score(x_T, z)), shape (\\*batch, \\*queries, T)."""
        tokens, flat, lead = _arrange(tokens, query, mask)
        weights = self._weights(tokens, flat, lead, mask)
        return weights.reshape(*lead, weights.shape[-1])

    def _weights(
        self, tokens: Array, flat: Array, lead: tuple[int, ...], mask: ArrayLike | None
    ) -> Array:
        return self.norm(self.score(tokens, flat), _arrange_mask(mask, tokens, flat, lead))

    @property
    def out_lipschitz(self) -> Float[Array, ""]:
        """L_out: ‖φ_out(a) − φ_out(b)‖ ≤ L_out‖a − b‖."""
        return self.phi_out.lipschitz

    @property
    def in_growth(self) -> Float[Array, ""]:
        """B_in: ‖φ_in(a)‖ ≤ B_in‖a‖."""
        return self.phi_in.growth

    def norm_lipschitz(self, form: Form = "derived") -> float:
        """C_Norm: ‖Norm(θ) − Norm(θ')‖₁ ≤ C_Norm‖θ − θ'‖_∞; softmax: 1, printed 2."""
        return self.norm.lipschitz(form)


def _arrange(
    tokens: ArrayLike, query: ArrayLike, mask: ArrayLike | None
) -> tuple[Array, Array, tuple[int, ...]]:
    """Tokens (…, T, d), queries (…, Q, d_z) and the query axes of the caller."""
    tokens, query = as_array(tokens), as_array(query)
    check_rank(tokens, 2, "(..., T, d)", "tokens", "Head")
    if tokens.shape[-2] == 0:
        raise bad_argument("tokens", "Head", "at least one token", f"shape {tokens.shape}")
    batch = tokens.shape[:-2]
    if query.ndim <= len(batch) or query.shape[: len(batch)] != batch:
        wanted = f"of shape {(*batch, '...', 'd_z')}, leading with the batch axes of the tokens"
        raise bad_argument("query", "Head", wanted, f"shape {query.shape}")
    tokens = clear_masked(tokens, mask)
    check_finite(tokens, "tokens", "Head")
    check_finite(query, "query", "Head")
    dtype, lead = widest_float(tokens, query), query.shape[:-1]
    flat = query.reshape(*batch, math.prod(lead[len(batch) :]), query.shape[-1])
    return tokens.astype(dtype), flat.astype(dtype), lead


def _arrange_mask(
    mask: ArrayLike | None, tokens: Array, flat: Array, lead: tuple[int, ...]
) -> Bool[Array, "*batch Q T"] | Bool[Array, "*batch 1 T"] | None:
    if mask is None:
        return None
    batch, length = tokens.shape[:-2], tokens.shape[-2]
    mask = as_mask("Head", mask, batch, lead, length, "token")
    if mask.shape == (*batch, length):
        return mask[..., None, :]
    return mask.reshape(*flat.shape[:-1], length)
