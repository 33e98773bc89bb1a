"""Takes the tree of a rule apart into gates, level by level."""

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.expression import (
    ExpressionRule,
    Gate,
    Negation,
    Node,
    TruthValue,
    Variable,
)
from finetti.boolean.language.families import Family
from finetti.boolean.language.rule import MAX_SETTING_BITS, BooleanFunction, all_bits
from finetti.boolean.language.simplify import without_idle
from finetti.boolean.words import short_text
from finetti.core.errors import InputError, bad_argument

MAX_COUNTS = 2**16  # numbers of ones, of all groups together, that a gate tells apart


@dataclass(frozen=True)
class Source:
    """What a gate reads: a bit of the input (``is_gate`` False), or an earlier gate."""

    is_gate: bool
    index: int

    def __str__(self) -> str:
        return f"g{self.index}" if self.is_gate else f"x{self.index}"


@dataclass(frozen=True, eq=False)
class SparseGate:
    """A function of the number of ones in each of a few groups of sources.

    One group is enough for AND, OR, parity and the like; negated sources are a second one. So a
    gate of 50 inputs has 51 points, or 26 · 26, and never 2^50."""

    level: int  # its block
    groups: tuple[tuple[Source, ...], ...]  # the sources; inside a group they can be exchanged
    grid: NDArray[np.bool_]  # the value by the numbers of ones, shape (s_1 + 1, s_2 + 1, …)
    text: str  # the gate as people write it

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """All sources, group by group."""
        return tuple(source for group in self.groups for source in group)

    @property
    def function(self) -> tuple[tuple[int, ...], bytes]:
        """What the gate computes, whatever its sources are: equal gates share their lookup."""
        return self.grid.shape, self.grid.tobytes()


Gates = tuple[SparseGate, ...]
Literal = tuple[Source, bool] | bool  # a source and whether it is negated, or a constant
Groups = list[tuple[Source, ...]]


class _Splitter:
    def __init__(self) -> None:
        self.gates: list[SparseGate] = []
        self.known: dict[Gate, Literal] = {}

    def level(self, source: Source) -> int:
        return self.gates[source.index].level if source.is_gate else 0

    def literal(self, node: Node) -> Literal:
        if isinstance(node, Variable):
            return Source(False, node.index), False
        if isinstance(node, TruthValue):
            return node.value
        if isinstance(node, Negation):
            inside = self.literal(node.child)
            return not inside if isinstance(inside, bool) else (inside[0], not inside[1])
        if node not in self.known:
            self.known[node] = self.gate(node)
        return self.known[node]

    def gate(self, node: Gate) -> Literal:
        """The gate as a function of Σ_i c_i b_i + offset: a negated source counts −1, one that is
        written twice 2, and one that is there with and without negation 0."""
        parts = [self.literal(child) for child in node.children]
        offset, weights = 0, dict[Source, int]()
        for part in parts:
            if isinstance(part, bool):
                offset += part
            else:
                source, negated = part
                offset += negated
                weights[source] = weights.get(source, 0) + (-1 if negated else 1)
        by_weight: dict[int, list[Source]] = {}
        for source, weight in weights.items():
            if weight:
                by_weight.setdefault(weight, []).append(source)
        size = math.prod(len(group) + 1 for group in by_weight.values())
        if size > MAX_COUNTS:
            raise InputError(
                f"The gate {short_text(str(node))} repeats its inputs in {len(by_weight)} ways, so "
                f"that {size} numbers of ones must be told apart; gates end at {MAX_COUNTS}. Split "
                "it into smaller ones with parentheses."
            )
        ones = np.array(offset)
        for weight, group in by_weight.items():
            ones = ones[..., None] + weight * np.arange(len(group) + 1)
        groups: Groups = [tuple(group) for group in by_weight.values()]
        groups, grid = _merged(*without_idle(groups, node.of_counts(ones)))
        if not groups:
            return bool(grid)
        if len(groups) == 1 == len(groups[0]):
            return groups[0][0], bool(grid[0])
        names = [
            str(int(part)) if isinstance(part, bool) else f"{'~' * part[1]}{part[0]}"
            for part in parts
        ]
        return self.add(tuple(groups), grid, node.written(names)), False

    def add(
        self, groups: tuple[tuple[Source, ...], ...], grid: NDArray[np.bool_], text: str
    ) -> Source:
        level = 1 + max(self.level(source) for group in groups for source in group)
        self.gates.append(SparseGate(level, groups, np.ascontiguousarray(grid), text))
        return Source(True, len(self.gates) - 1)


