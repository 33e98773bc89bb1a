"""The tree of an expression: variables, constants, negation, and symmetric gates."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.families import Kind, by_ones
from finetti.boolean.language.rule import BooleanFunction

SIGNS = {"and": " & ", "or": " | ", "parity": " ^ "}
NAMES: dict[str, str] = {"majority": "maj"}  # of calls, where they differ from the kind
COUNTED = ("atleast", "exactly")


@dataclass(frozen=True)
class Variable:
    """x_i."""

    index: int

    def __str__(self) -> str:
        return f"x{self.index}"


@dataclass(frozen=True)
class TruthValue:
    """0 or 1."""

    value: bool

    def __str__(self) -> str:
        return str(int(self.value))


@dataclass(frozen=True)
class Negation:
    """~ of what follows."""

    child: "Node"

    def __str__(self) -> str:
        return f"~{self.child}"


@dataclass(frozen=True)
class Gate:
    """A symmetric function of its children; ``count`` is the number of atleast and exactly."""

    kind: Kind
    children: "tuple[Node, ...]"
    count: int = 0

    def of_counts(self, ones: NDArray[Any]) -> NDArray[np.bool_]:
        """The value, by the number of children that are 1."""
        return by_ones(self.kind, ones, len(self.children), self.count)

    def written(self, names: Iterable[str]) -> str:
        """The gate with these names for its children."""
        if self.kind in SIGNS:
            return f"({SIGNS[self.kind].join(names)})"
        count = f"{self.count}; " if self.kind in COUNTED else ""
        return f"{NAMES.get(self.kind, self.kind)}({count}{', '.join(names)})"

    def __str__(self) -> str:
        return self.written(map(str, self.children))


Node = Variable | TruthValue | Negation | Gate


def evaluate(node: Node, columns: Mapping[int, NDArray[Any]], size: int) -> NDArray[np.bool_]:
    """The value of the tree at ``size`` inputs; ``columns[i]`` holds their bits at index i."""
    if isinstance(node, Variable):
        return columns[node.index].astype(bool)
    if isinstance(node, TruthValue):
        return np.full(size, node.value)
    if isinstance(node, Negation):
        return ~evaluate(node.child, columns, size)
    ones = np.zeros(size, dtype=np.int64)
    for child in node.children:
        ones += evaluate(child, columns, size)
    return node.of_counts(ones)


def variables(node: Node) -> Iterator[int]:
    """The index of every leaf, as often as it appears."""
    if isinstance(node, Variable):
        yield node.index
    elif isinstance(node, Negation):
        yield from variables(node.child)
    elif isinstance(node, Gate):
        for child in node.children:
            yield from variables(child)


def _flat(node: Node) -> Node:
    """The same tree with ((a & b) & c) as one gate, and without double negations."""
    if isinstance(node, Negation):
        child = _flat(node.child)
        return child.child if isinstance(child, Negation) else Negation(child)
    if not isinstance(node, Gate):
        return node
    children = []
    for child in map(_flat, node.children):
        same = isinstance(child, Gate) and child.kind == node.kind and node.kind in SIGNS
        children += child.children if same and isinstance(child, Gate) else (child,)
    return Gate(node.kind, tuple(children), node.count)


class ExpressionRule(BooleanFunction):
    """A function given by an expression (`parse`), with values 0 and 1.

    Args:
        tree: its tree.
        text: as it was written, if not in normal form.
    """

    def __init__(self, tree: Node, text: str = ""):
        self.tree = tree
        self.text = text or self.normal_form
        self.indices = tuple(sorted(set(variables(tree))))

    def evaluate(self, bits: NDArray[Any]) -> NDArray[np.float64]:
        """The value of each row."""
        columns = {each: bits[:, k] for k, each in enumerate(self.indices)}
        return evaluate(self.tree, columns, len(bits)).astype(np.float64)

    def profile(self) -> NDArray[np.float64] | None:
        """Known at once if the rule is one gate of distinct variables, or the negation of one."""
        tree = _flat(self.tree)
        gate = tree.child if isinstance(tree, Negation) else tree
        if not isinstance(gate, Gate) or len(gate.children) != self.sparsity:
            return None
        if not all(isinstance(child, Variable) for child in gate.children):
            return None
        values = gate.of_counts(np.arange(self.sparsity + 1))
        return (values ^ isinstance(tree, Negation)).astype(np.float64)

    def values(self) -> NDArray[np.float64]:
        """0 and 1, whatever the number of its bits."""
        return np.array([0.0, 1.0])

    @property
    def normal_form(self) -> str:
        """The tree as text: comparisons as atleast(…) and exactly(…)."""
        text = str(self.tree)
        top = isinstance(self.tree, Gate) and self.tree.kind in SIGNS
        return text[1:-1] if top else text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"parse({self.text!r})"
