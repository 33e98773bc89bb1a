"""The lookup of one level: each unit recognizes a box of counts where a gate has its rarer value.

The number of ones r in a group of s sources is read as 1 − 2r/s. Neighboring numbers with the same
value share one wide bump, which is 1 from the least of them to the largest; a bump per group, and
the mark of the gate, make a unit (Lemma B.8, edelman2022). A gate that is mostly 1 has units for
its zeros. Equal gates share their units: a unit asks for the sum of their marks q_g.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.deterministic import EMBEDDING as SIGN_MEANS
from finetti.boolean.embeddings.token_embedding import ONE_BIT, ZERO_BIT
from finetti.boolean.language.gate_graph import SparseGate
from finetti.boolean.network.lookup import CORNERS, SIGNS, Lookup

N_CORNERS = len(CORNERS)


class Bump(NamedTuple):
    """1 from ``low`` − δ to ``high`` + δ, 0 beyond 2δ, on one feature."""

    feature: int
    low: float
    high: float
    tolerance: float


def _boxes(mask: NDArray[np.bool_]) -> Iterator[list[tuple[int, int]]]:
    """The true cells of a grid as ranges: runs along its longest axis, single cells elsewhere."""
    axis = int(np.argmax(mask.shape))
    rows = np.moveaxis(mask, axis, -1)
    for place in map(tuple, np.argwhere(rows.any(axis=-1))):
        ends = np.flatnonzero(np.diff(np.concatenate([[False], rows[place], [False]]).astype(int)))
        for first, last in zip(ends[::2], ends[1::2] - 1, strict=True):
            ranges = [(int(count), int(count)) for count in place]
            ranges.insert(axis, (int(first), int(last)))
            yield ranges


def minority_cells(gate: SparseGate) -> tuple[bool, list[tuple[Bump, ...]]]:
    """The value that a gate takes in most cells, and the units that recognize all others."""
    ways = []
    for usual in (False, True):
        units = []
        for ranges in _boxes(gate.grid != usual):
            bumps = []
            for feature, ((first, last), group) in enumerate(zip(ranges, gate.groups, strict=True)):
                size = len(group)
                if (first, last) != (0, size):  # else any number will do
                    low, high = 1 - 2 * last / size, 1 - 2 * first / size
                    bumps.append(Bump(feature, low, high, SIGN_MEANS.tolerance(size, True)))
            units.append(tuple(bumps))
        ways.append((usual, units))
    return min(ways, key=lambda way: len(way[1]))


def _classes(gates: list[SparseGate]) -> dict[tuple[tuple[int, ...], bytes], list[int]]:
    found: dict[tuple[tuple[int, ...], bytes], list[int]] = {}
    for place, gate in enumerate(gates):
        found.setdefault(gate.function, []).append(place)
    return found


def gate_lookup_bytes(gates: list[SparseGate]) -> int:
    """What W_2 of a level takes in float64."""
    members = [gates[places[0]] for places in _classes(gates).values()]
    all_units = [unit for gate in members for unit in minority_cells(gate)[1]]
    n_bumps = len({bump for unit in all_units for bump in unit})
    return 8 * (N_CORNERS * n_bumps + len(members)) * (len(all_units) + len(members))


def make_gate_lookup(gates: list[SparseGate]) -> Lookup:
    """The lookup of the gates of one level, on its H features and then one row per gate, the mark
    q_g; its two columns are written into e_0 and e_1."""
    n_heads = max(len(gate.groups) for gate in gates)
    classes = list(_classes(gates).values())
    answers = [minority_cells(gates[places[0]]) for places in classes]
    bumps: dict[Bump, int] = {}
    units = [(which, unit) for which, (_, own) in enumerate(answers) for unit in own]
    for _, unit in units:
        for bump in unit:
            bumps.setdefault(bump, len(bumps))
    marks = N_CORNERS * len(bumps) + np.arange(len(classes))  # hidden units of the classes
    inner = np.zeros((n_heads + len(gates), N_CORNERS * len(bumps) + len(classes)))
    inner_bias = np.zeros(inner.shape[1])
    for bump, number in bumps.items():
        four = slice(N_CORNERS * number, N_CORNERS * (number + 1))
        ends = np.array([bump.low, bump.low, bump.high, bump.high])
        inner[bump.feature, four] = 1 / bump.tolerance
        inner_bias[four] = CORNERS - ends / bump.tolerance
    for which, places in enumerate(classes):
        inner[n_heads + np.array(places), marks[which]] = 1.0
    middle = np.zeros((inner.shape[1], len(units) + len(classes)))
    middle_bias = np.zeros(middle.shape[1])
    outer = np.zeros((middle.shape[1], 2))
    for number, (which, unit) in enumerate(units):
        for bump in unit:
            four = slice(N_CORNERS * bumps[bump], N_CORNERS * (bumps[bump] + 1))
            middle[four, number] = SIGNS
        middle[marks[which], number] = 1.0
        middle_bias[number] = -float(len(unit))  # 1 only if all bumps and the mark are
        usual, other = _coordinates(answers[which][0])
        outer[number, other], outer[number, usual] = 1.0, -1.0
    last = len(units) + np.arange(len(classes))
    middle[marks, last] = 1.0
    outer[last, [_coordinates(usual)[0] for usual, _ in answers]] = 1.0
    return Lookup(inner, inner_bias, middle, middle_bias, outer)


def _coordinates(usual: bool) -> tuple[int, int]:
    """Where the usual value is written, and where the other one."""
    return (ONE_BIT, ZERO_BIT) if usual else (ZERO_BIT, ONE_BIT)
