"""A LoRA adapter on its base: every factor finds its matrix, or is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.layouts.layout_table import Layout, read_layouts
from finetti.audit.layouts.tensor_mapping import (
    ATTENTION,
    MappedMatrix,
    MappedNetwork,
    map_checkpoint,
)
from finetti.audit.readers.checkpoint_files import open_checkpoint
from finetti.audit.readers.lora_file import LoraAdapter, LowRankFactors, is_adapter, read_adapter
from finetti.audit.readers.stored_tensor import Checkpoint, StoredTensor
from finetti.core.errors import InputError

Spot = tuple[tuple[int, ...], str]  # a layer's number, and a role


@dataclass(frozen=True)
class MatrixStep:
    """Δ of one matrix of a layer, as A (rank, inputs) and the rows of B that belong to it."""

    factors: LowRankFactors
    rows: slice

    def read(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Thin factors (rank, inputs) and (rank, outputs): Δ, as acting on rows, is LᵀR."""
        inner, outer = self.factors.read()
        return inner, outer[self.rows].T


@dataclass(frozen=True)
class AdaptedCheckpoint(Checkpoint):
    """A base with an adapter added to it, matrix by matrix when they are read."""

    steps: Mapping[Spot, MatrixStep] = field(default_factory=dict)
    base: Checkpoint = field(kw_only=True)


def open_tuned(
    source: Any, base: Any = None, layouts: str | Path | None = None
) -> Checkpoint | AdaptedCheckpoint:
    """A checkpoint as `open_checkpoint` gives it, or a LoRA adapter added to its ``base``."""
    if is_adapter(base):
        said = f"The base {base} is a LoRA adapter; give the network that it belongs to"
        if is_adapter(source) or not isinstance(source, str | Path):
            raise InputError(f"{said}.")
        raise InputError(
            f"{said}. They seem to be swapped: audit {base} with {source} as the base."
        )
    if not is_adapter(source):
        return open_checkpoint(source)
    if base is None:
        raise InputError(
            f"{source} is a LoRA adapter, which is not a network by itself. Give `base`, the "
            "network that it belongs to."
        )
    return apply_adapter(source, base, layouts=layouts)


def apply_adapter(
    adapter: str | Path | LoraAdapter, base: Any, *, layouts: str | Path | None = None
) -> AdaptedCheckpoint:
    """The network W₀ + s·BA: a checkpoint like any other, whose matrices are summed when read.

    s = alpha/r, or alpha/√r with ``use_rslora`` (Hu et al. 2021; Kalajdzievski 2023).

    Args:
        adapter: a folder of PEFT's making, with ``adapter_config.json``.
        base: the network that it belongs to, as for `measure_checkpoint`.
        layouts: a TOML file with names of further families.
    """
    adapter = adapter if isinstance(adapter, LoraAdapter) else read_adapter(adapter)
    old = open_checkpoint(base)
    network = map_checkpoint(old, read_layouts(layouts))
    steps: dict[Spot, MatrixStep] = {}
    tensors = dict(old.tensors)
    for module, factors in adapter.factors.items():
        target, turned = _target(module, factors, network, old)
        if turned is not None and adapter.fan_in_fan_out not in (None, turned):
            raise InputError(
                f"{module} is stored as {'inputs × outputs' if turned else 'outputs × inputs'} by "
                f"the layout {network.layout.name}, but the adapter says fan_in_fan_out = "
                f"{adapter.fan_in_fan_out}."
            )
        if target.name in adapter.whole:
            raise InputError(f"The adapter has {target.name} both whole and as factors.")
        tensors[target.name] = _summed(target, factors, bool(turned))
        steps |= _steps(module, factors, network.layout)
    for name, tensor in adapter.whole.items():
        _put_whole(name, tensor, tensors, network)
    return AdaptedCheckpoint(f"{adapter.name} on {old.name}", tensors, old.config, steps, base=old)


def _target(
    module: str, factors: LowRankFactors, network: MappedNetwork, base: Checkpoint
) -> tuple[StoredTensor, bool | None]:
    """The base's tensor that a factor belongs to, and whether it is stored as (inputs, outputs)."""
    name = f"{module}.weight"
    mapped = _inside(name, network)
    if mapped is None:
        tensor, turned = tensor_by_name(name, base.tensors), None
    else:
        tensor, turned = mapped.tensor, mapped.transposed
    if tensor is None:
        raise InputError(
            f"The adapter has factors for {module}, but the base {base.name} has no such matrix."
        )
    shape = tensor.shape[::-1] if turned else tensor.shape
    if factors.shape != shape:
        raise InputError(
            f"The factors of {module} make a matrix of shape {factors.shape}; expected {shape} as "
            f"(outputs, inputs) of {tensor.name} in the base."
        )
    return tensor, turned


def _inside(name: str, network: MappedNetwork) -> MappedMatrix | None:
    """The matrix or vector of a layer that has this name, whichever prefix the base has."""
    place = network.layout.place(name)
    if place is None:
        return None
    number, role, kind = place
    layer = next((each for each in network.layers if each.number == number), None)
    first = ATTENTION[0] if role == "fused" else role
    vector = kind == "bias" or role.startswith("norm")
    shelf = {} if layer is None else layer.vectors if vector else layer.weights
    mapped = shelf.get(f"{first}_{kind}" if vector else first)
    return mapped if mapped and _same_end(name, mapped.tensor.name) else None


def _same_end(one: str, other: str) -> bool:
    """Whether two names differ only in what comes before the shorter one."""
    short, long = sorted((one, other), key=len)
    return f".{long}".endswith(f".{short}")


def tensor_by_name(name: str, tensors: Mapping[str, StoredTensor]) -> StoredTensor | None:
    """The one of this name, whichever prefix it has."""
    found = [tensor for key, tensor in tensors.items() if _same_end(name, key)]
    return found[0] if len(found) == 1 else tensors.get(name)


def _steps(module: str, factors: LowRankFactors, layout: Layout) -> dict[Spot, MatrixStep]:
    place = layout.place(f"{module}.weight")
    if place is None:
        return {}
    number, role, _ = place
    if role != "fused":
        return {(number, role): MatrixStep(factors, slice(None))}
    size = factors.shape[0] // 3
    return {
        (number, each): MatrixStep(factors, slice(third * size, (third + 1) * size))
        for third, each in enumerate(ATTENTION)
    }


def _summed(target: StoredTensor, factors: LowRankFactors, turned: bool) -> StoredTensor:
    def load() -> NDArray[np.float64]:
        inner, outer = factors.read()
        total = target.read()
        total += inner.T @ outer.T if turned else outer @ inner
        return total

    return replace(target, kind="F64", load=load)


def _put_whole(
    name: str, tensor: StoredTensor, tensors: dict[str, StoredTensor], network: MappedNetwork
) -> None:
    """Biases and norms that an adapter saves whole; heads outside the layers are new names."""
    if network.layout.inside_a_layer(name):
        mapped = _inside(name, network)
        if mapped is None or tensor.shape != mapped.tensor.shape or len(tensor.shape) != 1:
            raise InputError(
                f"The adapter saves {name[:120]} of shape {tensor.shape} whole, which is neither "
                "a bias nor a norm of a layer of the base. Merge it into its base and audit the "
                "result."
            )
        tensors[mapped.tensor.name] = replace(tensor, name=mapped.tensor.name)
        return
    old = tensor_by_name(name, tensors)
    if old is not None and old.shape != tensor.shape:
        raise InputError(f"{name[:120]} has shape {tensor.shape}, but {old.shape} in the base.")
    key = name if old is None else old.name
    tensors[key] = replace(tensor, name=key)
