"""Networks of gates as safetensors files: the rule gives the structure, the file the numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compose.block import Block, Layout
from finetti.boolean.compose.composed import Composed
from finetti.boolean.compose.composer import make_blocks
from finetti.boolean.compose.gates import split
from finetti.boolean.compose.layouts import place
from finetti.boolean.compose.recognition import Recognition
from finetti.boolean.functions.expressions import Rule
from finetti.boolean.network.positions import Positions
from finetti.core.errors import InputError

LOOKUP = ("inner", "inner_bias", "middle", "middle_bias", "outer")


def network_tensors(composed: Composed) -> dict[str, NDArray[Any]]:
    """Per block: the key (on positions and gates) and the R of every read, and the lookup."""
    named = {}
    for number, block in enumerate(composed.blocks):
        arrays = {name: getattr(block.lookup, name) for name in LOOKUP}
        arrays |= {"keys": block.keys, "scales": block.scales}
        named |= {f"blocks.{number}.{name}": array for name, array in arrays.items()}
    return named


def build_network(
    path: Path, rule: Rule, positions: Positions, tensors: dict[str, NDArray[Any]], settings: Any
) -> Composed:
    """The network of ``rule`` with the numbers of a file in it."""
    gates = split(rule)
    placed = place(gates, positions)
    blocks = make_blocks(gates, placed, 1.0)
    filled = tuple(
        _filled(path, block, placed.layout, number, tensors) for number, block in enumerate(blocks)
    )
    return Composed(rule, gates, placed.layout, filled, settings)


def _filled(
    path: Path, block: Block, layout: Layout, number: int, tensors: dict[str, NDArray[Any]]
) -> Block:
    wanted = {name: getattr(block.lookup, name).shape for name in LOOKUP}
    wanted |= {"keys": (len(block.reads), layout.key_width), "scales": (len(block.reads),)}
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
    return replace(block, keys=keys, scales=scales, lookup=Recognition(**found))
