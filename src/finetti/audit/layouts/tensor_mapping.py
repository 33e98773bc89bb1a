"""Every tensor of a checkpoint gets a role, or a reason why it is skipped."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from finetti.audit.layouts.layout_table import ATTENTION, Layout, Place
from finetti.audit.readers.number_formats import WHOLE
from finetti.audit.readers.stored_tensor import StoredCheckpoint, StoredTensor
from finetti.core.errors import InputError

QUANTIZER = re.compile(r"(.*[._])?(scales?|scale_inv|zeros|zero_points?|g_idx|absmax|quant_map)")

# Why a parameter is skipped.
OUTSIDE = "outside the layers, and not in the table"
INSIDE = "inside a layer, and not in the table"


@dataclass(frozen=True)
class MappedMatrix:
    """A matrix of a layer as (outputs, inputs), whichever way and with whatever it is stored."""

    tensor: StoredTensor
    transposed: bool
    third: int | None = None  # of a fused query, key and value

    @property
    def shape(self) -> tuple[int, ...]:
        """Return outputs and inputs; other than two axes if the tensor is no matrix."""
        shape = self.tensor.shape[::-1] if self.transposed else self.tensor.shape
        return shape if self.third is None else (shape[0] // 3, *shape[1:])

    def read(self) -> NDArray[np.float64]:
        """Return the matrix as float64 (outputs, inputs)."""
        if self.third is None:
            values = self.tensor.read()
        else:
            size = self.shape[0]
            part = slice(self.third * size, (self.third + 1) * size)
            values = self.tensor.read(*((slice(None), part) if self.transposed else (part,)))
        return values.T if self.transposed else values


@dataclass(frozen=True)
class MappedLayer:
    """The matrices, biases and norms of a layer, by role."""

    number: tuple[int, ...]
    weights: dict[str, MappedMatrix] = field(default_factory=dict)
    vectors: dict[str, MappedMatrix] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the layer's number, as people write it."""
        return ".".join(map(str, self.number))

    def check_trained(self, role: str, values: NDArray[np.float64]) -> None:
        """Refuse a query, key or value of zeros."""
        if role in ATTENTION and not values.any():
            mapped = self.weights[role]
            part = "" if mapped.third is None else f" (part {mapped.third + 1} of 3)"
            raise InputError(
                f"{mapped.tensor.name}{part} in layer {self.label} is all zero: found no numbers "
                "where a query, key or value was expected. It was filled in, not trained."
            )


@dataclass(frozen=True)
class MappedNetwork:
    """Layers in their order, what else was recognized, and what was skipped and why."""

    layout: Layout
    layers: tuple[MappedLayer, ...]
    embeddings: dict[str, StoredTensor]
    unembedding: StoredTensor | None
    outer: dict[str, MappedMatrix]  # norms and a projection beside the layers, as "final_norm_bias"
    read: tuple[str, ...]
    skipped: dict[str, str]

    @property
    def unread(self) -> tuple[str, ...]:
        """Return the parameters inside the layers that no table knows."""
        return tuple(name for name, why in self.skipped.items() if why == INSIDE)


def map_checkpoint(checkpoint: StoredCheckpoint, layouts: Mapping[str, Layout]) -> MappedNetwork:
    """Find the layout of a checkpoint and put every parameter in its place."""
    layout = _choose(checkpoint, layouts)
    layers: dict[tuple[int, ...], MappedLayer] = {}
    embeddings: dict[str, StoredTensor] = {}
    outer: dict[str, MappedMatrix] = {}
    unembedding, read, skipped, prefix = None, [], {}, None
    for name, tensor in checkpoint.tensors.items():
        if place := layout.place(name):
            prefix = _same_prefix(prefix, layout.prefix(name), name)
            layer = layers.setdefault(place.number, MappedLayer(place.number))
            _put(layer, place, tensor, layout)
        elif layout.inside_a_layer(name):
            skipped[name] = _why_skipped(name, tensor, layout)
            continue
        elif (kind := layout.embedding(name)) and kind not in embeddings and tensor.is_real:
            embeddings[kind] = tensor
        elif (beside := layout.beside_the_layers(name)) and "_".join(beside) not in outer:
            turned = beside == ("projection", "weight") and layout.is_transposed
            outer["_".join(beside)] = MappedMatrix(tensor, turned)
        elif layout.is_unembedding(name) and unembedding is None and tensor.is_real:
            unembedding = tensor
        else:
            skipped[name] = OUTSIDE
            continue
        read.append(name)
    ordered = tuple(layers[number] for number in sorted(layers))
    return MappedNetwork(layout, ordered, embeddings, unembedding, outer, tuple(read), skipped)


