"""From a checkpoint to its norms: weights are measured as they are read, layer by layer."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from finetti.audit.checkpoint import Checkpoint
from finetti.audit.layouts.block_design import read_design
from finetti.audit.layouts.layout_table import ATTENTION, OUTER
from finetti.audit.measures.matrix_norms import MatrixMeasures, measure_matrix, measure_product
from finetti.audit.measures.measurements import (
    Audit,
    HeadMeasures,
    LayerMeasures,
    OuterMeasures,
)
from finetti.audit.measures.weight_readings import OnProgress, WeightReading, walk_weights
from finetti.core.numerics.extremes import largest_of

Array = NDArray[np.float64]


def measure_checkpoint(checkpoint: Checkpoint, *, on_progress: OnProgress | None = None) -> Audit:
    """Return the norms of every head and matrix of a checkpoint.

    Args:
        checkpoint: of `open_checkpoint`.
        on_progress: called with tensors done, tensors in all, and the one that is next.

    >>> from finetti.audit import open_checkpoint
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    >>> weights = {f"layers.0.self_attn.{k}": rng.normal(size=v) for k, v in shapes.items()}
    >>> found = measure_checkpoint(open_checkpoint(weights, heads=2))
    >>> found.layout, len(found.layers[0].heads), found.layers[0].heads[0].query_key.rank
    ('torch', 2, 2)
    """
    measurement = CheckpointMeasurement(checkpoint)
    walk_weights(checkpoint, lambda mine, base: measurement.add(mine), on_progress=on_progress)
    return measurement.audit()


class CheckpointMeasurement:
    """What was measured of a checkpoint so far."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.layers: list[_Layer] = []
        self.outer: dict[str, OuterMeasures] = {}
        self.tables: dict[str, dict[str, float]] = {}
        self.differ: set[str] = set()  # embeddings that are not the unembedding

    def add(self, reading: WeightReading) -> None:
        """Measure what was read."""
        if reading.part == "vectors":
            self.layers.append(_Layer(self.checkpoint, reading.label, reading.weights))
        elif reading.part == "matrices":
            self.layers[-1].add(reading.weights)
        elif reading.part == "outer":
            self.outer = _measure_outer(reading.weights)
        else:
            self._add_rows(reading.weights)

    def _add_rows(self, tables: dict[str, Array]) -> None:
        """The largest row of an embedding and its Frobenius norm, a block of rows at a time."""
        for name, rows in tables.items():
            norms = np.linalg.norm(rows, axis=1)
            found = self.tables.setdefault(name, {"largest_row": 0.0, "frobenius": 0.0})
            found["largest_row"] = largest_of(found["largest_row"], float(norms.max()))
            found["frobenius"] = float(np.hypot(found["frobenius"], np.linalg.norm(norms)))
            if name != "unembedding":
                last = tables.get("unembedding")
                if last is None or not np.array_equal(rows, last):
                    self.differ.add(name)

    def audit(self) -> Audit:
        """Return all measures; everything was read."""
        checkpoint, network = self.checkpoint, self.checkpoint.network
        shapes = {name: tensor.shape for name, tensor in network.embeddings.items()}
        tied: tuple[str, ...] = ()
        if network.unembedding is not None:
            if set(shapes) <= self.differ:
                shapes["unembedding"] = network.unembedding.shape
            else:
                tied = (network.unembedding.name,)
        sizes = [checkpoint.tensors[name].size for name in network.read if name not in tied]
        return Audit(
            name=checkpoint.name,
            layout=network.layout.name,
            geometry=checkpoint.geometry,
            layers=tuple(layer.measures() for layer in self.layers),
            embeddings={
                name: {"rows": shape[0], "columns": shape[1], **self.tables[name]}
                for name, shape in shapes.items()
            },
            n_parameters=sum(sizes),
            read=network.read,
            skipped=network.skipped,
            tied=tied,
            note=network.layout.note,
            design=read_design(network.layout, checkpoint.config, network.unread),
            outer=self.outer,
        )


