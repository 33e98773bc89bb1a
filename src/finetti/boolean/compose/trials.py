"""Which settings of the relevant bits are run, when not all 2^T inputs can be."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.network.runner import Trials
from finetti.boolean.trials import MAX_SETTING_BITS
from finetti.core.keys import generator

if TYPE_CHECKING:
    from finetti.boolean.compose.network import GateNetwork

MAX_SETTINGS_BYTES = 2**26  # of all settings
MAX_SETTINGS = 2**12  # that are chosen, where not all are run
MAX_WORK = 2 * 10**10 // 8  # multiplications of all trials
N_RANDOM = 64
DENSITIES = (0.03, 0.2, 0.5, 0.8, 0.97)  # so that gates of each kind change their value


def network_trials(network: "GateNetwork", function: BooleanFunction) -> Trials:
    """Settings of the relevant bits, each with the others all 0, all 1 and 64 times random."""
    length = network.context_length
    # What the network says that it reads is tried as well, if the rule leaves it out.
    indices = sorted({*function.indices, *network.function.indices})
    rng = generator("network of gates", length, len(indices))
    limit = max(64, MAX_WORK // (network.work * (N_RANDOM + 2)))
    settings, described = network_settings(network, indices, limit, rng)
    patterns = rng.integers(0, 2, size=(N_RANDOM + 2, length), dtype=np.uint8)
    patterns[0], patterns[1] = 0, 1
    if length == len(indices):  # there is no outside
        return Trials(tuple(indices), settings, patterns[:1], described)
    outside = f" × (all-0 and all-1, the worst for the attention, and {N_RANDOM} random)"
    return Trials(tuple(indices), settings, patterns, described + outside)


def network_settings(
    network: "GateNetwork", indices: list[int], limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    """All settings of ``indices``; or, where these are too many, every number of ones in the groups
    of every gate, among others that are all 0, all 1 and random, and random settings."""
    count = len(indices)
    if count <= MAX_SETTING_BITS and 2**count <= limit:
        return all_bits(count), f"all 2^{count} settings of the relevant bits"
    limit = max(64, min(limit, MAX_SETTINGS, MAX_SETTINGS_BYTES // max(count, 1)))
    rates = rng.choice(DENSITIES, size=(max(2, limit // 4), 1))
    some = (rng.random((len(rates), count)) < rates).astype(np.uint8)
    some[0], some[1] = 0, 1
    place = {index: column for column, index in enumerate(indices)}
    targets = [
        ([[place[s.index] for s in group if not s.is_gate] for group in gate.groups], cell)
        for gate in network.gates
        for cell in np.argwhere(np.ones(gate.grid.shape, dtype=bool))
        if any(not source.is_gate for source in gate.sources)
    ]
    n_aimed = limit - len(some)
    whole = len(targets) <= n_aimed
    if not whole:
        targets = [targets[k] for k in rng.choice(len(targets), n_aimed, replace=False)]
    rounds = min(4, n_aimed // max(1, len(targets)))
    aimed = np.zeros((rounds * len(targets), count), dtype=np.uint8)
    row = 0
    for turn in range(rounds):
        for columns, cell in targets:
            # Others are all 1, all 0, or random.
            aimed[row] = some[1 - turn] if turn < 2 else some[rng.integers(len(some))]
            for own, ones in zip(columns, cell, strict=True):
                aimed[row, own] = 0
                aimed[row, rng.permutation(own)[:ones]] = 1
            row += 1
    settings = np.concatenate([some, aimed])
    which = "every" if whole else "some"
    text = (
        f"{len(settings)} of 2^{count} settings of the relevant bits, {which} number of ones in "
        "every gate"
    )
    return settings, text
