"""What the lemmas on paper E's heads ask of a `MultiHead`."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.networks.multihead import MultiHead
from finetti.attention.smoother import KernelSmoother
from finetti.core.errors import InputError
from finetti.core.norms import spectral
from finetti.kernels.rbf import RBF


class HeadNorms(NamedTuple):
    """Spectral norms, one number per head, and σ²."""

    query_key: Float[Array, " H"]  # ω_q + ω_k
    values: Float[Array, " H"]  # ω_v
    bandwidth: Float[Array, ""]


def checked_heads(heads: MultiHead, argument: str, owner: str) -> MultiHead:
    """The heads without output weights; refused if they are not of paper E's kind."""
    kernel = heads.attention.kernel if isinstance(heads.attention, KernelSmoother) else None
    if not isinstance(kernel, RBF) or kernel.log_lengthscale.ndim:
        raise InputError(
            f"The `{argument}` argument of {owner} must use RBF-form softmax attention, as the "
            f"lemma does: MultiHead(..., attention=rbf_attention(head_dimension)). Got "
            f"{heads.attention} instead."
        )
    return heads.absorbed()


def head_norms(heads: MultiHead) -> HeadNorms:
    """ω_q + ω_k, ω_v and σ² of checked heads."""
    kernel = heads.attention.kernel  # pyright: ignore[reportAttributeAccessIssue]
    query_key = spectral(heads.query_weights) + spectral(heads.key_weights)
    return HeadNorms(query_key, spectral(heads.value_weights), jnp.exp(2 * kernel.log_lengthscale))


def larger_norms(heads: MultiHead, other: MultiHead) -> HeadNorms:
    """The larger of each norm, so that both are inside the class."""
    first, second = head_norms(heads), head_norms(other)
    return HeadNorms(
        jnp.maximum(first.query_key, second.query_key),
        jnp.maximum(first.values, second.values),
        first.bandwidth,
    )


def head_changes(
    heads: MultiHead, other: MultiHead
) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
    """ε_v and ε_q + ε_k of each head."""
    queries = spectral(heads.query_weights - other.query_weights)
    keys = spectral(heads.key_weights - other.key_weights)
    return spectral(heads.value_weights - other.value_weights), queries + keys
