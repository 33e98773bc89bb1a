"""The class base + Δ: what a fine-tuning asks for, where only the Δ have to be covered."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from finetti.audit.capacity.block_chain import COVERS, ChainBuilder, matrix_class
from finetti.audit.layouts.tensor_mapping import ATTENTION
from finetti.audit.measures.matrix_norms import MatrixMeasures
from finetti.audit.measures.measurements import Audit, LayerMeasures
from finetti.bounds import ours
from finetti.core.errors import bad_argument

Weights = TypeVar("Weights", ours.RowWeights, ours.GainWeights)
Place = tuple[str, str]  # the label of a layer ("" beside the layers), and a role


@dataclass(frozen=True)
class WeightDelta:
    """How far weights moved: Δ of a matrix in all its norms, or of a vector or table in one.

    Args:
        measured: of a matrix.
        norm: of a vector its length, of a gain the largest entry, of a table the longest row.
        rank: of Δ, if it was fixed before training, as that of LoRA.
        rank_before_rounding: of Δ up to the rounding of stored numbers, where that makes it larger,
            as for a LoRA that was merged into its base.
    """

    measured: MatrixMeasures | None = None
    norm: float | None = None
    rank: int | None = None
    rank_before_rounding: int | None = None


def tuned_network(
    base: Audit, moved: Mapping[Place, WeightDelta], readout_norm: float = 1.0
) -> ours.BlockNetwork:
    """The networks base + Δ with every Δ no larger than in ``moved``; what is not there is fixed.

    Args:
        base: the audit of the checkpoint that training began with.
        moved: by layer (as ``LayerMeasures.label``) and role: "query", "key", "value", "output",
            "feed_in", "feed_gate", "feed_out", their biases ("query_bias", …), norms
            ("norm_1_weight", "norm_1_bias", …); with "" for the layer, tables of embeddings by
            their names, "embedding_norm_weight", "projection_weight", "final_norm_weight", ….
        readout_norm: B_w of the new readout.
    """
    builder = _TunedBuilder(base, moved)
    network = builder.network(readout_norm)
    unknown = sorted(set(moved) - builder.seen)
    if unknown:
        layer, role = unknown[0]
        got = f"{role!r} of layer {layer!r}" if layer else f"{role!r} beside the layers"
        raise bad_argument("moved", "tuned_network", "weights that the base has", got)
    return network


class _TunedBuilder(ChainBuilder):
    """Weights that moved are W₀ + Δ with a fixed W₀, the others are fixed."""

    def __init__(self, base: Audit, moved: Mapping[Place, WeightDelta]) -> None:
        super().__init__(base, frozenset(COVERS["smallest"]))
        self.moved = moved
        self.seen: set[Place] = set()

    def _delta(self, layer: str, role: str) -> WeightDelta | None:
        self.seen.add((layer, role))
        return self.moved.get((layer, role))

    def _moved(self, layer: str, role: str, fixed: Weights) -> Weights:
        delta = self._delta(layer, role)
        if delta is None or not delta.norm:
            return replace(fixed, trained=False)
        return replace(fixed, norm=delta.norm * (1 + 1e-12), base_norm=fixed.norm)

    def matrix(self, layer: str, role: str, measured: MatrixMeasures) -> ours.MatrixWeights:
        """W₀ + Δ, or W₀."""
        sizes = measured.rows, measured.columns
        return self._matrix(layer, role, *sizes, measured.spectral_upper)

    def _matrix(
        self, layer: str, role: str, rows: int, columns: int, base_norm: float
    ) -> ours.MatrixWeights:
        delta = self._delta(layer, role)
        if delta is None or delta.measured is None or delta.measured.spectral_upper == 0:
            fixed: Any = {"norm": base_norm, "trained": False}
            return ours.MatrixWeights(rows=rows, columns=columns, **fixed)
        found = delta.measured
        if (found.rows, found.columns) != (rows, columns):
            got = f"{(found.rows, found.columns)} for {role} of layer {layer}"
            raise bad_argument("moved", "tuned_network", f"Δ of shape {(rows, columns)}", got)
        made = matrix_class(found, self.known, rank=delta.rank)
        return replace(made, base_norm=base_norm)

    def vector(
        self, layer: str, role: str, columns: int, norm: float | None
    ) -> ours.RowWeights | None:
        """b₀ + Δ, or b₀."""
        fixed = super().vector(layer, role, columns, norm)
        return None if fixed is None else self._moved(layer, role, fixed)

    def gain(self, layer: str, role: str, columns: int, norm: float) -> ours.GainWeights:
        """g₀ + Δ, or g₀."""
        return self._moved(layer, role, super().gain(layer, role, columns, norm))

    def table(self, role: str, measured: Mapping[str, float]) -> ours.RowWeights:
        """E₀ + Δ, or E₀."""
        return self._moved("", role, super().table(role, measured))

    def attention(self, layer: LayerMeasures) -> ours.Piece:
        """Return all heads from whole matrices, which is how Δ is given."""
        heads = self.audit.geometry
        made: dict[str, Any] = {}
        for role in ATTENTION:
            count = heads.heads if role == "query" else heads.kv_heads
            own = layer.heads[:: heads.heads // count]
            # No matrix is larger than its columns' parts together.
            size = math.hypot(*(head.factors[role].spectral_upper for head in own))
            inside = count * heads.head_width
            made[role] = self._matrix(layer.label, role, self.width, inside, size * (1 + 1e-12))
        made["output"] = self.matrix(layer.label, "output", layer.matrices["output"])
        for role in ("query", "key", "value", "output"):
            bias = f"{role}_bias"
            length = layer.vectors.get(bias)
            made[bias] = self.vector(layer.label, bias, made[role].columns, length)
        before = tuple(
            ours.PretrainedHeadNorms(
                **{role: head.factors[role].spectral_upper for role in ATTENTION},
                scores=head.query_key.spectral_upper,
                mixing=head.value_output.spectral_upper,
            )
            for head in layer.heads
        )
        shape = {"head_dimension": heads.head_width, "rotary": self.design.rotary}
        return ours.FineTunedHeads(**made, base_heads=before, **shape)
