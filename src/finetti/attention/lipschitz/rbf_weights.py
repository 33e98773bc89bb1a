"""Lemma F.1: how far RBF-form softmax weights move with the query and the keys."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.lipschitz.zhang_constants import rbf_constant
from finetti.attention.networks.weights import alike, as_weights
from finetti.core.arrays import check_positive
from finetti.core.forms import Form
from finetti.core.norms import sequence_norm


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
        form: "derived" or "printed".
    """
    owner = "rbf_softmax_perturbation"
    check_positive(bandwidth, "bandwidth", owner)
    keys = as_weights(keys, "keys", owner, "(L, d_p)", (None, None))
    other_keys = as_weights(other_keys, "other_keys", owner, "(L, d_p)", keys.shape)
    query = as_weights(query, "query", owner, "(d_p,)", keys.shape[1:])
    other_query = as_weights(other_query, "other_query", owner, "(d_p,)", keys.shape[1:])
    query, other_query, keys, other_keys = alike(query, other_query, keys, other_keys)

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
    constant = rbf_constant(bandwidth, keys.shape[1], r, form)
    bound = constant * (by_keys + reach * size(query - other_query))
    return Perturbation(moved, bound, "Lemma F.1, zhang2022", form)
