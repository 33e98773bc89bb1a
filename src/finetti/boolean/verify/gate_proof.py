"""Which bits are set in all ways, and to what, when not all 2^T inputs can be run."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.position_vectors import Indices
from finetti.boolean.language.gate_graph import Gates
from finetti.boolean.language.rule import MAX_SETTING_BITS, BooleanFunction, all_bits
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.runner import Trials
from finetti.boolean.network.sum_tables import Tables
from finetti.core.numerics.random_keys import generator

MAX_WORK = 2 * 10**10  # multiplications of all trials
MIN_MOVING_SHARE = 0.05  # of what the strongest bit does: less moves no head
MAX_MOVING_BITS = 14  # bits that are tried together because they move a head
MAX_SETTINGS_BYTES = 2**27  # of a list of settings
MAX_GATE_SETTINGS = 2**12  # that are chosen for gates, where not all are run
GATE_INPUT_WORK = 2000  # what an input costs beside its multiplications, in multiplications
N_RANDOM = 64
DENSITIES = (0.03, 0.2, 0.5, 0.8, 0.97)  # so that gates of each kind change their value


def each_count(n_bits: int, counts: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """One setting per number of ones, 0 to ``n_bits`` or those given: the first bits are 1."""
    counts = np.arange(n_bits + 1) if counts is None else counts
    return (np.arange(n_bits)[None] < counts[:, None]).astype(np.uint8)


def choose_settings(
    n_bits: int, limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    """Settings of the relevant bits: all 2^s, or some, with every number of ones among them."""
    if n_bits <= MAX_SETTING_BITS and 2**n_bits <= limit:
        return all_bits(n_bits), f"all 2^{n_bits} settings of the relevant bits"
    n_counts = min(n_bits + 1, max(2, MAX_SETTINGS_BYTES // n_bits))
    counts = np.unique(np.linspace(0, n_bits, n_counts).astype(np.int64))
    first = each_count(n_bits, counts)
    n_some = int(np.clip(min(limit, MAX_SETTINGS_BYTES // n_bits), 64, 512))
    some = rng.random((n_some, n_bits)) < rng.random((n_some, 1))  # few ones, many, all between
    settings = np.concatenate([first, first[:, ::-1], rng.permuted(first, axis=1), some])
    which = "every number" if len(counts) == n_bits + 1 else f"{len(counts)} numbers"
    text = f"{len(settings)} of 2^{n_bits} settings of the relevant bits, {which} of ones"
    return settings.astype(np.uint8), text


def influences(tables: Tables) -> NDArray[np.float64]:
    """By how much each bit moves a feature, to first order, from a string of half ones."""
    heads = tables.n_reads
    total = tables.cls[:heads] + (tables.zero + tables.one)[:, :heads].sum(axis=0) / 2
    changes = np.abs(tables.folded(tables.difference()))
    weights = changes[:, :heads] * tables.largest
    moved = changes[:, heads:].reshape(len(changes), heads, -1).max(axis=2)
    return (np.maximum(weights, moved) / total).max(axis=1)


def bits_to_try(tables: Tables, indices: Indices, hints: Iterable[int], limit: int) -> Indices:
    """The bits of the rule, the hints, and the bits that move a head most, while there is room.

    What a file says of itself is a hint and nothing more; what its numbers do is measured.
    """
    length = len(tables.zero)
    named = list(dict.fromkeys([*indices, *(each for each in hints if 0 <= each < length)]))
    if len(named) <= MAX_MOVING_BITS:
        room = min(MAX_MOVING_BITS, max(0, limit.bit_length() - 1)) - len(named)
    else:
        room = 0 if len(named) <= MAX_SETTING_BITS else MAX_MOVING_BITS
    if room > 0:
        moved = influences(tables)
        least = MIN_MOVING_SHARE * moved.max(initial=0.0)
        moved[named] = 0.0
        strongest = np.argsort(-moved, kind="stable")[:room]
        named += [int(each) for each in strongest if moved[each] > least]
    return tuple(sorted(named))


def work_per_input(network: Network) -> int:
    """Multiplications that one input takes after the sums over its bits; in every block of gates
    one token stands for all others."""
    if not network.gates:
        return network.blocks[0].lookup.work
    own = sum((len(block.readers) + 1) * block.lookup.work for block in network.blocks)
    return own + GATE_INPUT_WORK


def make_trials(network: Network, own: BooleanFunction, function: BooleanFunction) -> Trials:
    """What is run against a rule, where not all inputs can be; ``own`` is what the network says
    that it computes."""
    return (_gate_trials if network.gates else _cls_trials)(network, own.indices, function.indices)


def _cls_trials(network: Network, hints: Indices, indices: Indices) -> Trials:
    """Settings of the bits of the rule, of those that move a head (measured) and of those that the
    network was built for, each with the others all 0, all 1, random, and chosen for it by the
    adversary of every feature, which finds the worst of all (`verify.adversary`)."""
    tables, lookup, length = network.tables, network.blocks[0].lookup, network.context_length
    rng = generator("boolean verification", 0, length)
    per_pattern = lookup.work << min(len(indices), MAX_SETTING_BITS)
    n_random = int(np.clip(min(2**24 // length, MAX_WORK // (8 * per_pattern)), 4, N_RANDOM))
    n_patterns = n_random + 2 + 2 * lookup.inner.shape[0]
    limit = max(64, 2 * MAX_WORK // (lookup.work * n_patterns))
    tried = bits_to_try(tables, indices, hints, limit)
    settings, described = choose_settings(len(tried), limit, rng)
    # From no ones to only ones, so that features are met all over their range.
    rates = np.concatenate([[0.0, 1.0], np.linspace(0.0, 1.0, n_random)])[:, None]
    patterns = rng.random((n_random + 2, length), dtype=np.float32) < rates
    method = f"{described} × (all-0, all-1, {n_random} random, and the worst outside bits)"
    return Trials(tried, settings, patterns, method)


def _gate_trials(network: Network, hints: Indices, indices: Indices) -> Trials:
    """Settings of the bits of both rules, each with the others all 0, all 1 and 64 times random."""
    tried, length = tuple(sorted({*hints, *indices})), network.context_length
    rng = generator("network of gates", length, len(tried))
    limit = max(64, MAX_WORK // (8 * work_per_input(network) * (N_RANDOM + 2)))
    settings, described = gate_settings(network.gates, tried, limit, rng)
    patterns = rng.integers(0, 2, size=(N_RANDOM + 2, length), dtype=np.uint8)
    patterns[0], patterns[1] = 0, 1
    if length == len(tried):  # there is no outside
        return Trials(tried, settings, patterns[:1], described)
    outside = f" × (all-0 and all-1, the worst for the attention, and {N_RANDOM} random)"
    return Trials(tried, settings, patterns, described + outside)


def gate_settings(
    gates: Gates, indices: Indices, limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    """All settings of ``indices``; or, where these are too many, every number of ones in the groups
    of every gate, among others that are all 0, all 1 and random, and random settings."""
    count = len(indices)
    if count <= MAX_SETTING_BITS and 2**count <= limit:
        return all_bits(count), f"all 2^{count} settings of the relevant bits"
    limit = max(64, min(limit, MAX_GATE_SETTINGS, MAX_SETTINGS_BYTES // (2 * max(count, 1))))
    rates = rng.choice(DENSITIES, size=(max(2, limit // 4), 1))
    some = (rng.random((len(rates), count)) < rates).astype(np.uint8)
    some[0], some[1] = 0, 1
    place = {index: column for column, index in enumerate(indices)}
    targets = [
        ([[place[s.index] for s in group if not s.is_gate] for group in gate.groups], cell)
        for gate in gates
        if any(not source.is_gate for source in gate.sources)
        for cell in np.argwhere(np.ones(gate.grid.shape, dtype=bool))
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
