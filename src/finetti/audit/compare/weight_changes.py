"""What a fine-tuning moved: two checkpoints of one layout, matrix by matrix."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from finetti.audit.layouts.layout_table import ROLES
from finetti.audit.layouts.tensor_mapping import OUTSIDE, MappedLayer, MappedNetwork
from finetti.audit.lora_checkpoint import AdaptedCheckpoint, MatrixStep, open_tuned, tensor_by_name
from finetti.audit.measures.angles import leading_angle
from finetti.audit.measures.checkpoint_audit import WIDE
from finetti.audit.measures.matrix_norms import MatrixMeasures, measure_product, measure_spectrum
from finetti.audit.proven import prove_checkpoint
from finetti.audit.readers.number_formats import ROUNDING
from finetti.audit.readers.stored_tensor import Checkpoint, StoredTensor
from finetti.core.errors import InputError
from finetti.core.process_tuning import limit_threads
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable


@dataclass(frozen=True)
class MatrixChange:
    """Δ = W − W₀ of one matrix.

    ``relative`` is ‖Δ‖_F/‖W₀‖_F, None where W₀ = 0. ``rank`` counts the singular values of Δ that
    exceed u(‖W‖_F + ‖W₀‖_F), which storing numbers with relative error u cannot explain (Weyl).
    ``delta`` has the norms of Δ, None where nothing moved. ``angle`` is how far the leading
    singular subspaces turned, in degrees (`leading_angle`).
    """

    layer: str
    role: str
    relative: float | None
    rank: int
    delta: MatrixMeasures | None
    angle: float | None = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        delta = None if self.delta is None else self.delta.to_dict()
        names = ("layer", "role", "relative", "rank", "angle")
        return {name: getattr(self, name) for name in names} | {"delta": delta}


@dataclass(frozen=True)
class CheckpointChanges(Displayable):
    """What moved between a base and a checkpoint, in the order of the layers.

    ``elsewhere`` names parameters that the table does not know and that are new or differ, such as
    a pooler: they are not measured, and no part of base + Δ.
    """

    name: str
    base: str
    matrices: tuple[MatrixChange, ...]
    elsewhere: tuple[str, ...] = ()

    @property
    def moved(self) -> tuple[MatrixChange, ...]:
        """The matrices in which any number differs, those that moved most first."""
        found = [each for each in self.matrices if each.delta is not None]
        return tuple(sorted(found, key=_how_far, reverse=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        matrices = [each.to_dict() for each in self.matrices]
        own = {"name": self.name, "base": self.base, "elsewhere": list(self.elsewhere)}
        return {**own, "matrices": matrices}

    def __card__(self) -> Card:
        rows = []
        for each in self.moved:
            assert each.delta is not None
            percent = None if each.relative is None else 100 * each.relative
            sizes = (each.delta.spectral, each.delta.frobenius, each.delta.nuclear)
            rows.append((each.layer, each.role, percent, each.angle, each.rank, *sizes))
        columns = ("layer", "matrix", "moved by %", "turned by °", "rank of Δ")
        columns = (*columns, "‖Δ‖", "‖Δ‖_F", "nuclear")
        count = f"{len(rows)} of {len(self.matrices)} matrices"
        table = Table("What moved, in the Frobenius norm", columns, tuple(rows))
        fields = (("base", self.base), ("moved", count))
        notes = (self.note,) if self.note else ()
        return Card(f"Changes of {self.name}", fields, (table,) if rows else (), notes)

    @property
    def note(self) -> str:
        """What else moved; empty if nothing did."""
        if not self.elsewhere:
            return ""
        names = ", ".join(self.elsewhere)
        return f"Also changed, not measured, and no part of base + Δ: {names}."


def _how_far(change: MatrixChange) -> float:
    return math.inf if change.relative is None else change.relative


def compare_checkpoints(
    source: Any,
    base: Any,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    layouts: str | Path | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> CheckpointChanges:
    """Which matrices of the layers moved since ``base``, by how much, and in how many directions.

    Args:
        source, base: as for `measure_checkpoint`; both are mapped and proven, and must be alike.
            Or ``source`` is a LoRA adapter (a folder): Δ is then measured by its factors.
        heads, kv_heads, layouts, on_progress: as there.

    >>> rng = np.random.default_rng(0)
    >>> shapes = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    >>> old = {f"layers.0.self_attn.{k}": rng.normal(size=v) for k, v in shapes.items()}
    >>> step = np.outer(rng.normal(size=4), rng.normal(size=4))
    >>> name = "layers.0.self_attn.out_proj.weight"
    >>> new = old | {name: old[name] + step}
    >>> [(each.role, each.rank) for each in compare_checkpoints(new, old, heads=2).moved]
    [('output', 1)]
    """
    tuned = open_tuned(source, base, layouts)
    mine, other = (
        prove_checkpoint(each, heads=heads, kv_heads=kv_heads, layouts=layouts)
        for each in (tuned, base)
    )
    mine.check_base(other)
    (new, network), (old, base_network) = (
        (each.checkpoint, each.network) for each in (mine, other)
    )
    steps = _steps(source, base, tuned)
    changes, total = [], sum(len(layer.weights) for layer in network.layers)
    with limit_threads(1 if mine.geometry.width < WIDE else None, "blas"):
        for layer, before in zip(network.layers, base_network.layers, strict=True):
            if set(layer.weights) != set(before.weights):
                odd = ", ".join(sorted(set(layer.weights) ^ set(before.weights)))
                raise InputError(f"Only one of {new.name} and its base has {odd}.")
            for role in (role for role in ROLES if role in layer.weights):
                if on_progress is not None:
                    on_progress(len(changes), total, layer.weights[role].tensor.name)
                step = steps.get((layer.number, role))
                changes.append(_change(role, layer, before, step))
    outside = tuple(_elsewhere(new, network, old))
    return CheckpointChanges(new.name, old.name, tuple(changes), outside)


def _elsewhere(new: Checkpoint, network: MappedNetwork, old: Checkpoint) -> Iterator[str]:
    """Parameters outside the layers that are new, or differ."""
    for name, why in network.skipped.items():
        if why != OUTSIDE:
            continue
        mine, other = new.tensors[name], tensor_by_name(name, old.tensors)
        if other is None or mine.shape != other.shape or _differ(mine, other):
            yield name


def _differ(mine: StoredTensor, other: StoredTensor) -> bool:
    """Whether any number differs; whole numbers (of positions, say) are compared as stored."""
    if mine.kind == other.kind:
        return not np.array_equal(mine.load(), other.load())
    real = mine.is_real and other.is_real
    return not (real and np.array_equal(mine.read(), other.read()))


def _steps(source: Any, base: Any, tuned: Checkpoint) -> Mapping[Any, MatrixStep]:
    """The factors of an adapter, if they are steps from this base and no other."""
    if not isinstance(tuned, AdaptedCheckpoint):
        return {}
    same_file = isinstance(base, str | Path) and str(base) == tuned.base.name
    return tuned.steps if tuned is not source or same_file or base is tuned.base else {}


def _change(
    role: str, layer: MappedLayer, base_layer: MappedLayer, step: MatrixStep | None
) -> MatrixChange:
    mine, base = layer.weights[role], base_layer.weights[role]
    if mine.shape != base.shape:
        raise InputError(
            f"{mine.tensor.name} has shape {mine.shape}, but {base.shape} in the base."
        )
    new, old = layer.read(role).T, base_layer.read(role).T
    sizes = [float(np.linalg.norm(each)) for each in (new, old)]
    if np.array_equal(new, old):
        return MatrixChange(layer.label, role, 0.0, 0, None)
    angle = leading_angle(new, old) if min(sizes) > 0 else None
    if step is not None:
        delta = measure_product(*step.read())
        rank = delta.rank
    else:
        unit = max(ROUNDING[each.tensor.kind] for each in (mine, base))
        new -= old
        delta, values = measure_spectrum(new)
        rank = int((values > unit * sum(sizes)).sum())
    relative = delta.frobenius / sizes[1] if sizes[1] else None
    return MatrixChange(layer.label, role, relative, rank, delta, angle)
