"""A checkpoint that is opened, mapped and checked once; everything else reads this object."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from finetti.audit.layouts.layout_table import read_layouts
from finetti.audit.layouts.shape_checks import HeadGeometry, check_shapes
from finetti.audit.layouts.tensor_mapping import MappedNetwork, map_checkpoint
from finetti.audit.lora_checkpoint import MatrixStep, Spot, add_adapter
from finetti.audit.readers.checkpoint_files import read_checkpoint
from finetti.audit.readers.lora_file import adapter_folder, read_adapter
from finetti.audit.readers.stored_tensor import StoredCheckpoint
from finetti.core.errors import InputError


@dataclass(frozen=True)
class Checkpoint(StoredCheckpoint):
    """Tensors whose names and shapes are mapped and checked; no matrix is read yet.

    ``network`` says which tensor is which weight, ``geometry`` how heads lie in them. ``base`` is
    the checkpoint that it is compared with, of the same layout and shapes; ``steps`` are the
    factors of a LoRA adapter on it.
    """

    network: MappedNetwork
    geometry: HeadGeometry
    base: "Checkpoint | None" = None
    steps: Mapping[Spot, MatrixStep] = field(default_factory=dict)

    def _check_base(self, base: "Checkpoint") -> None:
        """Refuse a base of another layout, depth, geometry, or shape of any weight."""
        if self._kind != base._kind:
            (layout, depth, geometry), (other, base_depth, base_geometry) = self._kind, base._kind
            raise InputError(
                f"{self.name} and its base {base.name} are not alike: found {layout} with {depth} "
                f"layers and {geometry}, and in the base {other} with {base_depth} layers and "
                f"{base_geometry}."
            )
        mine, others = dict(self._shapes()), dict(base._shapes())
        if odd := sorted(set(mine) ^ set(others)):
            raise InputError(f"Only one of {self.name} and its base has {', '.join(odd)}.")
        for place, (name, shape) in mine.items():
            if shape != others[place][1]:
                raise InputError(f"{name} has shape {shape}, but {others[place][1]} in the base.")

    @property
    def _kind(self) -> tuple[str, int, HeadGeometry]:
        return self.network.layout.name, len(self.network.layers), self.geometry

    def _shapes(self) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
        """Yield the name and shape of every weight, by its place."""
        for layer in self.network.layers:
            for role, each in (layer.weights | layer.vectors).items():
                yield f"{role} of layer {layer.label}", (each.tensor.name, each.shape)
        for role, each in self.network.outer.items():
            yield role, (each.tensor.name, each.shape)
        for role, tensor in self.network.embeddings.items():
            yield role, (tensor.name, tensor.shape)


def open_checkpoint(
    source: Any,
    *,
    base: Any = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    layouts: str | Path | None = None,
) -> Checkpoint:
    """Return a checkpoint, refused as far as names and shapes can tell; no matrix is read.

    Args:
        source: a ``.safetensors`` or ``.npz`` file, an index of shards, a folder of a hub snapshot,
            a model's name in the local hub cache, or a network in memory (a PyTorch module, a state
            dict, an Equinox module, a mapping from names to arrays). With ``base`` also a LoRA
            adapter, a folder of PEFT's making: the checkpoint is then W₀ + s·BA.
        base: what to compare with, of the same layout and shapes: a source, or an open checkpoint.
        heads: how many heads there are, where no ``config.json`` says it.
        kv_heads: how many keys and values there are, where heads share them.
        layouts: a TOML file with names of further families.

    >>> import numpy as np
    >>> shapes = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    >>> weights = {f"layers.0.self_attn.{k}": np.ones(shape) for k, shape in shapes.items()}
    >>> found = open_checkpoint(weights, heads=2)
    >>> found.network.layout.name, found.geometry.head_width
    ('torch', 2)
    """
    adapter = adapter_folder(source)
    if adapter_folder(base) is not None:
        said = f"The base {base} is a LoRA adapter; give the network that it belongs to"
        if adapter is not None or not isinstance(source, str | Path):
            raise InputError(f"{said}.")
        raise InputError(
            f"{said}. They seem to be swapped: audit {base} with {source} as the base."
        )
    options: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "layouts": layouts}
    if base is not None and not isinstance(base, Checkpoint):
        base = open_checkpoint(base, **options)
    steps: Mapping[Spot, MatrixStep] = {}
    if adapter is None:
        stored = read_checkpoint(source)
    elif base is None:
        raise InputError(
            f"{source} is a LoRA adapter, which is not a network by itself. Give `base`, the "
            "network that it belongs to."
        )
    else:
        found = read_adapter(adapter, str(source))
        stored, steps = add_adapter(found, base, base.network.layout)
    network = map_checkpoint(stored, read_layouts(layouts))
    geometry = check_shapes(network, stored.config, heads, kv_heads)
    made = Checkpoint(stored.name, stored.tensors, stored.config, network, geometry, base, steps)
    if base is not None:
        made._check_base(base)
    return made
