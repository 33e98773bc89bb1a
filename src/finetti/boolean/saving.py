"""Networks as safetensors files: named matrices, and the rule in the metadata."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings import positions as kinds
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.functions.expressions import ExpressionRule
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.network.weights import Network
from finetti.core.files import write_file

FORMAT = "finetti-boolean-1"
READERS = ("[CLS]", "gates")
MAX_DENSE_BYTES = 2**28  # of positions that are written out, so that any reader has them


def describe_function(function: BooleanFunction) -> dict[str, Any]:
    """A function as plain data."""
    if isinstance(function, ExpressionRule):
        return {"rule": str(function)}
    indices = list(function.indices)
    if isinstance(function, Symmetric):
        return {"indices": indices, "profile": function.profile().tolist()}
    return {"indices": indices, "values": function.table().tolist()}


def _position_tensors(positions: kinds.BitPositions) -> tuple[str, dict[str, NDArray[Any]]]:
    """How positions are stored: written out, or in the form they are kept in."""
    size = 8 * positions.count * positions.width
    if size <= MAX_DENSE_BYTES or isinstance(positions, kinds.DensePositions):
        return "dense", {"embedding.positions": positions.dense()}
    if isinstance(positions, kinds.SignPositions):
        return "signs", {"embedding.position_signs": positions.bits}
    if isinstance(positions, kinds.SparsePositions):
        stored = {n: getattr(positions, n) for n in ("indices", "vectors")}
        return "sparse", {f"embedding.position_{name}": each for name, each in stored.items()}
    return "standard", {}


def save(
    path: str | Path, network: Network, function: BooleanFunction, settings: dict[str, Any]
) -> Path:
    """Write a network to ``path``; see `load`."""
    import safetensors.numpy

    form, vectors = _position_tensors(network.positions)
    metadata = {
        "format": FORMAT,
        "function": json.dumps(describe_function(function)),
        "context_length": str(network.positions.count),
        "width": str(network.positions.width),
        "embedding": network.embedding.name,
        "positions": form,
        "readers": READERS[bool(network.gates)],
        "settings": json.dumps(settings),
    }
    tensors = {
        name: np.ascontiguousarray(each) for name, each in (network.stored | vectors).items()
    }
    return write_file(safetensors.numpy.save(tensors, metadata), path)
