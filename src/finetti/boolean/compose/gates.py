"""Takes the tree of a rule apart into gates of few inputs, level by level."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.boolean.functions.base import all_bits
from finetti.boolean.functions.expressions import (
    Constant,
    Gate,
    Kind,
    Negation,
    Node,
    Rule,
    Variable,
)
from finetti.boolean.functions.symmetric import (
    And,
    Exactly,
    Majority,
    Or,
    Parity,
    Symmetric,
    Threshold,
)
from finetti.boolean.functions.truth_table import TruthTable
from finetti.boolean.simplification import simplify
from finetti.core.errors import InputError, bad_argument

FAMILIES: dict[type[Symmetric], Kind] = {
    And: "and",
    Or: "or",
    Parity: "parity",
    Majority: "majority",
    Threshold: "atleast",
    Exactly: "exactly",
}
MAX_INPUTS = 16  # of a gate that is not symmetric: its lookup has 2^16 points


@dataclass(frozen=True)
class Source:
    """What a gate reads: a bit of the input (``is_gate`` False), or an earlier gate."""

    is_gate: bool
    index: int

    def __str__(self) -> str:
        return f"g{self.index}" if self.is_gate else f"x{self.index}"


@dataclass(frozen=True, eq=False)
class SparseGate:
    """A function of a few sources; its indices are 0, …, s − 1, the places of its sources."""

    level: int
    sources: tuple[Source, ...]
    function: Symmetric | TruthTable
    text: str

    @property
    def sparsity(self) -> int:
        """s, the number of sources."""
        return len(self.sources)

    @property
    def symmetric(self) -> bool:
        """Whether the number of ones is enough."""
        return isinstance(self.function, Symmetric)


Literal = tuple[Source, bool] | bool  # a source and whether it is negated, or a constant


class _Splitter:
    def __init__(self) -> None:
        self.gates: list[SparseGate] = []

    def level(self, source: Source) -> int:
        return self.gates[source.index].level if source.is_gate else 0

    def literal(self, node: Node) -> Literal:
        if isinstance(node, Variable):
            return Source(False, node.index), False
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, Negation):
            inside = self.literal(node.child)
            return not inside if isinstance(inside, bool) else (inside[0], not inside[1])
        return self.gate(node)

    def gate(self, node: Gate) -> Literal:
        parts = [self.literal(child) for child in node.children]
        sources = list(dict.fromkeys(part[0] for part in parts if not isinstance(part, bool)))
        plain = len(sources) == len(parts) and not any(
            isinstance(part, bool) or part[1] for part in parts
        )
        count = len(sources)
        if plain:
            local = simplify(Symmetric(range(count), node.of_counts(np.arange(count + 1))))
        elif count > MAX_INPUTS:
            raise InputError(
                f"The gate {node} has {count} different inputs, some negated, repeated or "
                f"constant; such gates end at {MAX_INPUTS}. Split it into smaller ones with "
                "parentheses."
            )
        else:
            bits = all_bits(count).astype(bool)
            ones = np.zeros(len(bits), dtype=np.int64)
            for part in parts:
                if isinstance(part, bool):
                    ones += part
                else:
                    ones += bits[:, sources.index(part[0])] ^ part[1]
            local = simplify(TruthTable(range(count), node.of_counts(ones)))
        kept = tuple(sources[place] for place in local.indices)
        if not kept:
            return bool(local.table()[0])
        if len(kept) == 1:
            return kept[0], bool(local.table()[0])
        names = [
            str(int(part)) if isinstance(part, bool) else f"{'~' * part[1]}{part[0]}"
            for part in parts
        ]
        return self.add(kept, local, node.written(names)), False

    def add(
        self, sources: tuple[Source, ...], function: Symmetric | TruthTable, text: str
    ) -> Source:
        level = 1 + max(self.level(source) for source in sources)
        places = range(len(sources))
        if isinstance(function, Symmetric):
            local: Symmetric | TruthTable = Symmetric(places, function.profile())
        else:
            local = TruthTable(places, function.table())
        self.gates.append(SparseGate(level, sources, local, text))
        return Source(True, len(self.gates) - 1)


def as_tree(function: Any) -> Rule:
    """A rule with a tree: itself, or the one gate that a family such as `And` is.

    >>> print(as_tree(Threshold((1, 2, 3), 2)))
    atleast(2; x1, x2, x3)
    """
    if isinstance(function, Rule):
        return function
    for family, kind in FAMILIES.items():
        if isinstance(function, family):
            leaves = tuple(Variable(each) for each in function.indices)
            return Rule(Gate(kind, leaves, getattr(function, "count", 0)))
    requirement = "an expression, a parsed rule, or one of And, Or, Parity, Majority, …"
    got, advice = type(function).__name__, "A table has no gates: use `compile`."
    raise bad_argument("rule", "compose", requirement, got, advice)


def split(rule: Rule) -> tuple[SparseGate, ...]:
    """The gates of a rule, the last of which is its value.

    Negations and constants enter the tables of the gates above them; parentheses decide what
    becomes a gate.

    >>> gates = split(__import__("finetti.boolean.parser", fromlist=["parse"]).parse(
    ...     "(x1 | x2) & (x3 | ~x4)"))
    >>> [(gate.level, [str(source) for source in gate.sources]) for gate in gates]
    [(1, ['x1', 'x2']), (1, ['x3', 'x4']), (2, ['g0', 'g1'])]
    """
    splitter = _Splitter()
    root = splitter.literal(rule.tree)
    if isinstance(root, bool):
        raise InputError(f"The rule is constant ({int(root)}) and has no gates. Use `compile`.")
    source, negated = root
    if negated or not source.is_gate:  # one more gate writes what is asked for
        splitter.add(
            (source,),
            Symmetric((0,), [float(negated), float(not negated)]),
            f"{'~' * negated}{source}",
        )
    return tuple(splitter.gates)
