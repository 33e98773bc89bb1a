"""Theorem 5.3 with all constants, at the norms of a network's class."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from finetti.attention import KernelSmoother, LinearMap
from finetti.bounds import BoundValue, Sample
from finetti.bounds.exchangeability import SingleAttention, SingleRisk, matrix_norms
from finetti.core.errors import UnsupportedError
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.kernels import RBF
from finetti.models.model import TrainedNetwork
from finetti.risk.minimization import as_encoded, predictions
from finetti.risk.networks.attention_network import AttentionNetwork

MEASURED = (
    "The norms are those of the trained network: Theorem 5.3 speaks about a class that is fixed "
    "before the sample is seen. Give the network limits=NormLimits(…)."
)
SEEN = (
    "The longest token and the longest answer are those of the sample; where a world has longer "
    "ones, Theorem 5.3 is about this world cut off there."
)


def attention_class(network: AttentionNetwork) -> SingleAttention:
    """F_attn of Assumption 5.1: the limits of a network, or its norms where it has none.

    A linear aggregation acts on values that attention averages, so it counts as part of them:
    Wᵀattn(q, K, V) = attn(q, K, VW). Refused where Theorem 5.3 has no word on the network.
    """
    if not isinstance(network, AttentionNetwork):
        known = isinstance(network, TrainedNetwork)
        name = network.model.name if known else type(network).__name__
        raise UnsupportedError(f"Theorem 5.3 is about AttentionNetwork, and this is {name}.")
    if not isinstance(network.aggregation, LinearMap):
        raise UnsupportedError(
            "Theorem 5.3 covers an aggregation that is learned only where it is linear: then it is "
            "part of the values."
        )
    width = network.key_weights.shape[1]
    attention = network.attention
    kernel = attention.kernel if isinstance(attention, KernelSmoother) else None
    if not isinstance(kernel, RBF) or not _has_bandwidth(kernel, width):
        raise UnsupportedError(
            f"Theorem 5.3 assumes softmax in the RBF form (5.4) with the fixed bandwidth d_p = "
            f"{width}, and this network reads by {attention}. Take the default attention."
        )
    hidden = network.feed_forward.out_dimension
    dimension = max(network.token_dimension, hidden, network.aggregation.weights.shape[1])
    if network.limits is not None:
        limits = network.limits
        rank = min(hidden, max(width, network.aggregation.weights.shape[1]))
        scale = largest_of(1.0, limits.aggregation)
        norms = (
            limits.attention * scale,
            smallest_of(limits.attention_size, limits.attention * math.sqrt(rank)) * scale,
            limits.feed_forward,
            smallest_of(
                limits.feed_forward_size,
                limits.feed_forward * math.sqrt(min(network.token_dimension, hidden)),
            ),
        )
        if not all(map(math.isfinite, norms)) or not math.isfinite(limits.output):
            raise UnsupportedError(
                "Theorem 5.3 needs every limit of Assumption 5.1, and an output of limited length: "
                "give NormLimits its `attention`, `feed_forward` and `output`."
            )
        return SingleAttention(dimension, width, *norms)
    values = np.asarray(network.value_weights, np.float64) @ np.asarray(
        network.aggregation.weights, np.float64
    )
    each = [matrix_norms(m) for m in (network.query_weights, network.key_weights, values)]
    inner = matrix_norms(network.feed_forward.inner)
    norms = largest_of(norm for norm, _ in each), largest_of(size for _, size in each), *inner
    return SingleAttention(dimension, width, *norms)


def risk_bound(network: Any, data: Any, *, delta: float = 0.05) -> BoundValue:
    """E_gen ≤ b(2R̂ + 3√(log(4/δ)/(2n)) + √(log(2/δ)/(2n))), b the range of the loss

    For ‖y‖, ‖f‖ ≤ 1 the squared loss has b = 4.

    Args:
        network: an `AttentionNetwork`, best with limits.
        data: the sample it was trained on.
        delta: δ, the probability with which the bound may fail.

    Reference: Theorem 5.3 and Theorem C.4, zhang2022; the constants follow from Lemma C.7.
    """
    data = as_encoded(data, "risk_bound")
    bound = SingleRisk(attention_class(network))
    tokens = np.linalg.norm(data.tokens, axis=-1).max()
    longest = largest_of(tokens, np.linalg.norm(data.mask_token, axis=-1).max())
    answer = float(np.linalg.norm(data.target, axis=-1).max())
    notes = [SEEN]
    if network.limits is None:
        notes.append(MEASURED)
        output = float(np.linalg.norm(predictions(network, data), axis=-1).max())
    else:
        output = network.limits.output
    sample = Sample(
        len(data.tokens),
        data.tokens.shape[1],
        input_norm=float(longest),
        loss_lipschitz=2 * (answer + output),
        loss_bound=(answer + output) ** 2,
        delta=delta,
    )
    value = bound.evaluate(sample)
    return replace(value, notes=(*value.notes, *notes))


def _has_bandwidth(kernel: RBF, width: int) -> bool:
    lengthscale = np.asarray(kernel.lengthscale, np.float64)
    return lengthscale.ndim == 0 and abs(float(lengthscale) ** 2 / width - 1) < 1e-5
