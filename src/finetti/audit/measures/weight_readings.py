"""The one way through a checkpoint: every weight is read once, as few at a time as belong together.

Whoever measures weights, or compares them with those of a base, takes them from here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from finetti.audit.checkpoint import Checkpoint
from finetti.audit.layouts.tensor_mapping import MappedLayer, MappedMatrix
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.process_tuning import limit_threads

# Matrices of a layer that are in memory together, since a head is made of their products.
TOGETHER = (("query", "key"), ("value", "output"), ("feed_in",), ("feed_gate",), ("feed_out",))
BLOCK = 2**20  # entries of a table of embeddings that are read at the same time
WIDE = 2048
OnProgress = Callable[[int, int, str], None]
Part = Literal["vectors", "matrices", "outer", "tables"]


@dataclass(frozen=True)
class WeightReading:
    """Weights that are in memory now, by role.

    Of a layer (``label``) either all vectors or, after them, some matrices as (outputs, inputs);
    beside the layers (``label`` is empty) norms and a projection, or the same rows of tables of
    one shape.
    """

    label: str
    part: Part
    weights: dict[str, NDArray[np.float64]]


Take = Callable[[WeightReading, WeightReading | None], None]


def walk_weights(
    checkpoint: Checkpoint,
    take: Take,
    *,
    with_base: bool = False,
    on_progress: OnProgress | None = None,
) -> None:
    """Read every weight of a checkpoint once, and call ``take`` with a few at a time.

    Args:
        checkpoint: what is read.
        take: called with a reading, and with the same weights of the base or None.
        with_base: whether the base is read along.
        on_progress: called with tensors done, tensors in all, and the one that is next.
    """
    walk = _Walk(checkpoint, take, with_base, on_progress)
    # On busy cores threads of BLAS wait for each other far longer than a small matrix takes.
    with limit_threads(1 if checkpoint.geometry.width < WIDE else None, "blas"):
        walk.layers()
    walk.beside()
    walk.tables()


class _Walk:
    def __init__(
        self, checkpoint: Checkpoint, take: Take, with_base: bool, on_progress: OnProgress | None
    ) -> None:
        self.checkpoint, self.take, self.on_progress = checkpoint, take, on_progress
        self.base = checkpoint.base if with_base else None
        network = checkpoint.network
        self.total = len(network.read) + len(network.skipped)
        self.done = set(network.skipped)  # a fused tensor is one

    def start(self, tensors: Iterable[StoredTensor]) -> None:
        names = [tensor.name for tensor in tensors]
        if self.on_progress is not None and names:
            self.on_progress(len(self.done), self.total, names[0])
        self.done |= set(names)

    def layers(self) -> None:
        old: list[MappedLayer | None] = [None] * len(self.checkpoint.network.layers)
        if self.base is not None:
            old = [*self.base.network.layers]
        for layer, before in zip(self.checkpoint.network.layers, old, strict=True):
            self.read("vectors", layer, layer.vectors, before and before.vectors)
            for roles in TOGETHER:
                if roles[0] in layer.weights:
                    mine = {role: layer.weights[role] for role in roles}
                    base = before and {role: before.weights[role] for role in roles}
                    self.read("matrices", layer, mine, base)

    def beside(self) -> None:
        base = self.base and self.base.network.outer
        self.read("outer", None, self.checkpoint.network.outer, base)

    def read(
        self,
        part: Part,
        layer: MappedLayer | None,
        mine: dict[str, MappedMatrix],
        base: dict[str, MappedMatrix] | None,
    ) -> None:
        """Read weights of both; what both share, and what a step begins with, is read once."""
        self.start(mapped.tensor for mapped in mine.values())
        old = {role: each.read() for role, each in (base or {}).items()}
        new = {}
        for role, each in mine.items():
            step = None if layer is None else self.checkpoint.steps.get((layer.number, role))
            if base is not None and each.tensor is base[role].tensor:
                new[role] = old[role]
            elif base is not None and step is not None:
                new[role] = step.add_to(old[role])
            else:
                new[role] = each.read()
        if layer is not None and part == "matrices":
            for role, values in (*new.items(), *old.items()):
                layer.check_trained(role, values)
        label = "" if layer is None else layer.label
        self.take(
            WeightReading(label, part, new),
            None if base is None else WeightReading(label, part, old),
        )

    def tables(self) -> None:
        """Tables of one shape in step, so that tied ones are compared while they are read."""
        mine = _tables(self.checkpoint)
        base = {} if self.base is None else _tables(self.base)
        every = {id(tensor): tensor for tensor in (*mine.values(), *base.values())}
        for shape in {tensor.shape: None for tensor in every.values()}:
            tensors = {key: tensor for key, tensor in every.items() if tensor.shape == shape}
            self.start(tensors.values())
            rows = max(1, BLOCK // shape[1])
            for found in zip(*(each.blocks(rows) for each in tensors.values()), strict=True):
                blocks = dict(zip(tensors, found, strict=True))
                new, old = (
                    {name: blocks[id(each)] for name, each in tables.items() if id(each) in blocks}
                    for tables in (mine, base)
                )
                before = None if self.base is None else WeightReading("", "tables", old)
                self.take(WeightReading("", "tables", new), before)


def _tables(checkpoint: Checkpoint) -> dict[str, StoredTensor]:
    last = checkpoint.network.unembedding
    return checkpoint.network.embeddings | ({} if last is None else {"unembedding": last})
