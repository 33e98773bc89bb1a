"""Networks as files: safetensors with the rule in the metadata, or a PyTorch module.

Both have the same names for the same matrices.
"""

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings import position_vectors as kinds
from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.words import short_text
from finetti.core.errors import InputError, bad_argument
from finetti.core.files import check_writable, write_file

FORMAT = "finetti-boolean-1"
READERS = ("[CLS]", "gates")
MAX_DENSE_BYTES = 2**28  # of positions that are written out, so that any reader has them


def describe_function(function: BooleanFunction) -> dict[str, Any]:
    """A function as plain data."""
    if isinstance(function, ExpressionRule):
        return {"rule": str(function)}
    indices = list(function.indices)
    if (profile := function.profile()) is not None:
        return {"indices": indices, "profile": profile.tolist()}
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


def check_torch_place(path: str | Path) -> None:
    """Refuse a place, or an installation, where `save_torch` would fail."""
    path = Path(path)
    if path.suffix != ".pt":
        advice = "The module that reads it is written beside it, with the suffix .py."
        raise bad_argument("path", "save_torch", "a name that ends in .pt", path.name, advice)
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "A PyTorch module cannot be written without PyTorch, which is not installed. Install "
            "it (pip install 'finetti[torch]'), or write safetensors, which need no PyTorch."
        )
    for each in (path, path.with_suffix(".py")):
        check_writable(each)


def save_torch(path: str | Path, weights: dict[str, NDArray[Any]], rule: str) -> tuple[Path, Path]:
    """Write a state dict to ``path`` and beside it the module that computes it (`rule_in_torch`,
    which imports PyTorch only)."""
    check_torch_place(path)
    import torch

    module = (
        Path(__file__).with_name("network").joinpath("rule_in_torch.py").read_text(encoding="utf-8")
    )
    module = module.replace("A compiled Boolean rule as", f"{short_text(rule, 40)} as", 1)
    stored = io.BytesIO()
    torch.save({name: torch.tensor(each) for name, each in weights.items()}, stored)
    beside = Path(path).with_suffix(".py")
    return (
        write_file(stored.getvalue(), path),
        write_file(module.encode(), beside),
    )