@dataclass
class _Layer:
    """What was measured of a layer so far; the products and factors of heads by their names."""

    checkpoint: Checkpoint
    label: str
    vectors: dict[str, Array]
    heads: dict[str, list[MatrixMeasures]] = field(default_factory=dict)
    biases: list[dict[str, float]] = field(default_factory=list)
    matrices: dict[str, MatrixMeasures] = field(default_factory=dict)
    attention_bias: float | None = None

    def add(self, weights: dict[str, Array]) -> None:
        """Measure matrices of the layer."""
        geometry = self.checkpoint.geometry
        for role in ATTENTION:
            if role in weights:
                self.heads[role] = self._factors(role, weights[role])
        own, shared = (
            [rows(head) for head in range(geometry.heads)]
            for rows in (geometry.rows, geometry.kv_rows)
        )
        if "key" in weights:
            query, key = weights["query"], weights["key"]
            pairs = zip(own, shared, strict=True)
            self.heads["query_key"] = [measure_product(query[q], key[k]) for q, k in pairs]
            pairs = zip(own, shared, strict=True)
            self.biases = [self._bias_lengths(q, k, key) for q, k in pairs]
        elif "value" in weights:
            value, output = weights["value"], weights["output"]
            pairs = zip(own, shared, strict=True)
            self.heads["value_output"] = [measure_product(value[v], output.T[o]) for o, v in pairs]
            self.attention_bias = self._attention_bias(output)
        for role in set(weights) - set(ATTENTION):
            self.matrices[role] = measure_matrix(weights[role].T)

    def _factors(self, role: str, matrix: Array) -> list[MatrixMeasures]:
        """The measures of each head's own columns; heads that share them share the measures."""
        geometry = self.checkpoint.geometry
        count = geometry.heads if role == "query" else geometry.kv_heads
        found = [measure_matrix(matrix[geometry.rows(part)].T) for part in range(count)]
        return [found[head * count // geometry.heads] for head in range(geometry.heads)]

    def _bias_lengths(self, own: slice, shared: slice, key: Array) -> dict[str, float]:
        """‖b_Q‖, ‖b_K‖ and ‖W_Kb_Q‖ of a head."""
        found = {}
        if "query_bias" in self.vectors:
            bias = self.vectors["query_bias"][own]
            found["query"] = _length(bias)
            found["score"] = _length(bias @ key[shared])
        if "key_bias" in self.vectors:
            found["key"] = _length(self.vectors["key_bias"][shared])
        return found

    def _attention_bias(self, output: Array) -> float | None:
        """‖b_VW_O + b_O‖: weights of attention add up to 1, so that b_V passes as it is."""
        geometry = self.checkpoint.geometry
        if not {"value_bias", "output_bias"} & set(self.vectors):
            return None
        total = np.zeros(geometry.width)
        if "value_bias" in self.vectors:
            bias = self.vectors["value_bias"]
            parts = [bias[geometry.kv_rows(head)] for head in range(geometry.heads)]
            total = output @ np.concatenate(parts)
        return _length(total + self.vectors.get("output_bias", 0.0))

    def measures(self) -> LayerMeasures:
        """Return all measures of the layer."""
        heads = tuple(
            HeadMeasures(
                number,
                self.heads["query_key"][number],
                self.heads["value_output"][number],
                {role: self.heads[role][number] for role in ATTENTION},
                lengths,
            )
            for number, lengths in enumerate(self.biases)
        )
        vectors = dict(sorted(self.vectors.items()))
        gains = {
            name.removesuffix("_weight"): _largest(vector)
            for name, vector in vectors.items()
            if name.startswith("norm") and name.endswith("_weight")
        }
        lengths = {name: _length(vector) for name, vector in vectors.items()}
        return LayerMeasures(self.label, heads, self.matrices, lengths, gains, self.attention_bias)


def _measure_outer(weights: dict[str, Array]) -> dict[str, OuterMeasures]:
    """Norms and a projection beside the layers."""
    found = {}
    for role in OUTER:
        weight, bias = (weights.get(f"{role}_{kind}") for kind in ("weight", "bias"))
        if weight is None:
            continue
        length = None if bias is None else _length(bias)
        if role == "projection":
            found[role] = OuterMeasures(matrix=measure_matrix(weight.T), bias=length)
        else:
            found[role] = OuterMeasures(gain=_largest(weight), bias=length)
    return found


def _length(vector: Array) -> float:
    """Return the Euclidean length, of numbers of any size."""
    return math.hypot(*vector.tolist())


def _largest(vector: Array) -> float:
    return float(np.abs(vector).max(initial=0.0))
