"""Paper E's perturbation lemmas: how far RBF-form softmax, heads and deep networks move.

``form`` is "derived", or "printed" for what the paper has. Two things that are compared have equal
shapes; a sequence of tokens is one without batch axes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.lipschitz import exchangeable_constants as constants
from finetti.attention.lipschitz.perturbation import Perturbation, as_tokens, layer_pairs
from finetti.attention.modules.smoother import KernelSmoother
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.residual_transformer import FeedForward, ResidualTransformer
from finetti.attention.networks.weight_arrays import as_weights, promote
from finetti.core.arguments import Form, check_form, check_positive
from finetti.core.arrays import is_concrete
from finetti.core.errors import InputError, bad_argument
from finetti.core.linalg.norms import sequence_norm, spectral
from finetti.kernels.rbf import RBF


def rbf_softmax_perturbation(
    query: ArrayLike,
    keys: ArrayLike,
    other_query: ArrayLike,
    other_keys: ArrayLike,
    bandwidth: ArrayLike,
    r: float = 2.0,
    form: Form = "derived",
) -> Perturbation:
    """‖softmax(q,K) − softmax(q̂,K̂)‖₁ ≤ c(‖q‖ + ‖K‖)‖K − K̂‖ + c‖K‖‖q − q̂‖   F.1, zhang2022

    softmax(q, K) is over −‖q − k‖²/(2σ²). Norms are ‖·‖_r and ‖·‖_{r,∞}, the larger of the two
    where both q and q̂ or K and K̂ could stand. Derived: c = σ⁻²·d_p^{max(0, 1−2/r)}, sharp for
    either part. Printed: c = 1 with ‖q‖ + ‖K‖ in both, for σ² = 2d_p^{1/s}.

    Args:
        query, other_query: q and q̂, shape (d_p,).
        keys, other_keys: K and K̂, shape (L, d_p).
        bandwidth: σ².
        r: the exponent of the norm, in [1, ∞].
    """
    owner = "rbf_softmax_perturbation"
    check_positive(bandwidth, "bandwidth", owner)
    keys = as_weights(keys, "keys", owner, "(L, d_p)", (None, None))
    other_keys = as_weights(other_keys, "other_keys", owner, "(L, d_p)", keys.shape)
    query = as_weights(query, "query", owner, "(d_p,)", keys.shape[1:])
    other_query = as_weights(other_query, "other_query", owner, "(d_p,)", keys.shape[1:])
    query, other_query, keys, other_keys = promote(query, other_query, keys, other_keys)

    def size(array: Any) -> Any:
        return sequence_norm(array if array.ndim == 2 else array[None], r)

    def weights(query: Any, keys: Any) -> Any:
        distances = jnp.sum((query[None] - keys) ** 2, axis=1)
        return jax.nn.softmax(-distances / (2 * bandwidth))

    moved = jnp.sum(jnp.abs(weights(query, keys) - weights(other_query, other_keys)))
    key_size = jnp.maximum(size(keys), size(other_keys))
    query_size = jnp.maximum(size(query), size(other_query))
    by_keys = (query_size + key_size) * size(keys - other_keys)
    reach = key_size if form == "derived" else query_size + key_size
    constant = constants.rbf_constant(bandwidth, keys.shape[1], r, form)
    bound = constant * (by_keys + reach * size(query - other_query))
    return Perturbation(moved, bound, "Lemma F.1, zhang2022", form)


def heads_weight_perturbation(
    heads: MultiHead, other: MultiHead, tokens: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖MHA(X;W) − MHA(X;Ŵ)‖ ≤ RΣε_v + σ⁻²R³Σω_v(ω_q + ω_k)(ε_q + ε_k)   Lemma C.11, zhang2022

    ω are spectral norms (the larger of the two networks), ε those of the differences, R the longest
    token; r = 2. Printed: without σ⁻² and, wrongly, without ω_v (erratum 5).

    Args:
        heads, other: W and Ŵ, with RBF-form softmax attention of one bandwidth.
        tokens: X, shape (L, d); every token is a query.
    """
    owner = "heads_weight_perturbation"
    tokens = as_tokens(tokens, "tokens", owner)
    heads, other = _absorbed(heads, "heads", owner), _absorbed(other, "other", owner)
    bound = _weight_bound(heads, other, _norms(heads, other), sequence_norm(tokens), form)
    moved = sequence_norm(heads(tokens, tokens) - other(tokens, tokens))
    return Perturbation(moved, bound, "Lemma C.11, zhang2022", form)


