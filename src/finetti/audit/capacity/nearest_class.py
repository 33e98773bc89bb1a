"""The papers' classes that come nearest to a checkpoint, and the assumptions that it violates."""

import math
from collections.abc import Iterator

from finetti.audit.measures.measurements import Audit, HeadMeasures, LayerMeasures
from finetti.bounds.bound import NetworkShape
from finetti.bounds.exchangeability import FullHeadNorms, FullLayerNorms, FullTransformer
from finetti.bounds.exchangeability.layer_coverings import FullTransformerBound
from finetti.bounds.ours.block_components import log_slope
from finetti.bounds.sparse_variables import ProjectedLayerNorms, TransformerClass
from finetti.bounds.sparse_variables.transformer_theorems import ASSUMED_OF_THE_LAYERS
from finetti.core.errors import UnsupportedError
from finetti.core.numerics.extremes import largest_of

NEAREST_S = (
    "one head per layer, in every norm as large as the largest of that layer, W_VW_OW_in as its "
    "W_V and W_out as its W_C; tokens are projected onto the unit ball where this network has "
    "norms and residuals"
)
NEAREST_E = (
    "the same matrices in layers of a feed-forward part and heads with residuals, with "
    "softmax(−‖q − k‖²/(2√d_k)) as scores and without norms"
)


def _shape(audit: Audit) -> NetworkShape:
    normed = any(layer.gains for layer in audit.layers)
    trained = any("position" in name or name == "wpe" for name in audit.embeddings)
    return NetworkShape(
        n_layers=len(audit.layers) * audit.geometry.repeats,
        n_heads=audit.geometry.heads,
        positions="trained" if trained else None,
        normalization="layer_norm" if normed else "none",
        skips=True,
    )


def violated_assumptions(audit: Audit, paper: str) -> tuple[str, ...]:
    """What Theorem A.17 ("S") or paper E's theorems ("E") assume and this network violates."""
    shape = _shape(audit)
    assumes = ASSUMED_OF_THE_LAYERS if paper == "S" else FullTransformerBound.assumes
    failed = shape.failed(assumes, audit.design.normalization or "LayerNorm or RMSNorm")
    return (*failed, *_others(audit, paper))


def _others(audit: Audit, paper: str) -> Iterator[str]:
    layer = audit.layers[0]
    if paper == "E":
        yield "softmax over −‖q − k‖²/(2σ²), and here scores are q·k/√d_k"
        yield "a feed-forward part before the heads, and here it comes after them"
        if audit.design.activation != "relu" and "feed_in" in layer.matrices:
            yield f"ReLU, and here is {audit.design.activation or 'another activation'}"
    elif "feed_in" in layer.matrices:
        yield "one matrix after the activation, and here W_O and W_in come before it"
    if "feed_gate" in layer.matrices:
        yield "a feed-forward part without a gate, and here is one, which is left out"
    if audit.design.rotary:
        yield "scores that do not depend on positions, and here they rotate queries and keys"
    if any(name.endswith("bias") and not name.startswith("norm") for name in layer.vectors):
        yield "no biases, and here are some, which are left out"
    if audit.tables:
        yield "tokens that are given, and here they are rows of trained tables"
    if audit.geometry.repeats > 1:
        yield "layers with weights of their own, and here they share them; each is counted"


def projected_class(audit: Audit, readout_norm: float = 1.0) -> TransformerClass:
    """Theorem A.17's class that is nearest: `NEAREST_S`."""
    layers = tuple(_projected_layer(audit, layer) for layer in audit.layers)
    first = audit.layers[0]
    feeds = "feed_in" in first.matrices
    return TransformerClass(
        layers=layers * audit.geometry.repeats,
        width=audit.geometry.width,
        head_dimension=first.matrices["feed_in"].columns if feeds else audit.geometry.width,
        activation_lipschitz=math.exp(log_slope(audit.design.activation)) if feeds else 1.0,
        readout_norm=readout_norm,
    )


def _projected_layer(audit: Audit, layer: LayerMeasures) -> ProjectedLayerNorms:
    scale = audit.geometry.head_width**-0.5
    score, row = (
        scale * largest_of(_score_norm(audit, head, name) for head in layer.heads)
        for name in ("spectral_upper", "rows_2_inf")
    )
    norms = {"score_norm": score, "score_row_norm": row}
    if not math.isfinite(score):
        raise UnsupportedError(f"The norms of layer {layer.label} are too large for float64.")
    mixing = largest_of(head.value_output.spectral_upper for head in layer.heads)
    if "feed_in" not in layer.matrices:  # σ and W_C are the identity
        columns = largest_of(head.value_output.norm_2_inf for head in layer.heads)
        return ProjectedLayerNorms(value_norm=mixing, value_column_norm=columns, **norms)
    inner, outer = layer.matrices["feed_in"], layer.matrices["feed_out"]
    return ProjectedLayerNorms(
        value_norm=mixing * inner.spectral_upper,
        value_column_norm=mixing * inner.norm_2_inf,
        output_norm=outer.spectral_upper,
        output_column_norm=outer.norm_2_inf,
        **norms,
    )


def _score_norm(audit: Audit, head: HeadMeasures, name: str) -> float:
    """Of W_QW_Kᵀ; under rotary positions of W_QRW_Kᵀ, whatever R is."""
    if not audit.design.rotary:
        return getattr(head.query_key, name)
    return getattr(head.factors["query"], name) * head.factors["key"].spectral_upper


def residual_class(audit: Audit) -> FullTransformer:
    """Paper E's class that is nearest: `NEAREST_E`."""
    first = audit.layers[0].matrices
    width = audit.geometry.width
    return FullTransformer(
        width,
        first["feed_in"].columns if "feed_in" in first else width,
        audit.geometry.head_width,
        tuple(map(_residual_layer, audit.layers)) * audit.geometry.repeats,
        # −‖q − k‖²/(2√d_k) is q·k/√d_k up to what softmax does not see and ‖k‖²/(2√d_k).
        bandwidth=math.sqrt(audit.geometry.head_width),
    )


def _residual_layer(layer: LayerMeasures) -> FullLayerNorms:
    heads = tuple(
        FullHeadNorms(
            *(each.spectral_upper for each in _matrices(head)),
            *(each.frobenius for each in _matrices(head)),
        )
        for head in layer.heads
    )
    if "feed_in" not in layer.matrices:
        return FullLayerNorms(heads, 0.0, 0.0, 0.0, 0.0)
    inner, outer = layer.matrices["feed_in"], layer.matrices["feed_out"]
    norms = inner.spectral_upper, outer.spectral_upper, inner.frobenius, outer.frobenius
    return FullLayerNorms(heads, *norms)


def _matrices(head: HeadMeasures):
    return head.factors["query"], head.factors["key"], head.value_output
