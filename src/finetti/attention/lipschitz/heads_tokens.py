"""Lemma C.13: how far paper E's heads move with their tokens."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.rbf_heads import checked_heads, head_norms
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.lipschitz.zhang_constants import heads_token_constant
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.weights import as_weights
from finetti.core.forms import Form
from finetti.core.norms import sequence_norm


def heads_token_perturbation(
    heads: MultiHead, tokens: ArrayLike, other: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖MHA(X;W) − MHA(X̂;W)‖ ≤ ρ‖X − X̂‖, ρ = Σω_v + σ⁻²R²Σ(ω_q + ω_k)²ω_v   C.13, zhang2022

    ω are spectral norms, R the longest token of both sequences; r = 2. Printed: without σ⁻².

    Args:
        heads: W, with RBF-form softmax attention.
        tokens, other: X and X̂, shape (L, d).
        form: "derived" or "printed".
    """
    owner = "heads_token_perturbation"
    tokens = as_weights(tokens, "tokens", owner, "(L, d)", (None, None))
    other = as_weights(other, "other", owner, "(L, d)", tokens.shape)
    heads = checked_heads(heads, "heads", owner)
    norms = head_norms(heads)
    radius = jnp.maximum(sequence_norm(tokens), sequence_norm(other))
    constant = heads_token_constant(
        list(norms.values), list(norms.query_key), radius, norms.bandwidth, form
    )
    moved = sequence_norm(heads(tokens, tokens) - heads(other, other))
    bound = constant * sequence_norm(tokens - other)
    return Perturbation(moved, bound, "Lemma C.13, zhang2022", form)
