"""What a fine-tuning moved: a checkpoint and its base, weight by weight."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.capacity.fine_tuning import Place, WeightDelta
from finetti.audit.checkpoint import Checkpoint
from finetti.audit.layouts.tensor_mapping import OUTSIDE
from finetti.audit.measures.matrix_norms import (
    MatrixMeasures,
    measure_matrix,
    measure_product,
    measure_spectrum,
)
from finetti.audit.measures.weight_readings import OnProgress, WeightReading, walk_weights
from finetti.audit.readers.number_formats import unit_roundoff
from finetti.audit.readers.stored_tensor import StoredTensor, tensor_by_name
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of
from finetti.core.plain_data import field_values, to_plain
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MatrixChange:
    """Δ = W − W₀ of one matrix.

    ``relative`` is ‖Δ‖_F/‖W₀‖_F, None where W₀ = 0. ``rank`` counts the singular values of Δ that
    exceed u(‖W‖_F + ‖W₀‖_F), which storing numbers with relative error u cannot explain (Weyl).
    ``delta`` has the norms of Δ, None where nothing moved.
    """

    layer: str
    role: str
    relative: float | None
    rank: int
    delta: MatrixMeasures | None


@dataclass(frozen=True)
class CheckpointChanges(Displayable):
    """What moved between a base and a checkpoint, in the order of the layers.

    ``elsewhere`` names parameters that the table does not know and that are new or differ, such as
    a pooler: they are not measured, and no part of base + Δ. ``deltas`` are all weights that moved,
    by layer and role, for `measure_capacity`.
    """

    name: str
    base: str
    matrices: tuple[MatrixChange, ...]
    elsewhere: tuple[str, ...] = ()
    deltas: Mapping[Place, WeightDelta] = field(default_factory=dict, repr=False)

    @property
    def moved(self) -> tuple[MatrixChange, ...]:
        """Return the matrices in which any number differs, those that moved most first."""
        found = [each for each in self.matrices if each.delta is not None]
        return tuple(sorted(found, key=_relative_change, reverse=True))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(field_values(self))

    def __card__(self) -> Card:
        rows = []
        for each in self.moved:
            assert each.delta is not None
            percent = None if each.relative is None else 100 * each.relative
            sizes = (each.delta.spectral, each.delta.frobenius, each.delta.nuclear)
            rows.append((each.layer, each.role, percent, each.rank, *sizes))
        columns = ("layer", "matrix", "moved by %", "rank of Δ", "‖Δ‖", "‖Δ‖_F", "nuclear")
        count = f"{len(rows)} of {len(self.matrices)} matrices"
        table = Table("What moved, in the Frobenius norm", columns, tuple(rows))
        fields = (("base", self.base), ("moved", count))
        notes = (self.note,) if self.note else ()
        return Card(f"Changes of {self.name}", fields, (table,) if rows else (), notes)

    @property
    def note(self) -> str:
        """Return what else moved; empty if nothing did."""
        if not self.elsewhere:
            return ""
        names = ", ".join(self.elsewhere)
        return f"Also changed, not measured, and no part of base + Δ: {names}."


def _relative_change(change: MatrixChange) -> float:
    return math.inf if change.relative is None else change.relative


def compare_checkpoints(
    checkpoint: Checkpoint, *, on_progress: OnProgress | None = None
) -> CheckpointChanges:
    """Return which weights moved since the base, by how much, and in how many directions.

    The Δ of a LoRA adapter is measured by its factors.

    Args:
        checkpoint: of `open_checkpoint` with a ``base``.
        on_progress: called with tensors done, tensors in all, and the one that is next.

    >>> from finetti.audit import open_checkpoint
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    >>> old = {f"layers.0.self_attn.{k}": rng.normal(size=v) for k, v in shapes.items()}
    >>> step = np.outer(rng.normal(size=4), rng.normal(size=4))
    >>> name = "layers.0.self_attn.out_proj.weight"
    >>> tuned = open_checkpoint(old | {name: old[name] + step}, base=old, heads=2)
    >>> [(each.role, each.rank) for each in compare_checkpoints(tuned).moved]
    [('output', 1)]
    """
    comparison = WeightComparison(checkpoint)
    walk_weights(checkpoint, comparison.add, with_base=True, on_progress=on_progress)
    return comparison.changes()


class WeightComparison:
    """How far the weights that were read so far moved from those of the base."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        if checkpoint.base is None:
            raise bad_argument(
                "checkpoint", "compare_checkpoints", "opened with a base", checkpoint.name
            )
        self.checkpoint, self.base = checkpoint, checkpoint.base
        layers = zip(checkpoint.network.layers, self.base.network.layers, strict=True)
        self.layers = {layer.label: (layer, before) for layer, before in layers}
        self.matrices: list[MatrixChange] = []
        self.deltas: dict[Place, WeightDelta] = {}

    def add(self, mine: WeightReading, base: WeightReading | None) -> None:
        """Compare what was read."""
        assert base is not None
        if mine.part == "tables":
            self._add_rows(mine.weights, base.weights)
            return
        for role, new in mine.weights.items():
            if mine.part == "matrices":
                self._add_matrix(mine.label, role, new, base.weights[role])
            else:
                self._add_vector((mine.label, role), new - base.weights[role])

    def _add_matrix(self, label: str, role: str, new: Array, old: Array) -> None:
        layer, before = self.layers[label]
        step = self.checkpoint.steps.get((layer.number, role))
        if np.array_equal(new, old):
            self.matrices.append(MatrixChange(label, role, 0.0, 0, None))
            return
        before_norm = float(np.linalg.norm(old))
        if step is not None:
            delta = measure_product(*step.read())
            rank = delta.rank
        else:
            kinds = (each.weights[role].tensor.kind for each in (layer, before))
            unit = largest_of(map(unit_roundoff, kinds))
            delta, values = measure_spectrum((new - old).T)
            rank = int((values > unit * (float(np.linalg.norm(new)) + before_norm)).sum())
        relative = delta.frobenius / before_norm if before_norm else None
        self.matrices.append(MatrixChange(label, role, relative, rank, delta))
        full = delta.rank == min(delta.rows, delta.columns)
        self.deltas[label, role] = WeightDelta(
            delta, None, None if full else delta.rank, _rank_before_rounding(rank, delta)
        )

    def _add_vector(self, place: Place, delta: Array) -> None:
        """Biases by their length, gains by the largest entry, a projection as a matrix."""
        if not delta.any():
            return
        if delta.ndim == 2:
            self.deltas[place] = WeightDelta(measure_matrix(delta.T))
        elif place[1].endswith("_weight"):
            self.deltas[place] = WeightDelta(norm=float(np.abs(delta).max()))
        else:
            self.deltas[place] = WeightDelta(norm=math.hypot(*delta.tolist()))

    def _add_rows(self, mine: dict[str, Array], base: dict[str, Array]) -> None:
        """Tables of embeddings by their longest row."""
        for name in set(mine) & set(base) - {"unembedding"}:
            longest = float(np.linalg.norm(mine[name] - base[name], axis=1).max())
            if longest > (self.deltas.get(("", name), WeightDelta()).norm or 0.0):
                self.deltas["", name] = WeightDelta(norm=longest)

    def changes(self) -> CheckpointChanges:
        """Return all that moved; everything was read."""
        outside = tuple(_unmapped_changes(self.checkpoint, self.base))
        matrices = tuple(self.matrices)
        return CheckpointChanges(
            self.checkpoint.name, self.base.name, matrices, outside, self.deltas
        )


def _rank_before_rounding(rank: int, delta: MatrixMeasures) -> int | None:
    """The rank of Δ up to rounding, where factors of that rank would have fewer numbers than Δ."""
    low = max(1, rank)
    fewer = low * (delta.rows + delta.columns) < delta.rows * delta.columns
    return low if fewer and low < delta.rank else None


def _unmapped_changes(checkpoint: Checkpoint, base: Checkpoint) -> Iterator[str]:
    """Parameters outside the layers that are new, or differ."""
    for name, why in checkpoint.network.skipped.items():
        if why == OUTSIDE:
            old = tensor_by_name(name, base.tensors)
            if old is None or _differ(checkpoint.tensors[name], old):
                yield name


def _differ(mine: StoredTensor, other: StoredTensor) -> bool:
    """Whether any number differs; whole numbers (of positions, say) are compared as stored."""
    if mine.shape != other.shape:
        return True
    if mine.kind == other.kind:
        return not np.array_equal(mine.load(), other.load())
    real = mine.is_real and other.is_real
    return not (real and np.array_equal(mine.read(), other.read()))
