"""The smallest class of paper E's kind that contains given weights. Needs no JAX."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from finetti.bounds.exchangeability.residual_class import (
    FullHeadNorms,
    FullLayerNorms,
    FullTransformer,
)
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.norms import norm_pq, operator_norm
from finetti.core.numbers import smallest_of


def matrix_norms(weights: Any, exponent: float = 2.0) -> tuple[float, float]:
    """ω and R of a matrix that acts on tokens in rows, x ↦ xW: ‖W^⊤‖_{r→r} and ‖W^⊤‖_{r,s}.

    ‖xW‖_r ≤ ω‖x‖_r, and ω ≤ R. For r other than 1, 2 and ∞ ω is the best proven upper bound.

    >>> matrix_norms([[3.0, 0.0], [0.0, 4.0]])
    (4.0, 5.0)
    """
    matrix = np.asarray(weights, dtype=np.float64).T
    dual = math.inf if exponent == 1 else 1.0 if exponent == math.inf else exponent / (exponent - 1)
    size = float(norm_pq(matrix, exponent, dual))
    return smallest_of(operator_norm(matrix, exponent, exponent).upper, size), size


def measure_layer(
    inner: Any,
    outer: Any,
    query_weights: Sequence[Any] | Any,
    key_weights: Sequence[Any] | Any,
    value_weights: Sequence[Any] | Any,
    *,
    exponent: float = 2.0,
    feed_forward_skip: bool = True,
    attention_skip: bool = True,
) -> FullLayerNorms:
    """The norms of a layer from its arrays.

    Args:
        inner, outer: A^x (d, d_σ) and A^σ (d_σ, d), or None for the latter.
        query_weights, key_weights, value_weights: one matrix per head: (H, d, d_p) and (H, d, d).
        exponent: r.
        feed_forward_skip, attention_skip: as in `FullLayerNorms`.
    """
    heads = []
    for matrices in zip(query_weights, key_weights, value_weights, strict=True):
        norms = [matrix_norms(matrix, exponent) for matrix in matrices]
        heads.append(FullHeadNorms(*(norm for norm, _ in norms), *(size for _, size in norms)))
    inner_norm, inner_size = matrix_norms(inner, exponent)
    outer_norm, outer_size = (None, None) if outer is None else matrix_norms(outer, exponent)
    norms = inner_norm, outer_norm, inner_size, outer_size
    return FullLayerNorms(tuple(heads), *norms, feed_forward_skip, attention_skip)


def measure_network(network: Any, exponent: float = 2.0) -> FullTransformer:
    """The class of a `finetti.attention` ResidualTransformer, or of anything built like it.

    Args:
        network: has ``layers``, each with ``feed_forward`` (``inner``, ``outer``, ``skip``),
            ``heads`` (``query_weights``, ``key_weights``, ``value_weights``, ``output_weights``,
            ``attention``) and ``skip``.
        exponent: r of the norms.
    """
    layers = getattr(network, "layers", None)
    if not layers or not all(hasattr(layer, "feed_forward") for layer in layers):
        raise UnsupportedError(
            "Paper E bounds networks of feed-forward and attention layers, as ResidualTransformer "
            f"has them, and this is a {type(network).__name__}. Nearest bound: S-thm-A.17, for a "
            "ProjectedTransformer; or give the arrays to `measure_layer`."
        )
    measured = []
    for layer in layers:
        part, heads = layer.feed_forward, layer.heads
        arrays = part.inner, part.outer, heads.query_weights, heads.key_weights, _values(heads)
        skips = {"feed_forward_skip": part.skip, "attention_skip": layer.skip}
        measured.append(measure_layer(*arrays, exponent=exponent, **skips))
    widths = [_bandwidth(layer.heads.attention) for layer in layers]
    inner = np.asarray(layers[0].feed_forward.inner)
    shapes = [np.asarray(_values(layer.heads)).shape for layer in layers]
    if any(shape[-1] != inner.shape[0] or shape[-2] != inner.shape[0] for shape in shapes):
        requirement = f"a network that keeps the dimension {inner.shape[0]}"
        raise bad_argument("network", "measure_network", requirement, f"values {shapes}")
    return FullTransformer(
        inner.shape[0],
        max(np.asarray(layer.feed_forward.inner).shape[1] for layer in layers),
        max(np.asarray(layer.heads.query_weights).shape[2] for layer in layers),
        tuple(measured),
        exponent=exponent,
        bandwidth=min(widths),
    )


def _values(heads: Any) -> np.ndarray:
    """W_v, or W_vW_o where there are output weights: paper E adds the heads as they are."""
    values, outputs = np.asarray(heads.value_weights), getattr(heads, "output_weights", None)
    if outputs is None:
        return values
    if getattr(heads.activation, "name", heads.activation) != "identity":
        raise UnsupportedError(
            "Paper E has nothing between a head and its output weights, and this network has an "
            "activation there. Nearest bound: S-thm-A.17."
        )
    return np.asarray(values, np.float64) @ np.asarray(outputs, np.float64)


def _bandwidth(attention: Any) -> float:
    """σ² of RBF-form softmax attention; anything else is refused."""
    kernel = getattr(attention, "kernel", None)
    lengthscale = getattr(kernel, "log_lengthscale", None)
    if type(kernel).__name__ != "RBF" or lengthscale is None or np.ndim(lengthscale):
        raise UnsupportedError(
            "Paper E assumes softmax over −‖q − k‖²/(2σ²) with one σ, and these heads use "
            f"{type(attention).__name__}. Take attention=rbf_attention(head_dimension), which is "
            "softmax(q·k/σ²) on keys of equal length. Nearest bound: S-thm-A.17."
        )
    return float(np.exp(2 * np.asarray(lengthscale, np.float64)))
