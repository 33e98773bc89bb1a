"""Reads what `saving` wrote, and believes nothing of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compiled import Compiled
from finetti.boolean.compiler.compiler_options import MAX_BYTES
from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings import position_vectors as kinds
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions
from finetti.boolean.embeddings.token_embedding import Embedding, HeadMatrices
from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.families import Symmetric
from finetti.boolean.language.gate_graph import Gates, split
from finetti.boolean.language.parser import parse
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.language.truth_table import TruthTable
from finetti.boolean.network.block import Block
from finetti.boolean.network.gate_heads import make_blocks, make_keys
from finetti.boolean.network.lookup import LOOKUP_NAMES, Lookup
from finetti.boolean.saving import FORMAT, READERS
from finetti.boolean.words import counted
from finetti.core.errors import InputError
from finetti.core.files import file_size

MAX_FILE_BYTES = 4 * MAX_BYTES
METADATA = ("function", "context_length", "width", "embedding")
HEAD = ("tokens", "cls", "query", "key", "value", "output")
Tensors = dict[str, NDArray[Any]]


def recover(described: Any) -> BooleanFunction:
    """The function that `describe_function` described."""
    if not isinstance(described, dict):
        raise InputError(f"a function is described by names and values, not by {described!r}")
    if not isinstance(described.get("rule", ""), str):
        raise InputError(f"a rule is text, not {described['rule']!r}")
    if "rule" in described:
        return parse(described["rule"])
    if "profile" in described:
        return Symmetric(described["indices"], described["profile"])
    return TruthTable(described["indices"], described["values"])


def load(path: str | Path, max_bytes: int = MAX_FILE_BYTES) -> Compiled:
    """Read what `Compiled.save` wrote. Nothing is believed of it: its certificate is measured
    again. Files of more than ``max_bytes`` are refused.

    >>> import tempfile
    >>> from finetti.boolean import compile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = compile("x1 ^ x4", 8).save(Path(folder) / "rule.safetensors")
    ...     load(saved).verify().exact
    True
    """
    path = Path(path)
    tensors, metadata = _read(path, max_bytes)
    missing = [name for name in METADATA if name not in metadata]
    if metadata.get("format") != FORMAT or missing:
        what = f"lacks {', '.join(missing)}" if missing else f"is not of the format {FORMAT}"
        raise InputError(
            f"The file {path.name!r} {what}. Write one with `Compiled.save` or "
            "`finetti compile --out`."
        )
    if metadata["embedding"] not in EMBEDDINGS:
        raise InputError(
            f"The file {path.name!r} names none of the embeddings {', '.join(EMBEDDINGS)}."
        )
    try:
        size = int(metadata["context_length"]), int(metadata["width"])
        function = recover(json.loads(metadata["function"]))
        settings = _settings(json.loads(metadata.get("settings", "{}")))
        if size[0] < 1 or max(function.indices, default=-1) >= size[0]:
            top, bits = max(function.indices, default=0), counted(size[0], "bit")
            raise InputError(f"its rule uses x{top}, and its context has {bits}")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        # A damaged rule, too, is a ValueError.
        said = str(error).rstrip(".")
        raise InputError(f"The metadata of {path.name!r} cannot be read: {said}.") from error
    positions = _positions(path, tensors, metadata.get("positions", "dense"), *size)
    _refuse_misfit(path, "positions", (positions.count, positions.width), size)
    if isinstance(positions, kinds.SignPositions):
        packed = (size[0], -(-(size[1] - RESERVED) // 8))
        _refuse_misfit(path, "embedding.position_signs", positions.bits.shape, packed)
    settings |= {"embedding": metadata["embedding"]}
    parts = find_embedding(metadata["embedding"]), positions
    made_as = {"function": function, "settings": settings}
    if _has_gates(tensors, metadata):
        return Compiled.build(*parts, *_gate_blocks(path, tensors, function, *parts), **made_as)
    found = _cls_matrices(path, tensors, positions.width)
    lookup = Lookup(**{name: found.get(name) for name in LOOKUP_NAMES})  # pyright: ignore
    block = Block.at_cls(HeadMatrices(*(found[name] for name in HEAD[2:])), lookup)
    return replace(
        Compiled.build(*parts, (block,), **made_as), tokens=found["tokens"], cls=found["cls"]
    )


def _has_gates(tensors: Tensors, metadata: dict[str, str]) -> bool:
    """Whether gates read, or [CLS]. Files of an earlier version say so by the names of what they
    keep of gates, which get today's names and shapes."""
    old = [name for name in tensors if name.endswith((".keys", ".scales"))]
    for name in old:
        new, array = name.replace(".keys", ".key").replace(".scales", ".query"), tensors.pop(name)
        tensors[new] = array[..., None] if name.endswith(".keys") else array[..., None, None]
    return metadata.get("readers", READERS[bool(old)]) == READERS[True]