def _merged(groups: Groups, grid: NDArray[np.bool_]) -> tuple[Groups, NDArray[np.bool_]]:
    """With groups joined whose numbers of ones matter by their sum only, as in ~x1 ^ x2."""
    for first in range(len(groups)):
        for second in range(first + 1, len(groups)):
            front = np.moveaxis(grid, (first, second), (0, 1))
            total = len(groups[first]) + len(groups[second])
            sums = np.add.outer(np.arange(front.shape[0]), np.arange(front.shape[1]))
            cells = [front[sums == count] for count in range(total + 1)]
            if all((cell == cell[:1]).all() for cell in cells):
                joined = np.stack([cell[0] for cell in cells])
                rest = [g for k, g in enumerate(groups) if k not in (first, second)]
                return _merged([groups[first] + groups[second], *rest], joined)
    return groups, grid


def as_tree(function: Any) -> ExpressionRule:
    """A rule with a tree: itself, or the one gate that a family such as `And` is.

    >>> from finetti.boolean import Threshold
    >>> print(as_tree(Threshold((1, 2, 3), 2)))
    atleast(2; x1, x2, x3)
    """
    if isinstance(function, ExpressionRule):
        return function
    if isinstance(function, Family):
        leaves = tuple(Variable(each) for each in function.indices)
        return ExpressionRule(Gate(function.kind, leaves, function.count))
    requirement = "an expression, a parsed rule, or one of And, Or, Parity, Majority, …"
    got, advice = type(function).__name__, "A table has no gates: use `compile`."
    raise bad_argument("rule", "compose", requirement, got, advice)


def split(rule: ExpressionRule) -> Gates:
    """The gates of a rule, the last of which is its value.

    Negations and constants enter the gates above them; parentheses decide what becomes a gate, and
    a part that is written twice is one gate.

    >>> from finetti.boolean import parse
    >>> gates = split(parse("(x1 | x2) & (x3 | ~x4)"))
    >>> [(gate.level, [str(source) for source in gate.sources]) for gate in gates]
    [(1, ['x1', 'x2']), (1, ['x3', 'x4']), (2, ['g0', 'g1'])]
    """
    splitter = _Splitter()
    root = splitter.literal(rule.tree)
    if isinstance(root, bool):
        raise InputError(f"The rule is constant ({int(root)}) and has no gates. Use `compile`.")
    source, negated = root
    if negated or not source.is_gate:  # one more gate writes what is asked for
        grid = np.array([negated, not negated])
        source = splitter.add(((source,),), grid, f"{'~' * negated}{source}")
    return _needed(splitter.gates, source.index)


def _needed(gates: list[SparseGate], root: int) -> Gates:
    """The gates that ``root`` reads, itself last: others fell to a constant above them."""
    kept = {root}
    for which in range(root, -1, -1):  # sources come before the gates that read them
        if which in kept:
            kept |= {source.index for source in gates[which].sources if source.is_gate}
    if len(kept) == len(gates):
        return tuple(gates)
    numbers = {old: new for new, old in enumerate(sorted(kept))}

    def source(old: Source) -> Source:
        return Source(True, numbers[old.index]) if old.is_gate else old

    def name(old: re.Match[str]) -> str:
        return f"g{numbers[int(old[1])]}" if int(old[1]) in numbers else "_"  # it cancels itself

    return tuple(
        replace(
            gate,
            groups=tuple(tuple(source(each) for each in group) for group in gate.groups),
            text=re.sub(r"\bg(\d+)\b", name, gate.text),
        )
        for gate in (gates[old] for old in numbers)
    )


def same_rule(own: BooleanFunction, gates: Gates, other: BooleanFunction) -> bool:
    """Whether a rule with these gates is known to equal another: by all settings of their bits
    where these are few, or because they have the same gates, in whatever order they are written."""
    if own is other or (isinstance(other, ExpressionRule) and str(own) == str(other)):
        return True
    indices = sorted({*own.indices, *other.indices})
    if len(indices) <= MAX_SETTING_BITS:
        settings = all_bits(len(indices))
        places = [[indices.index(index) for index in each.indices] for each in (own, other)]
        values = own.evaluate(settings[:, places[0]]), other.evaluate(settings[:, places[1]])
        return np.array_equal(*values)
    if not isinstance(other, ExpressionRule):
        return False
    try:
        others = split(other)
    except InputError:  # a constant, or a gate too wide: no gates to compare
        return False
    names: dict[object, int] = {}
    return _numbered(gates, names)[-1] == _numbered(others, names)[-1]


def _numbered(gates: Gates, names: dict[object, int]) -> list[int]:
    """A number for every gate, the same for gates that compute the same of the same sources."""
    found: list[int] = []
    for gate in gates:
        groups = [
            sorted((s.is_gate, found[s.index] if s.is_gate else s.index) for s in group)
            for group in gate.groups
        ]
        order = sorted(range(len(groups)), key=lambda k: groups[k])
        grid = np.ascontiguousarray(gate.grid.transpose(order))
        key = tuple(tuple(groups[k]) for k in order), grid.shape, grid.tobytes()
        found.append(names.setdefault(key, len(names)))
    return found
