"""A checkpoint that is known before any of its matrices is read: opened, mapped, proven."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetti.audit.layouts.layout_table import read_layouts
from finetti.audit.layouts.shape_checks import HeadGeometry, prove
from finetti.audit.layouts.tensor_mapping import MappedNetwork, map_checkpoint
from finetti.audit.readers.checkpoint_files import open_checkpoint
from finetti.audit.readers.stored_tensor import Checkpoint
from finetti.core.errors import InputError


@dataclass(frozen=True)
class ProvenCheckpoint:
    """A checkpoint, what its tensors are, and its heads."""

    checkpoint: Checkpoint
    network: MappedNetwork
    geometry: HeadGeometry

    def check_base(self, base: "ProvenCheckpoint") -> None:
        """Refuse a base of another layout, depth or geometry."""
        if self._shape == base._shape:
            return
        (layout, depth, geometry), (other, base_depth, base_geometry) = self._shape, base._shape
        raise InputError(
            f"{self.checkpoint.name} and its base {base.checkpoint.name} are not alike: found "
            f"{layout} with {depth} layers and {geometry}, and in the base {other} with "
            f"{base_depth} layers and {base_geometry}."
        )

    @property
    def _shape(self) -> tuple[str, int, HeadGeometry]:
        return self.network.layout.name, len(self.network.layers), self.geometry


def prove_checkpoint(
    source: Any,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    layouts: str | Path | None = None,
) -> ProvenCheckpoint:
    """All that names and shapes decide; the arguments are those of `measure_checkpoint`."""
    checkpoint = open_checkpoint(source)
    network = map_checkpoint(checkpoint, read_layouts(layouts))
    return ProvenCheckpoint(checkpoint, network, prove(network, checkpoint.config, heads, kv_heads))
