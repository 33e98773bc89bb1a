"""Check that every mapped tensor has the shape that its role requires."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from finetti.audit.layouts.tensor_mapping import (
    ATTENTION,
    MappedLayer,
    MappedNetwork,
)
from finetti.audit.readers.stored_tensor import config_number
from finetti.core.arguments import as_whole
from finetti.core.errors import InputError


@dataclass(frozen=True)
class HeadGeometry:
    """Heads of a network: queries, keys and values (fewer where heads share them), and widths."""

    width: int
    heads: int
    kv_heads: int
    head_width: int
    repeats: int  # how often the stored layers run, one after the other

    def rows(self, head: int) -> slice:
        """Return where the query of a head is among the outputs."""
        return slice(head * self.head_width, (head + 1) * self.head_width)

    def kv_rows(self, head: int) -> slice:
        """Return where the key and value that a head reads are among theirs."""
        return self.rows(head * self.kv_heads // self.heads)


def check_shapes(
    network: MappedNetwork,
    config: Mapping[str, Any],
    heads: int | None = None,
    kv_heads: int | None = None,
) -> HeadGeometry:
    """Check numbers, roles and shapes of all layers, and return the geometry of the heads."""
    heads, kv_heads = (
        None if value is None else as_whole(value, name, "the audit")
        for name, value in (("heads", heads), ("kv_heads", kv_heads))
    )
    repeats = _check_numbers(network, config)
    _check_roles(network)
    geometry = _geometry(network.layers[0], config, heads, kv_heads, repeats)
    for layer in network.layers:
        _check_layer(layer, geometry)
    _check_outer(network, geometry)
    _check_tables(network)
    return geometry


def _check_numbers(network: MappedNetwork, config: Mapping[str, Any]) -> int:
    found = [layer.number for layer in network.layers]
    sizes = [max(axis) + 1 for axis in zip(*found, strict=True)]
    have = set(found)
    # The first hole comes after at most as many numbers as there are layers.
    for number in _all_numbers(sizes):
        if number not in have:
            label = ".".join(map(str, number))
            raise InputError(
                f"Layer {label} is missing: found {len(found)} layers up to "
                f"{'.'.join(map(str, found[-1]))}, expected all numbers from 0. A shard may be "
                "missing."
            )
    said = config_number(config, "num_hidden_layers", "n_layer", "num_layers")
    groups = config_number(config, "num_hidden_groups") if len(sizes) == 2 else None
    if groups not in (None, sizes[0]):
        raise InputError(
            f"Found {sizes[0]} groups of layers, expected {groups} by config.json. A shard may be "
            "missing."
        )
    if said is None:
        return 1
    if len(sizes) == 2 and said % sizes[0] == 0:  # each of the config's layers runs a whole group
        return said // sizes[0]
    if said != len(found):
        raise InputError(f"Found {len(found)} layers, expected {said} by config.json.")
    return 1


def _all_numbers(sizes: list[int]) -> Iterator[tuple[int, ...]]:
    if len(sizes) == 1:
        return ((number,) for number in range(sizes[0]))
    return ((group, number) for group in range(sizes[0]) for number in range(sizes[1]))


def _check_roles(network: MappedNetwork) -> None:
    first = network.layers[0]
    for layer in network.layers:
        missing = [role for role in (*ATTENTION, "output") if role not in layer.weights]
        if missing:
            raise InputError(
                f"Layer {layer.label} has no {', '.join(missing)}: found "
                f"{', '.join(sorted(layer.weights)) or 'no weights'}, expected query, key, value "
                f"and output in every layer, as the layout {network.layout.name} names them."
            )
        for mine, others in ((layer.weights, first.weights), (layer.vectors, first.vectors)):
            odd = sorted(set(mine) ^ set(others))
            if odd:
                raise InputError(
                    f"Layers {first.label} and {layer.label} differ: only one of them has "
                    f"{', '.join(odd)}; expected the same in every layer."
                )
    feed = {"feed_in", "feed_out"} & set(first.weights)
    if len(feed) == 1 or (not feed and "feed_gate" in first.weights):
        raise InputError(
            "The feed-forward part lacks feed_in or feed_out; expected both or neither."
        )


def _geometry(
    layer: MappedLayer,
    config: Mapping[str, Any],
    heads: int | None,
    kv_heads: int | None,
    repeats: int,
) -> HeadGeometry:
    for role in (*ATTENTION, "output"):
        if len(layer.weights[role].shape) != 2 or 0 in layer.weights[role].shape:
            raise _misfit(layer, role, "a matrix with entries")
    rows, width = layer.weights["query"].shape
    key_rows = layer.weights["key"].shape[0]
    declared = config_number(config, "num_attention_heads", "n_head", "num_heads")
    heads = _agreed("heads", heads, declared)
    if heads is None:
        raise InputError(
            "The weights do not say how many heads there are, and neither does a config.json "
            "next to them. Give `heads`."
        )
    head_width = config_number(config, "head_dim")
    if head_width is None and heads * (rows // heads) != width:
        raise InputError(
            f"Heads do not fit: found {heads} heads, queries of {rows} outputs and a width of "
            f"{width}; expected heads × head width = width."
        )
    head_width = head_width or rows // heads
    if heads * head_width != rows:
        raise InputError(
            f"Heads do not fit: found {rows} outputs of the query in layer {layer.label}, expected "
            f"{heads} heads × {head_width}."
        )
    declared = config_number(config, "num_key_value_heads", "num_kv_heads", "n_head_kv")
    kv_heads = _agreed("key/value heads", kv_heads, declared)
    if kv_heads is None and key_rows != rows:
        raise InputError(
            f"Keys have {key_rows} outputs and queries {rows}, so heads share keys, but nothing "
            "says how many key/value heads there are. Give `kv_heads`."
        )
    kv_heads = kv_heads or heads
    if heads % kv_heads:
        raise InputError(f"Found {kv_heads} key/value heads, expected a divisor of {heads} heads.")
    return HeadGeometry(width, heads, kv_heads, head_width, repeats)


def _agreed(what: str, given: int | None, declared: int | None) -> int | None:
    if given is not None and declared is not None and given != declared:
        raise InputError(f"Found {declared} {what} in config.json, but {given} were given.")
    return declared if given is None else given


def _check_layer(layer: MappedLayer, heads: HeadGeometry) -> None:
    d, inner = heads.width, heads.heads * heads.head_width
    shared = heads.kv_heads * heads.head_width
    needed = {"query": (inner, d), "key": (shared, d), "value": (shared, d), "output": (d, inner)}
    if "feed_in" in layer.weights:
        hidden = layer.weights["feed_in"].shape[0] if layer.weights["feed_in"].shape else 0
        if hidden == 0:
            raise _misfit(layer, "feed_in", "a matrix with entries")
        needed |= {"feed_in": (hidden, d), "feed_gate": (hidden, d), "feed_out": (d, hidden)}
    for role, mapped in layer.weights.items():
        if mapped.shape != needed[role]:
            raise _misfit(layer, role, f"{needed[role]} as (outputs, inputs)")
    for name, mapped in layer.vectors.items():
        role = name.removesuffix("_bias")
        size = d if name.startswith("norm") else needed.get(role, (0,))[0]
        if mapped.shape != (size,):
            raise _misfit(layer, name, f"({size},)", mapped.shape)


def _check_outer(network: MappedNetwork, heads: HeadGeometry) -> None:
    """Norms and a projection beside the layers, and tables of the width that they begin with."""
    outer, d = network.outer, heads.width
    projection = outer.get("projection_weight")
    inside = d if projection is None else projection.shape[-1] if projection.shape else 0
    needed = {"projection_weight": (d, inside), "projection_bias": (d,)}
    needed |= {f"final_norm_{kind}": (d,) for kind in ("weight", "bias")}
    needed |= {f"embedding_norm_{kind}": (inside,) for kind in ("weight", "bias")}
    found = {name: (each.tensor.name, each.shape) for name, each in outer.items()}
    found |= {f"embedding {k}": (t.name, t.shape) for k, t in network.embeddings.items()}
    for name, (tensor, shape) in found.items():
        expected = needed.get(name, (shape[0] if shape else 0, inside))
        if shape != expected:
            raise InputError(
                f"{tensor} does not fit as {name.replace('_', ' ')}: found shape {shape}, "
                f"expected {expected}."
            )


def _check_tables(network: MappedNetwork) -> None:
    tables = [*network.embeddings.values(), network.unembedding]
    for tensor in tables:
        if tensor is not None and (len(tensor.shape) != 2 or 0 in tensor.shape):
            raise InputError(
                f"{tensor.name} is not an embedding table: found shape {tensor.shape}, expected "
                "two axes with entries."
            )


def _misfit(layer: MappedLayer, role: str, needed: str, shape: Any = None) -> InputError:
    mapped = layer.vectors[role] if shape is not None else layer.weights[role]
    return InputError(
        f"{mapped.tensor.name} does not fit as {role} of layer {layer.label}: found shape "
        f"{mapped.shape}, expected {needed}."
    )
