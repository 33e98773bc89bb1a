"""From a checkpoint to its norms: opened, mapped, proven, then measured layer by layer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.layouts.block_design import read_design
from finetti.audit.layouts.layout_table import OUTER
from finetti.audit.layouts.shape_checks import HeadGeometry
from finetti.audit.layouts.tensor_mapping import ATTENTION, MappedLayer, MappedMatrix, MappedNetwork
from finetti.audit.measures.matrix_norms import MatrixMeasures, measure_matrix, measure_product
from finetti.audit.measures.measurements import Audit, HeadMeasures, LayerMeasures, OuterMeasures
from finetti.audit.proven import prove_checkpoint
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.numerics.extremes import largest_of
from finetti.core.process_tuning import limit_threads

BLOCK = 2**20  # entries of an embedding that are read at the same time
WIDE = 2048
OnProgress = Callable[[int, int, str], None]


def measure_checkpoint(
    source: Any,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    layouts: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> Audit:
    """The norms of every head and matrix of a checkpoint, with a proof that they are what they
    are called.

    Args:
        source: a ``.safetensors`` or ``.npz`` file, an index of shards, a folder of a hub snapshot,
            a model's name in the local hub cache, or a network in memory (a PyTorch module, a state
            dict, an Equinox module, a mapping from names to arrays).
        heads: how many heads there are, where no ``config.json`` says it.
        kv_heads: how many keys and values there are, where heads share them.
        layouts: a TOML file with names of further families.
        on_progress: called with tensors done, tensors in all, and the one that is next.

    >>> rng = np.random.default_rng(0)
    >>> shapes = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    >>> weights = {f"layers.0.self_attn.{k}": rng.normal(size=v) for k, v in shapes.items()}
    >>> found = measure_checkpoint(weights, heads=2)
    >>> found.layout, len(found.layers[0].heads), found.layers[0].heads[0].query_key.rank
    ('torch', 2, 2)
    """
    proven = prove_checkpoint(source, heads=heads, kv_heads=kv_heads, layouts=layouts)
    checkpoint, network, geometry = proven.checkpoint, proven.network, proven.geometry
    steps = _Steps(on_progress, network)
    # On busy cores threads of BLAS wait for each other far longer than a small matrix takes.
    with limit_threads(1 if geometry.width < WIDE else None, "blas"):
        layers = tuple(_measure_layer(layer, geometry, steps) for layer in network.layers)
    steps.start(*network.embeddings.values())
    embeddings = {name: _measure_table(tensor) for name, tensor in network.embeddings.items()}
    tied = _tied(network)
    if network.unembedding is not None and not tied:
        embeddings["unembedding"] = _measure_table(network.unembedding)
    sizes = {name: checkpoint.tensors[name].size for name in network.read if name not in tied}
    return Audit(
        checkpoint.name,
        network.layout.name,
        geometry,
        layers,
        embeddings,
        sum(sizes.values()),
        network.read,
        network.skipped,
        tied,
        network.layout.note,
        read_design(network.layout, checkpoint.config, network.unread),
        _measure_outer(network),
    )


class _Steps:
    """Counts the tensors that are done with; a fused one is one."""

    def __init__(self, on_progress: OnProgress | None, network: MappedNetwork) -> None:
        self.on_progress = on_progress
        self.total = len(network.read) + len(network.skipped)
        self.done = set(network.skipped)

    def start(self, *tensors: StoredTensor) -> None:
        if self.on_progress is not None and tensors:
            self.on_progress(len(self.done), self.total, tensors[0].name)
        self.done |= {tensor.name for tensor in tensors}


def _measure_layer(layer: MappedLayer, geometry: HeadGeometry, steps: _Steps) -> LayerMeasures:
    weights, matrices = layer.weights, {}
    biases = {
        role: layer.vectors[f"{role}_bias"].read()
        for role in ("query", "key", "value", "output")
        if f"{role}_bias" in layer.vectors
    }
    steps.start(weights["query"].tensor, weights["key"].tensor)
    query, key = layer.read("query"), layer.read("key")
    query_key = _per_head(geometry, query, key, grouped=(False, True))
    queries, keys = _factors(geometry, query, False), _factors(geometry, key, True)
    lengths = [_bias_lengths(geometry, head, biases, key) for head in range(geometry.heads)]
    del query, key
    steps.start(weights["value"].tensor, weights["output"].tensor)
    value, output = layer.read("value"), layer.read("output")
    value_output = _per_head(geometry, value, output.T, grouped=(True, False))
    values = _factors(geometry, value, True)
    del value
    together = _attention_bias(geometry, biases, output)
    matrices["output"] = measure_matrix(output.T)
    del output
    for role in ("feed_in", "feed_gate", "feed_out"):
        if role in weights:
            steps.start(weights[role].tensor)
            matrices[role] = measure_matrix(layer.read(role).T)
    steps.start(*(mapped.tensor for mapped in layer.vectors.values()))
    factors = zip(queries, keys, values, strict=True)
    heads = zip(query_key, value_output, factors, lengths, strict=True)
    return LayerMeasures(
        layer.label,
        tuple(
            HeadMeasures(number, scores, mixing, dict(zip(ATTENTION, three, strict=True)), length)
            for number, (scores, mixing, three, length) in enumerate(heads)
        ),
        matrices,
        {name: _length(mapped) for name, mapped in sorted(layer.vectors.items())},
        {
            name.removesuffix("_weight"): _largest(mapped)
            for name, mapped in sorted(layer.vectors.items())
            if name.startswith("norm") and name.endswith("_weight")
        },
        together,
    )


def _factors(
    geometry: HeadGeometry, matrix: NDArray[np.float64], grouped: bool
) -> list[MatrixMeasures]:
    """The measures of each head's own columns; heads that share them share the measures."""
    count = geometry.kv_heads if grouped else geometry.heads
    found = [measure_matrix(matrix[geometry.rows(part)].T) for part in range(count)]
    return [found[head * count // geometry.heads] for head in range(geometry.heads)]


def _bias_lengths(
    geometry: HeadGeometry, head: int, biases: dict[str, Any], key: NDArray[np.float64]
) -> dict[str, float]:
    """‖b_Q‖, ‖b_K‖ and ‖W_Kb_Q‖ of a head."""
    own, shared, found = geometry.rows(head), geometry.kv_rows(head), {}
    if "query" in biases:
        found["query"] = _norm(biases["query"][own])
        found["score"] = _norm(biases["query"][own] @ key[shared])
    if "key" in biases:
        found["key"] = _norm(biases["key"][shared])
    return found


def _attention_bias(
    geometry: HeadGeometry, biases: dict[str, Any], output: NDArray[np.float64]
) -> float | None:
    """‖b_VW_O + b_O‖: weights of attention add up to 1, so that b_V passes as it is."""
    if not {"value", "output"} & set(biases):
        return None
    total = np.zeros(geometry.width)
    if "value" in biases:
        parts = [biases["value"][geometry.kv_rows(head)] for head in range(geometry.heads)]
        total = output @ np.concatenate(parts)
    return _norm(total + biases.get("output", 0.0))


def _measure_outer(network: MappedNetwork) -> dict[str, OuterMeasures]:
    """Norms and a projection beside the layers."""
    found = {}
    for role in OUTER:
        weight, bias = (network.outer.get(f"{role}_{kind}") for kind in ("weight", "bias"))
        if weight is None:
            continue
        length = None if bias is None else _length(bias)
        if role == "projection":
            found[role] = OuterMeasures(matrix=measure_matrix(weight.read().T), bias=length)
        else:
            found[role] = OuterMeasures(gain=_largest(weight), bias=length)
    return found


def _per_head(
    geometry: HeadGeometry,
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    grouped: tuple[bool, bool],
) -> list[MatrixMeasures]:
    """The measures of AᵀB for the rows of A and B that belong to each head."""
    found = []
    for head in range(geometry.heads):
        own, shared = geometry.rows(head), geometry.kv_rows(head)
        parts = (shared if each else own for each in grouped)
        found.append(measure_product(left[next(parts)], right[next(parts)]))
    return found


def _length(mapped: MappedMatrix) -> float:
    return _norm(mapped.read())


def _largest(mapped: MappedMatrix) -> float:
    return float(np.abs(mapped.read()).max(initial=0.0))


def _norm(vector: NDArray[np.float64]) -> float:
    """The Euclidean length, of numbers of any size."""
    return measure_matrix(vector[None]).frobenius if vector.any() else 0.0


def _row_blocks(tensor: StoredTensor) -> Iterator[NDArray[np.float64]]:
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise InputError(
            f"{tensor.name} is not an embedding table: found shape {tensor.shape}, expected two "
            "axes with entries."
        )
    return tensor.blocks(max(1, BLOCK // tensor.shape[1]))


def _measure_table(tensor: StoredTensor) -> dict[str, float]:
    """The largest row of an embedding and its Frobenius norm, a block of rows at a time."""
    largest, total = 0.0, 0.0
    for rows in _row_blocks(tensor):
        norms = np.linalg.norm(rows, axis=1)
        largest, total = (
            largest_of(largest, float(norms.max())),
            np.hypot(total, np.linalg.norm(norms)),
        )
    return {
        "rows": tensor.shape[0],
        "columns": tensor.shape[1],
        "largest_row": largest,
        "frobenius": float(total),
    }


def _tied(network: MappedNetwork) -> tuple[str, ...]:
    """The unembedding, where it is an embedding stored a second time."""
    last = network.unembedding
    if last is None:
        return ()
    for first in network.embeddings.values():
        if first.shape == last.shape:
            pairs = zip(_row_blocks(first), _row_blocks(last), strict=True)
            if all(np.array_equal(*pair) for pair in pairs):
                return (last.name,)
    return ()
