"""What if? A checkpoint with a layer rescaled, a head dropped, or heads that share, unsaved."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.checkpoint import Checkpoint, StoredTensor
from finetti.audit.mapping import MappedLayer, MappedMatrix, MappedNetwork
from finetti.audit.proof import HeadGeometry
from finetti.audit.proven import prove_checkpoint
from finetti.core.errors import InputError
from finetti.core.numbers import as_whole

FORMS = "`scale LAYER FACTOR`, `drop LAYER.HEAD`, or `share KEYS`"
Change = Callable[[NDArray[np.float64]], None]  # of a matrix (outputs, inputs) or a bias, in place


@dataclass(frozen=True)
class RescaleLayer:
    """All matrices of a layer, times a factor."""

    layer: str
    factor: float

    def __str__(self) -> str:
        return f"scale {self.layer} {self.factor:g}"


@dataclass(frozen=True)
class DropHead:
    """A head that reads and writes nothing: its query and its part of the output are zero."""

    layer: str
    head: int

    def __str__(self) -> str:
        return f"drop {self.layer}.{self.head}"


@dataclass(frozen=True)
class ShareHeads:
    """In every layer, ``kv_heads`` keys and values: each the mean of those that become one."""

    kv_heads: int

    def __str__(self) -> str:
        return f"share {self.kv_heads}"


Edit = RescaleLayer | DropHead | ShareHeads


def parse_edit(text: str) -> Edit:
    """An edit as the command line writes it.

    >>> parse_edit("drop 3.11"), str(parse_edit("scale 0 0.5")), parse_edit("share 4").kv_heads
    (DropHead(layer='3', head=11), 'scale 0 0.5', 4)
    """
    match text.split():
        case ["scale", layer, factor]:
            return RescaleLayer(layer, _number(text, factor, float))
        case ["drop", place] if "." in place:
            layer, _, head = place.rpartition(".")
            return DropHead(layer, _number(text, head, int))
        case ["share", count]:
            return ShareHeads(_number(text, count, int))
    raise InputError(f"{text[:80]!r} is not an edit; expected {FORMS}.")


def _number(text: str, part: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(part)
    except ValueError as error:
        raise InputError(
            f"{part[:40]!r} in {text[:80]!r} is not a number; expected {FORMS}."
        ) from error


def edit_checkpoint(
    source: Any,
    edit: Edit | str,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    layouts: str | Path | None = None,
) -> Checkpoint:
    """A checkpoint as it would be after an edit; nothing is written, matrices change when read.

    Audit it like any other, and compare: `compare_audits`.

    Args:
        source, heads, kv_heads, layouts: as for `measure_checkpoint`.
        edit: a `RescaleLayer`, `DropHead` or `ShareHeads`, or its text.

    >>> rng = np.random.default_rng(0)
    >>> shapes = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    >>> weights = {f"layers.0.self_attn.{k}": rng.normal(size=v) for k, v in shapes.items()}
    >>> edited = edit_checkpoint(weights, "drop 0.1", heads=2)
    >>> bool(edited.tensors["layers.0.self_attn.out_proj.weight"].read()[:, 2:].any())
    False
    """
    edit = parse_edit(edit) if isinstance(edit, str) else edit
    proven = prove_checkpoint(source, heads=heads, kv_heads=kv_heads, layouts=layouts)
    checkpoint, network = proven.checkpoint, proven.network
    changes: dict[str, list[tuple[MappedMatrix, Change]]] = {}
    for layer, name, change in _changes(edit, network, proven.geometry):
        mapped = layer.weights.get(name) or layer.vectors.get(name)
        if mapped is not None:
            changes.setdefault(mapped.tensor.name, []).append((mapped, change))
    tensors = dict(checkpoint.tensors)
    tensors |= {name: _edited(tensors[name], found) for name, found in changes.items()}
    return Checkpoint(f"{checkpoint.name}, {edit}", tensors, checkpoint.config)


def _edited(tensor: StoredTensor, changes: list[tuple[MappedMatrix, Change]]) -> StoredTensor:
    def load() -> NDArray[np.float64]:
        values = tensor.read()
        for mapped, change in changes:
            part = values.T if mapped.transposed else values
            if mapped.third is not None:
                size = len(part) // 3
                part = part[mapped.third * size : (mapped.third + 1) * size]
            change(part)
        return values

    return replace(tensor, kind="F64", load=load)


def _changes(
    edit: Edit, network: MappedNetwork, geometry: HeadGeometry
) -> list[tuple[MappedLayer, str, Change]]:
    """Which part of which layer changes, and how."""
    if isinstance(edit, ShareHeads):
        average = _averaged(edit, geometry)
        parts = ("key", "value", "key_bias", "value_bias")
        return [(layer, name, average) for layer in network.layers for name in parts]
    layer = next((each for each in network.layers if each.label == edit.layer), None)
    if layer is None:
        labels = [each.label for each in network.layers]
        raise InputError(f"`{edit}`: no layer {edit.layer}; found {labels[0]} to {labels[-1]}.")
    if isinstance(edit, RescaleLayer):
        if not math.isfinite(edit.factor) or edit.factor == 0:
            raise InputError(f"`{edit}`: the factor must be a finite number other than 0.")
        return [(layer, role, partial(_scale, edit.factor)) for role in layer.weights]
    if geometry.heads == 1 or not 0 <= edit.head < geometry.heads:
        raise InputError(
            f"`{edit}`: found heads 0 to {geometry.heads - 1}; expected one of them, with "
            "another one left."
        )
    rows = geometry.rows(edit.head)
    zeros = partial(_zero, rows), partial(_zero, (slice(None), rows))
    return [
        (layer, "query", zeros[0]),
        (layer, "query_bias", zeros[0]),
        (layer, "output", zeros[1]),
    ]


def _scale(factor: float, part: NDArray[np.float64]) -> None:
    part *= factor


def _zero(index: Any, part: NDArray[np.float64]) -> None:
    part[index] = 0.0


def _averaged(edit: ShareHeads, geometry: HeadGeometry) -> Change:
    count = as_whole(edit.kv_heads, "share", "edit_checkpoint")
    if geometry.kv_heads % count:
        raise InputError(
            f"`{edit}`: found {geometry.kv_heads} keys and values in a layer; expected a divisor."
        )

    def average(part: NDArray[np.float64]) -> None:
        groups = part.reshape(count, geometry.kv_heads // count, geometry.head_width, -1)
        mean = np.broadcast_to(groups.mean(axis=1, keepdims=True), groups.shape)
        part[:] = mean.reshape(part.shape)

    return average