def _same_prefix(before: str | None, prefix: str, name: str) -> str:
    if before not in (None, prefix):
        raise InputError(
            f"Layers lie below {before!r} and, as {name[:80]}, below {prefix!r}; expected all of "
            "them below one name. Audit one network at a time, or give a `layouts` file with its "
            "names."
        )
    return prefix


def _choose(checkpoint: StoredCheckpoint, layouts: Mapping[str, Layout]) -> Layout:
    """Return the layout whose names are there; of several, the one that config.json names."""
    fitting = [each for each in layouts.values() if _has_attention(checkpoint, each)]
    fitting = [each for each in fitting if each.own] or fitting
    if len(fitting) > 1:
        kind = checkpoint.config.get("model_type")
        fitting = [each for each in fitting if kind in each.model_types] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(each.name for each in fitting)
        raise InputError(
            f"{checkpoint.name} has names of several layouts ({names}), and the model_type in its "
            "config.json is none of them. Give a `layouts` file with the right names."
        )
    first = ", ".join(name[:80] for name in list(checkpoint.tensors)[:3])
    raise InputError(
        f"{checkpoint.name} has {len(checkpoint.tensors)} parameters ({first}, …), and none has "
        f"the name of a query in the layouts {', '.join(layouts)}. Give a `layouts` file with its "
        "names."
    )


def _has_attention(checkpoint: StoredCheckpoint, layout: Layout) -> bool:
    places = (layout.place(name) for name in checkpoint.tensors)
    return any(place and place.role in ("query", "fused") for place in places)


def _put(layer: MappedLayer, place: Place, tensor: StoredTensor, layout: Layout) -> None:
    tensor.check_real()
    shelf = layer.vectors if place.is_vector else layer.weights
    turned = not place.is_vector and layout.is_transposed
    thirds: list[tuple[str, int | None]] = [(place.role, None)]
    if place.role == "fused":
        thirds = [(each, number) for number, each in enumerate(ATTENTION)]
        _refuse_uneven(tensor, turned)
    for each, third in thirds:
        named = f"{each}_{place.kind}" if place.is_vector else each
        if named in shelf:
            raise InputError(
                f"Both {shelf[named].tensor.name} and {tensor.name} would be {named} of layer "
                f"{layer.label} by the layout {layout.name}. Audit one network at a time, or "
                "give a `layouts` file with names that tell them apart."
            )
        shelf[named] = MappedMatrix(tensor, turned, third)


def _refuse_uneven(tensor: StoredTensor, turned: bool) -> None:
    axis = -1 if turned else 0
    if not tensor.shape or tensor.shape[axis] % 3:
        raise InputError(
            f"{tensor.name} has shape {tensor.shape}; as query, key and value in one, axis "
            f"{axis % max(1, len(tensor.shape))} must be a multiple of 3."
        )


def _why_skipped(name: str, tensor: StoredTensor, layout: Layout) -> str:
    """Return why a parameter inside a layer is not read; refuse what may be a weight."""
    if layout.is_ignored(name):
        return "not a weight, by the table"
    if QUANTIZER.fullmatch(name):
        raise InputError(
            f"{name} belongs to quantized weights, which cannot be measured. Audit the checkpoint "
            "that was quantized."
        )
    one_per_head = len(tensor.shape) == 3 and tensor.shape[1:] == (1, 1)  # a kernel's lengthscale
    if len(tensor.shape) >= 2 and not one_per_head:
        what = "quantized codes" if tensor.kind in WHOLE else "a weight"
        raise InputError(
            f"{name} of shape {tensor.shape} lies in a layer and may be {what}, but the layout "
            f"{layout.name} does not know it. Give a `layouts` file that names it, or lists it "
            "under `ignored`."
        )
    return INSIDE