def heads_token_perturbation(
    heads: MultiHead, tokens: ArrayLike, other: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖MHA(X;W) − MHA(X̂;W)‖ ≤ ρ‖X − X̂‖, ρ = Σω_v + σ⁻²R²Σ(ω_q + ω_k)²ω_v   C.13, zhang2022

    ω are spectral norms, R the longest token of both sequences; r = 2. Printed: without σ⁻².

    Args:
        heads: W, with RBF-form softmax attention.
        tokens, other: X and X̂, shape (L, d).
    """
    owner = "heads_token_perturbation"
    tokens = as_tokens(tokens, "tokens", owner)
    other = as_tokens(other, "other", owner, tokens.shape)
    heads = _absorbed(heads, "heads", owner)
    radius = jnp.maximum(sequence_norm(tokens), sequence_norm(other))
    constant = _token_constant(_norms(heads), radius, form)
    moved = sequence_norm(heads(tokens, tokens) - heads(other, other))
    bound = constant * sequence_norm(tokens - other)
    return Perturbation(moved, bound, "Lemma C.13, zhang2022", form)


def residual_perturbation(
    network: ResidualTransformer,
    other: ResidualTransformer,
    tokens: ArrayLike,
    form: Form = "derived",
) -> Perturbation:
    """‖X_T − X̂_T‖ ≤ Σ_t (ρ̃_t ε_{t,a} + ε_{t,w}) Π_{τ>t} ρ̃_τ α̃_τ          Lemma C.14, zhang2022

    ε_{t,a} = (α^x ε^σ + α^σ ε^x)R_t for the feed-forward part, ε_{t,w} of Lemma C.11 and ρ̃ of
    Lemma C.13 for the heads, whose tokens are as long as α̃_tR_t. Printed: R_t there, and C.11
    without ω_v (errata 5 and 6).

    Args:
        network, other: two networks of equally many layers; norms are the larger of the two.
        tokens: X_0, shape (L, d).
    """
    owner = "residual_perturbation"
    check_form(form, owner)
    tokens = as_tokens(tokens, "tokens", owner)
    radius = sequence_norm(tokens)
    layers = []
    for layer, twin in layer_pairs(network.layers, other.layers, owner):
        heads = _absorbed(layer.heads, "network", owner)
        other_heads = _absorbed(twin.heads, "other", owner)
        norms = _norms(heads, other_heads)
        skips = [(part.skip, part.feed_forward.skip) for part in (layer, twin)]
        if skips[0] != skips[1]:
            raise bad_argument("other", owner, "a network with the same skip connections", skips[1])
        constant, change = _feed_forward(layer.feed_forward, twin.feed_forward)
        reach = constant * radius if form == "derived" else radius
        head_change = _weight_bound(heads, other_heads, norms, reach, form)
        head_constant = float(layer.skip) + _token_constant(norms, reach, form)
        layers.append((change * radius, head_change, constant, head_constant))
        growth = float(layer.skip) + jnp.sum(norms.values)
        radius = constants.residual_radii(radius, [constant], [growth])[-1]
    bound = constants.residual_deviation(*zip(*layers, strict=True))
    moved = sequence_norm(network(tokens) - other(tokens))
    return Perturbation(moved, bound, "Lemma C.14, zhang2022", form)


class _Norms(NamedTuple):
    """Spectral norms, one number per head, and σ²."""

    query_key: Float[Array, " H"]  # ω_q + ω_k
    values: Float[Array, " H"]  # ω_v
    bandwidth: Float[Array, ""]


def _absorbed(heads: MultiHead, argument: str, owner: str) -> MultiHead:
    """The heads without output weights; refused if they are not of paper E's kind."""
    kernel = heads.attention.kernel if isinstance(heads.attention, KernelSmoother) else None
    if not isinstance(kernel, RBF) or kernel.log_lengthscale.ndim:
        raise InputError(
            f"The `{argument}` argument of {owner} must use RBF-form softmax attention, as the "
            f"lemma does: MultiHead(..., attention=rbf_attention(head_dimension)). Got "
            f"{heads.attention} instead."
        )
    return heads.absorbed()


def _norms(heads: MultiHead, other: MultiHead | None = None) -> _Norms:
    """Of absorbed heads; of two, the larger of each norm, so that both are inside the class."""
    kernel = heads.attention.kernel  # pyright: ignore[reportAttributeAccessIssue]
    query_key = spectral(heads.query_weights) + spectral(heads.key_weights)
    values = spectral(heads.value_weights)
    if other is not None:
        others = _norms(other)
        bandwidths = jnp.exp(2 * kernel.log_lengthscale), others.bandwidth
        if all(map(is_concrete, bandwidths)) and bandwidths[0] != bandwidths[1]:
            raise InputError(
                "Heads whose weights are compared must have one bandwidth, as the lemma does. Got "
                f"σ² = {bandwidths[0]:.4g} and {bandwidths[1]:.4g}."
            )
        query_key = jnp.maximum(query_key, others.query_key)
        values = jnp.maximum(values, others.values)
    return _Norms(query_key, values, jnp.exp(2 * kernel.log_lengthscale))


def _weight_bound(
    heads: MultiHead, other: MultiHead, norms: _Norms, radius: Float[Array, ""], form: Form
) -> Float[Array, ""]:
    """ε_w of Lemma C.11 for tokens of length at most ``radius``."""
    query, keys, values = (
        spectral(getattr(heads, name) - getattr(other, name))
        for name in ("query_weights", "key_weights", "value_weights")
    )
    return constants.heads_weight_bound(
        values, norms.query_key, query + keys, norms.values, radius, norms.bandwidth, form
    )


def _token_constant(norms: _Norms, radius: Float[Array, ""], form: Form) -> Float[Array, ""]:
    """ρ of Lemma C.13."""
    return constants.heads_token_constant(
        norms.values, norms.query_key, radius, norms.bandwidth, form
    )


def _feed_forward(part: FeedForward, other: FeedForward) -> tuple[Any, Any]:
    """α̃ = 1 + α^xα^σ (without the 1 if there is no skip) and α^x ε^σ + α^σ ε^x."""
    inner = jnp.maximum(spectral(part.inner), spectral(other.inner))
    inner_change = spectral(part.inner - other.inner)
    if part.outer is None or other.outer is None:
        return float(part.skip) + inner, inner_change
    outer = jnp.maximum(spectral(part.outer), spectral(other.outer))
    outer_change = spectral(part.outer - other.outer)
    return float(part.skip) + inner * outer, inner * outer_change + outer * inner_change
