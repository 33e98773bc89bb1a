"""Takes the tree of a rule apart into gates, level by level."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

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
from finetti.core.errors import InputError, bad_argument
from finetti.display.formatting import short_text

MAX_COUNTS = 2**16  # numbers of ones, of all groups together, that a gate tells apart


@dataclass(frozen=True)
class Source:
    """What a gate reads: a bit of the input (``is_gate`` False), or an earlier gate."""

    is_gate: bool
    index: int

    def __str__(self) -> str:
        return f"g{self.index}" if self.is_gate else f"x{self.index}"


Groups = tuple[tuple[Source, ...], ...]


@dataclass(frozen=True, eq=False)
class SparseGate:
    """A function of the number of ones in each of a few groups of sources.

    One group is enough for AND, OR, parity and the like; negated sources are a second one. So a
    gate of 50 inputs has 51 points, or 26 · 26, and never 2^50."""

    level: int  # its block
    groups: Groups  # the sources; inside a group they can be exchanged
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


class _Draft(NamedTuple):
    """A gate before it is known which gates are needed; its sources are drafts by number."""

    groups: Groups
    grid: NDArray[np.bool_]
    node: Gate | None  # None for the negation, or the copy, of its only source
    parts: list[Literal]  # the children of the node


class _Splitter:
    def __init__(self) -> None:
        self.drafts: list[_Draft] = []
        self.known: dict[Gate, Literal] = {}

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
        written twice 2, and one that is there with and without negation 0; all modulo 2 in a
        parity, where a negation turns the value alone."""
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
            weight = weight % 2 if node.kind == "parity" else weight
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
        groups, grid = without_idle(
            [tuple(group) for group in by_weight.values()], node.of_counts(ones)
        )
        if not groups:
            return bool(grid)
        if len(groups) == 1 == len(groups[0]):
            return groups[0][0], bool(grid[0])
        return self.add(_Draft(tuple(groups), grid, node, parts)), False

    def add(self, draft: _Draft) -> Source:
        self.drafts.append(draft)
        return Source(True, len(self.drafts) - 1)

    def needed(self, root: int) -> list[int]:
        """The drafts that ``root`` reads, itself last: others fell to a constant above them."""
        kept = {root}
        for which in range(root, -1, -1):  # sources come before the gates that read them
            if which in kept:
                groups = self.drafts[which].groups
                kept |= {source.index for group in groups for source in group if source.is_gate}
        return sorted(kept)

    def finished(self, root: int) -> Iterator[SparseGate]:
        """The gates that ``root`` needs, numbered from 0."""
        numbers = {old: new for new, old in enumerate(self.needed(root))}
        levels: dict[Source, int] = {}

        def renumbered(source: Source) -> Source:
            return Source(True, numbers[source.index]) if source.is_gate else source

        def name(part: Literal) -> str:
            if isinstance(part, bool):
                return str(int(part))
            source, negated = part
            lost = source.is_gate and source.index not in numbers  # it cancels itself
            return f"{'~' * negated}{'_' if lost else renumbered(source)}"

        for old, new in numbers.items():
            draft = self.drafts[old]
            groups = tuple(tuple(map(renumbered, group)) for group in draft.groups)
            below = max(levels.get(source, 0) for group in groups for source in group)
            levels[Source(True, new)] = level = 1 + below
            names = [name(part) for part in draft.parts]
            text = names[0] if draft.node is None else draft.node.written(names)
            yield SparseGate(level, groups, np.ascontiguousarray(draft.grid), text)


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
    requirement = "with gates=True, an expression, a parsed rule, or one of And, Or, Parity, …"
    got, advice = type(function).__name__, "A table has no gates."
    raise bad_argument("rule", "compile_rule", requirement, got, advice)


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
        raise InputError(f"The rule is constant ({int(root)}) and has no gates. Use `gates=False`.")
    source, negated = root
    if negated or not source.is_gate:  # one more gate writes what is asked for
        grid = np.array([negated, not negated])
        source = splitter.add(_Draft(((source,),), grid, None, [root]))
    return tuple(splitter.finished(source.index))


def same_rule(own: BooleanFunction, other: BooleanFunction) -> bool:
    """Whether two rules are known to be equal: by their text, or by all settings of their bits
    where these are few."""
    if own is other or (isinstance(other, ExpressionRule) and str(own) == str(other)):
        return True
    indices = sorted({*own.indices, *other.indices})
    if len(indices) > MAX_SETTING_BITS:
        return False
    settings = all_bits(len(indices))
    places = [[indices.index(index) for index in each.indices] for each in (own, other)]
    values = own.evaluate(settings[:, places[0]]), other.evaluate(settings[:, places[1]])
    return np.array_equal(*values)
