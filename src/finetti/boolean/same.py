"""Whether a rule is known to be the one that a network was built for."""

import numpy as np

from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.functions.expressions import ExpressionRule
from finetti.boolean.gates import SparseGate, split
from finetti.boolean.trials import MAX_SETTING_BITS
from finetti.core.errors import InputError


def same_rule(own: BooleanFunction, gates: tuple[SparseGate, ...], other: BooleanFunction) -> bool:
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


def _numbered(gates: tuple[SparseGate, ...], names: dict[object, int]) -> list[int]:
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