def _read(path: Path, max_bytes: int) -> tuple[Tensors, dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    size = file_size(path)
    if size > max_bytes:
        raise InputError(
            f"The file {path.name!r} has {size} bytes; at most {max_bytes} are read. Load larger "
            "ones in Python with `max_bytes`."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
            metadata = file.metadata() or {}
    # Of numbers that NumPy does not have come the errors of types and attributes.
    except (OSError, TypeError, AttributeError, SafetensorError) as error:
        said = f"The file {path.name!r} cannot be read as safetensors: {error}."
        raise InputError(said) from error
    for name, array in tensors.items():
        if array.dtype.kind not in "fiub":
            raise InputError(f"{name[:80]!r} in {path.name!r} holds no real numbers.")
    return tensors, metadata


def _settings(found: Any) -> dict[str, Any]:
    """How a network was made, as its file says; a margin is a number of at least 1."""
    if not isinstance(found, dict):
        raise InputError(f"settings are names and values, not {found!r}")
    margin = found.get("margin", 1.0)
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 1 <= margin < np.inf:
        raise InputError(f"the margin is a finite number of at least 1, not {margin!r}")
    return found


def _positions(path: Path, tensors: Tensors, kind: str, count: int, width: int) -> BitPositions:
    try:
        if kind == "signs":
            return kinds.SignPositions(tensors["embedding.position_signs"].astype(np.uint8), width)
        if kind == "sparse":
            indices = tensors["embedding.position_indices"]
            vectors = tensors["embedding.position_vectors"].astype(np.float64)
            if vectors.shape != (indices.size, width):
                raise ValueError(f"{indices.size} indices and vectors of shape {vectors.shape}")
            if indices.size and not 0 <= indices.min() <= indices.max() < count:
                raise ValueError("an index lies outside the context")
            return kinds.SparsePositions(count, tuple(map(int, indices)), vectors)
        if kind == "standard":
            if width < RESERVED + count:
                raise ValueError(f"{count} unit vectors need more than {width} dimensions")
            return kinds.StandardPositions(count, width)
        if kind == "dense":
            return kinds.DensePositions(tensors["embedding.positions"].astype(np.float64))
        raise ValueError(f"{kind!r} is not one of dense, signs, sparse, standard")
    except (KeyError, ValueError, IndexError, TypeError) as error:
        said = str(error).rstrip(".")
        raise InputError(f"The positions in {path.name!r} cannot be read: {said}.") from error


def _refuse_misfit(path: Path, name: str, shape: tuple[int, ...], needed: tuple[int, ...]) -> None:
    """Refuse a matrix that does not fit together with others, before it is multiplied."""
    if shape != needed:
        raise InputError(
            f"The file {path.name!r} does not fit together: {name} has shape {shape}, and "
            f"{needed} is needed."
        )


def _cls_matrices(path: Path, tensors: Tensors, width: int) -> Tensors:
    """All that a network at [CLS] has, by short names, if its shapes fit together."""
    names = {name: f"embedding.{name}" for name in HEAD[:2]}
    names |= {name: f"blocks.0.{name}" for name in HEAD[2:] + LOOKUP_NAMES}
    optional = ("middle", "middle_bias")
    missing = [full for name, full in names.items() if full not in tensors and name not in optional]
    if missing:
        raise InputError(f"The file {path.name!r} lacks {', '.join(missing)}.")
    found = {n: tensors[full].astype(np.float64) for n, full in names.items() if full in tensors}
    heads, _, key_size = (*found["query"].shape, 0, 0, 0)[:3]
    heads = max(1, heads)
    values, features = (*found["output"].shape, 0, 0, 0)[1:3]
    n_bumps, n_units = found["inner_bias"].size, found["outer"].size
    needed = {
        "tokens": (2, width),
        "cls": (width,),
        "query": (heads, width, key_size),
        "key": (heads, width, key_size),
        "value": (heads, width, values),
        "output": (heads, values, features),
        "inner": (features, n_bumps),
        "inner_bias": (n_bumps,),
        "middle": (n_bumps, n_units),
        "middle_bias": (n_units,),
        "outer": (n_units if "middle" in found else n_bumps,),
    }
    for name, array in found.items():
        _refuse_misfit(path, names[name], array.shape, needed[name])
    return found


def _gate_blocks(
    path: Path,
    tensors: Tensors,
    function: BooleanFunction,
    embedding: Embedding,
    positions: BitPositions,
) -> tuple[tuple[Block, ...], Gates]:
    """The rule gives the structure, the file the numbers."""
    if not isinstance(function, ExpressionRule):
        raise InputError(f"The file {path.name!r} has gates and no rule that made them.")
    if embedding.no_gates:
        raise InputError(f"The file {path.name!r} has gates, and a bag of vectors has none.")
    gates = split(function)
    built = make_blocks(gates, make_keys(gates, positions), 1.0)
    return tuple(_filled(path, tensors, *each) for each in enumerate(built)), gates


def _filled(path: Path, tensors: Tensors, number: int, block: Block) -> Block:
    found = {}
    for name, array in block.arrays.items():
        stored, shape = tensors.get(f"blocks.{number}.{name}"), array.shape
        if stored is None or stored.shape != shape:
            got = "is not there" if stored is None else f"has shape {stored.shape}"
            raise InputError(
                f"The file {path.name!r} does not fit its rule: blocks.{number}.{name} {got}, and "
                f"{shape} is needed."
            )
        found[name] = stored.astype(np.float64)
    return block.changed(**found)
