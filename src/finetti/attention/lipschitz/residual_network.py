"""Lemma C.14: how far paper E's deep network moves with the weights of all its layers."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.rbf_heads import (
    HeadNorms,
    checked_heads,
    head_changes,
    larger_norms,
)
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.lipschitz.zhang_constants import (
    heads_token_constant,
    heads_weight_bound,
    residual_deviation,
    residual_radii,
)
from finetti.attention.networks.feed_forward import FeedForward
from finetti.attention.networks.residual_transformer import ResidualTransformer
from finetti.attention.networks.weights import as_weights
from finetti.core.errors import bad_argument
from finetti.core.forms import Form, check_form
from finetti.core.norms import sequence_norm, spectral


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
        form: "derived" or "printed".
    """
    owner = "residual_perturbation"
    check_form(form, owner)
    tokens = as_weights(tokens, "tokens", owner, "(L, d)", (None, None))
    if len(other.layers) != len(network.layers):
        requirement = f"a network of {len(network.layers)} layers"
        raise bad_argument("other", owner, requirement, len(other.layers))
    pairs = list(zip(network.layers, other.layers, strict=True))
    radius = sequence_norm(tokens)
    inner_constants, inner_errors, head_constants, head_errors = [], [], [], []
    for layer, twin in pairs:
        constant, change = _feed_forward(layer.feed_forward, twin.feed_forward)
        inner_constants.append(constant)
        inner_errors.append(change * radius)
        heads = checked_heads(layer.heads, "network", owner)
        other_heads = checked_heads(twin.heads, "other", owner)
        norms = larger_norms(heads, other_heads)
        reach = constant * radius if form == "derived" else radius
        values, query_keys = list(norms.values), list(norms.query_key)
        rho = heads_token_constant(values, query_keys, reach, norms.bandwidth, form)
        head_constants.append(float(layer.skip) + rho)
        head_errors.append(_heads(norms, head_changes(heads, other_heads), reach, form))
        radius = residual_radii(radius, [constant], [float(layer.skip) + jnp.sum(norms.values)])[-1]
    bound = residual_deviation(inner_errors, head_errors, inner_constants, head_constants)
    moved = sequence_norm(network(tokens) - other(tokens))
    return Perturbation(moved, bound, "Lemma C.14, zhang2022", form)


def _heads(norms: HeadNorms, changes: tuple[Any, Any], reach: Any, form: Form) -> Any:
    """ε_w of Lemma C.11 for tokens as long as ``reach``."""
    return heads_weight_bound(
        list(changes[0]),
        list(norms.query_key),
        list(changes[1]),
        list(norms.values),
        reach,
        norms.bandwidth,
        form,
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
