"""Networks of gates as safetensors files: the rule gives the structure, the file the numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compose.block import Block, Layout, make_block
from finetti.boolean.compose.composed import Composed
from finetti.boolean.compose.composer import lay_out
from finetti.boolean.compose.gates import split
from finetti.boolean.functions.expressions import Rule
from finetti.boolean.network.positions import Positions
from finetti.core.errors import InputError

LOOKUP = ("inner", "inner_bias", "middle", "middle_bias", "outer")


def network_tensors(composed: Composed) -> dict[str, NDArray[Any]]:
    """Per block: the key and the R of every read, and the lookup on the coordinates it reads."""
    named = {}
    for number, block in enumerate(composed.blocks):
        arrays = {name: getattr(block, name) for name in LOOKUP}
        arrays["keys"] = np.stack([read.key for read in block.reads])
        arrays["scales"] = np.array([read.scale for read in block.reads])
        named |= {f"blocks.{number}.{name}": array for name, array in arrays.items()}
    return named


def build_network(
    path: Path, rule: Rule, positions: Positions, tensors: dict[str, NDArray[Any]], settings: Any
) -> Composed:
    """The network of ``rule`` with the numbers of a file in it."""
    gates = split(rule)
    layout = lay_out(gates, positions)
    depth = max(gate.level for gate in gates)
    blocks = tuple(
        _filled(path, make_block(gates, level, layout), layout, level - 1, tensors)
        for level in range(1, depth + 1)
    )
    return Composed(rule, gates, layout, blocks, settings)


def _filled(
    path: Path, block: Block, layout: Layout, number: int, tensors: dict[str, NDArray[Any]]
) -> Block:
    wanted = {name: getattr(block, name).shape for name in LOOKUP}
    wanted |= {"keys": (len(block.reads), layout.width), "scales": (len(block.reads),)}
    found = {}
    for name, shape in wanted.items():
        array = tensors.get(f"blocks.{number}.{name}")
        if array is None or array.shape != shape:
            got = "is not there" if array is None else f"has shape {array.shape}"
            raise InputError(
                f"The file {path.name!r} does not fit its rule: blocks.{number}.{name} {got}, and "
                f"{shape} is needed."
            )
        found[name] = array.astype(np.float64)
    keys, scales = found.pop("keys"), found.pop("scales")
    reads = tuple(
        replace(read, key=key, scale=float(scale))
        for read, key, scale in zip(block.reads, keys, scales, strict=True)
    )
    return replace(block, reads=reads, **found)
