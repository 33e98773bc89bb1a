"""Lemma 4.3: how far a head moves with its score and its φ_in."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.edelman_constants import head_bound
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.networks.head import Head
from finetti.attention.networks.weights import as_weights
from finetti.core.forms import Form
from finetti.core.norms import sequence_norm


def head_perturbation(
    head: Head, other: Head, tokens: ArrayLike, query: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖f − f̂‖ ≤ C_Norm L_out B_in B_X ‖Score − Score^‖_∞ + L_out ‖φ_in − φ̂_in‖_{2,∞}

    Lemma 4.3, edelman2022; φ_out is that of ``head`` for both.

    Args:
        head, other: two heads, with scores and φ_in of their own.
        tokens: X, shape (T, d).
        query: z, shape (d_z,).
        form: "derived" (C_Norm = 1 for softmax) or "printed" (2).
    """
    owner = "head_perturbation"
    tokens = as_weights(tokens, "tokens", owner, "(T, d)", (None, None))
    query = as_weights(query, "query", owner, "(d_z,)", (None,))
    other = eqx.tree_at(lambda module: module.phi_out, other, head.phi_out)
    moved = jnp.linalg.norm(head(tokens, query) - other(tokens, query))
    scores = head.score(tokens, query[None]) - other.score(tokens, query[None])
    bound = head_bound(
        score_change=jnp.max(jnp.abs(scores)),
        value_change=sequence_norm(head.phi_in(tokens) - other.phi_in(tokens)),
        radius=sequence_norm(tokens),
        in_growth=head.in_growth,
        out_lipschitz=head.out_lipschitz,
        norm_lipschitz=head.norm_lipschitz(form),
    )
    return Perturbation(moved, bound, "Lemma 4.3, edelman2022", form)
