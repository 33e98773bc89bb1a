"""Lemma C.11: how far paper E's heads move with their weights."""

from jax.typing import ArrayLike

from finetti.attention.lipschitz.rbf_heads import checked_heads, head_changes, larger_norms
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.lipschitz.zhang_constants import heads_weight_bound
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.weights import as_weights
from finetti.core.forms import Form
from finetti.core.norms import sequence_norm


def heads_weight_perturbation(
    heads: MultiHead, other: MultiHead, tokens: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖MHA(X;W) − MHA(X;Ŵ)‖ ≤ RΣε_v + σ⁻²R³Σω_v(ω_q + ω_k)(ε_q + ε_k)   Lemma C.11, zhang2022

    ω are spectral norms (the larger of the two networks), ε those of the differences, R the longest
    token; r = 2. Printed: without σ⁻² and, wrongly, without ω_v (erratum 5).

    Args:
        heads, other: W and Ŵ, with RBF-form softmax attention of one bandwidth.
        tokens: X, shape (L, d); every token is a query.
        form: "derived" or "printed".
    """
    owner = "heads_weight_perturbation"
    tokens = as_weights(tokens, "tokens", owner, "(L, d)", (None, None))
    heads = checked_heads(heads, "heads", owner)
    other = checked_heads(other, "other", owner)
    norms = larger_norms(heads, other)
    value_changes, query_key_changes = head_changes(heads, other)
    bound = heads_weight_bound(
        list(value_changes),
        list(norms.query_key),
        list(query_key_changes),
        list(norms.values),
        sequence_norm(tokens),
        norms.bandwidth,
        form,
    )
    moved = sequence_norm(heads(tokens, tokens) - other(tokens, tokens))
    return Perturbation(moved, bound, "Lemma C.11, zhang2022", form)
