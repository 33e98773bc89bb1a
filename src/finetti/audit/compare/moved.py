"""Everything that a fine-tuning moved, also beside the matrices of the layers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.capacity.fine_tuning import Place, WeightDelta
from finetti.audit.compare.weight_changes import CheckpointChanges, MatrixChange
from finetti.audit.layouts.layout_table import read_layouts
from finetti.audit.layouts.tensor_mapping import MappedMatrix, map_checkpoint
from finetti.audit.measures.matrix_norms import MatrixMeasures, measure_matrix
from finetti.audit.readers.checkpoint_files import open_checkpoint
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.numerics.extremes import largest_of

BLOCK = 2**20  # entries of a table that are read at the same time


def moved_weights(
    source: Any,
    base: Any,
    changes: CheckpointChanges,
    layouts: str | Path | None = None,
) -> dict[Place, WeightDelta]:
    """How far which weights moved, for `tuned_network`: matrices, biases, norms and tables.

    Args:
        source, base: the two checkpoints.
        changes: of their matrices, by `compare_checkpoints`.
        layouts: as there.
    """
    table = read_layouts(layouts)
    mine, other = (map_checkpoint(open_checkpoint(each), table) for each in (source, base))
    found = {}
    for each in changes.matrices:
        if each.delta is not None:
            full = each.delta.rank == min(each.delta.rows, each.delta.columns)
            rank = None if full else each.delta.rank
            low = _rank_before_rounding(each, each.delta)
            found[each.layer, each.role] = WeightDelta(each.delta, None, rank, low)
    for one, two in zip(mine.layers, other.layers, strict=True):
        found |= _vectors(one.label, one.vectors, two.vectors)
    found |= _vectors("", mine.outer, other.outer)
    _alike(mine.embeddings, other.embeddings)
    for name, tensor in mine.embeddings.items():
        if longest := _longest_row(tensor, other.embeddings[name]):
            found["", name] = WeightDelta(norm=longest)
    return found


def _rank_before_rounding(change: MatrixChange, delta: MatrixMeasures) -> int | None:
    """The rank of Δ up to rounding, where factors of that rank would have fewer numbers than Δ."""
    rank = max(1, change.rank)
    fewer = rank * (delta.rows + delta.columns) < delta.rows * delta.columns
    return rank if fewer and rank < delta.rank else None


def _vectors(
    layer: str, mine: Mapping[str, MappedMatrix], base: Mapping[str, MappedMatrix]
) -> dict[Place, WeightDelta]:
    """Biases by their length, gains by the largest entry, a projection as a matrix."""
    _alike(mine, base)
    found = {}
    for role, mapped in mine.items():
        delta = _difference(mapped.tensor.name, mapped.read(), base[role].read())
        if not delta.any():
            continue
        if delta.ndim == 2:
            found[layer, role] = WeightDelta(measure_matrix(delta.T))
        elif role.endswith("_weight"):
            found[layer, role] = WeightDelta(norm=float(np.abs(delta).max()))
        else:
            found[layer, role] = WeightDelta(norm=measure_matrix(delta[None]).frobenius)
    return found


def _longest_row(mine: StoredTensor, base: StoredTensor) -> float:
    if mine.shape != base.shape:
        _difference(mine.name, np.empty(mine.shape), np.empty(base.shape))
    rows = max(1, BLOCK // mine.shape[1])
    pairs = zip(mine.blocks(rows), base.blocks(rows), strict=True)
    return largest_of(float(np.linalg.norm(new - old, axis=1).max()) for new, old in pairs)


def _alike(mine: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    if odd := sorted(set(mine) ^ set(base)):
        raise InputError(f"Only one of the checkpoint and its base has {', '.join(odd)}.")


def _difference(
    name: str, mine: NDArray[np.float64], base: NDArray[np.float64]
) -> NDArray[np.float64]:
    if mine.shape != base.shape:
        raise InputError(f"{name} has shape {mine.shape}, but {base.shape} in the base.")
    return mine - base
