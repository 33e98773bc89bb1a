"""Why a network is right on all 2^T inputs: reader by reader, level by level.

A reader is followed case by case: through all settings of the bits that it should read, or, where
they can be exchanged, all numbers of ones in each group of them. In each case what it reads lies
between two extremes over all other bits. What [CLS] attends to may depend on the bits, as with the
bag: its extremes are found exactly (`verify.adversary`). The attention of a gate is the same on
every input, since scores come from positions alone: its features lie within Σ|w_i − 1/n| + (the
rest of the attention) of their points. Intervals through the lookup (`interval_bound`) then bound
what the reader says; a gate that is right up to rounding looks like a bit to the gates above, and
the rounding is carried on.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.domain import value_sizes
from finetti.boolean.findings import InputBound
from finetti.boolean.language.families import Symmetric
from finetti.boolean.language.gate_graph import SparseGate, same_rule
from finetti.boolean.language.rule import MAX_SETTING_BITS, BooleanFunction, all_bits
from finetti.boolean.network.block import Block
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.sum_tables import Tables
from finetti.boolean.verify.adversary import feature_ranges
from finetti.boolean.verify.gate_proof import (
    MAX_SETTINGS_BYTES,
    MAX_WORK,
    choose_settings,
    each_count,
)
from finetti.boolean.verify.interval_bound import distance, output_bounds, proof_fits, proof_work
from finetti.boolean.words import short_text
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.random_keys import generator

SAME_ATOL = 1e-10  # differences between bits that count as rounding
EPSILON = float(np.finfo(np.float64).eps)


def input_bound(
    network: Network,
    own: BooleanFunction,
    function: BooleanFunction,
    tried: tuple[int, ...] | None,
) -> InputBound:
    """The error on all inputs against a rule, of a network that was built for its ``own``;
    ``tried`` bits were set in trials, if any."""
    if not network.gates:
        return _cls_bound(network, function, tried)
    if same_rule(own, network.gates, function):
        return _gate_bound(network)
    return InputBound(None, "the rule is not known to be the one that the gates were built for")


def read_errors(network: Network, rule: BooleanFunction) -> NDArray[np.float64]:
    """The largest distance of what is read from its points, over all inputs, for every read (the
    worst of all at [CLS]); ∞ if it is not known."""
    if network.gates:
        return _gate_errors(network)
    rng = generator("boolean certificate", network.context_length)
    settings, _ = choose_settings(rule.sparsity, 2**MAX_SETTING_BITS, rng)
    points = network.embedding.points(settings, isinstance(rule, Symmetric))
    low, high, _ = feature_ranges(network.tables, rule.indices, settings)
    error = float(np.maximum(high - points, points - low).max())
    return np.full(len(network.reads), np.inf if np.isnan(error) else error)


def _gate_errors(network: Network) -> NDArray[np.float64]:
    """The same for gates, over all inputs whose gates below are right."""
    tables, reads = network.tables, network.reads
    # Tokens of gates of this level and above are empty: what is read of them is 0.
    levels = np.array([gate.level for gate in network.gates])
    full = levels[:, None] < levels[[read.reader for read in reads]]
    assert tables.seen is not None  # attention that no bit changes
    attention, seen = tables.zero, tables.seen
    most = np.maximum(*np.abs(seen))  # of what a bit shows
    gates = np.where(full, tables.readers[:, : len(reads)], 0.0)
    total, errors = (most @ attention)[: len(reads)] + gates.sum(axis=0), np.zeros(len(reads))
    for k, read in enumerate(reads):
        point, below = 1 / len(read.sources), gates[read.gates, k]
        own = attention[read.bits, k]
        apart = np.abs(own * seen[0][read.bits] - point), np.abs(own * seen[1][read.bits] + point)
        errors[k] = np.maximum(*apart).sum() + np.abs(below - point).sum()
        rest = total[k] - (own * most[read.bits]).sum() - below.sum()
        errors[k] += largest_of(0.0, float(rest)) + abs(float(tables.cls[k]))
    return errors


def _cls_bound(
    network: Network, function: BooleanFunction, tried: tuple[int, ...] | None
) -> InputBound:
    """The largest error of [CLS]; none is needed where all inputs were run.

    Every setting of the bits that are ``tried`` must be covered, or of those of the rule. More bits
    than settings can be listed for are covered by their number of ones, if every bit changes the
    sums by the same amount.
    """
    if tried is None:
        return InputBound(None)
    lookup, tables = network.blocks[0].lookup, network.tables
    if not proof_fits(lookup):
        return InputBound(None, "its lookup is too large to be followed by intervals")
    for indices in dict.fromkeys((tried, tuple(sorted(function.indices)))):
        widen, settings = 0.0, np.zeros((0, 0), dtype=np.uint8)
        if len(indices) <= MAX_SETTING_BITS and proof_work(lookup, 2 ** len(indices)) <= MAX_WORK:
            settings = all_bits(len(indices))
        elif len(indices) == function.sparsity and _alike(tables, function, indices):
            settings, widen = each_count(len(indices)), 10 * SAME_ATOL
        if not len(settings) or proof_work(lookup, len(settings)) > MAX_WORK:
            continue
        low, high, rounding = feature_ranges(tables, indices, settings)
        bounds = output_bounds(lookup, low, high, largest_of(1e-12, rounding) + widen)
        if bounds is None:
            return InputBound(None, "its sums lose too many digits in float64")
        places = [indices.index(each) for each in function.indices]
        values = function.evaluate(settings[:, places])
        worst = float(distance(bounds, values).max())
        return InputBound(worst / value_sizes(function)[1])
    reason = f"2^{function.sparsity} settings of the relevant bits are too many to be followed"
    return InputBound(None, reason)


def _alike(tables: Tables, function: BooleanFunction, indices: tuple[int, ...]) -> bool:
    """Whether the rule is known by its number of ones, and the sums are, too."""
    too_long = (len(indices) + 1) * len(indices) > MAX_SETTINGS_BYTES
    if function.profile() is None or too_long:
        return False
    changes = tables.folded(tables.difference(list(indices)))
    return len(indices) * float(np.ptp(changes, axis=0).max()) <= SAME_ATOL


def _gate_bound(network: Network) -> InputBound:
    """The largest error of any gate over all inputs."""
    below, rounding, drift, found = 0.0, 0.0, 0.0, _gate_errors(network)
    for block, columns in zip(network.blocks, network.columns, strict=True):
        noise = 2 * below + drift + 4 * EPSILON * network.n_tokens
        largest = network.tables.largest + noise
        # First what the block writes into a token that is none of its gates, whatever it has read.
        low = np.full((1, block.n_heads), -largest)
        silent = _with_marks(block, np.zeros(len(block.lookup.inner_bias)))
        written = [_distance(silent, low, -low, np.zeros((1, 2)))]
        for gate, marks, tolerances in _classes(network, block, found[columns] + noise):
            lookup = _with_marks(block, marks)
            if not (proof_fits(lookup) and proof_work(lookup, gate.grid.size) <= MAX_WORK):
                text = short_text(gate.text, 48)
                reason = f"the lookup of {text} is too large to be followed by intervals"
                return InputBound(None, reason)
            written.append(_written_error(block, gate, lookup, tolerances, largest))
        if not np.isfinite(written).all():
            return InputBound(None, "its numbers are not finite")
        errors, sums = zip(*written, strict=True)
        below, rounding = largest_of(below, *errors), largest_of(rounding, *sums)
        drift += 2 * errors[0]
    return InputBound(below, rounding=rounding)


def _classes(
    network: Network, block: Block, errors: NDArray[np.float64]
) -> list[tuple[SparseGate, NDArray[np.float64], NDArray[np.float64]]]:
    """Gates that compute the same with the same units, once, with the largest of their errors."""
    found: dict[object, tuple[SparseGate, NDArray[np.float64], NDArray[np.float64]]] = {}
    for place, which in enumerate(block.readers):
        gate, marks = network.gates[which], block.lookup.inner[block.n_heads + place]
        own = errors[[k for k, read in enumerate(block.reads) if read.reader == which]]
        key = gate.function, marks.tobytes()
        known = found.get(key, (gate, marks, own))
        found[key] = known[0], known[1], np.maximum(known[2], own)
    return list(found.values())


def _with_marks(block: Block, marks: NDArray[np.float64]) -> Lookup:
    """What a token with these marks has written into e_0 and e_1, as a function of its features."""
    lookup = block.lookup
    inner, bias = lookup.inner[: block.n_heads], lookup.inner_bias + marks
    return replace(lookup, inner=inner, inner_bias=bias)


def _written_error(
    block: Block,
    gate: SparseGate,
    lookup: Lookup,
    errors: NDArray[np.float64],
    largest: float,
) -> tuple[float, float]:
    """The largest error of what a gate writes at any number of ones in its groups, and how much of
    it is rounding."""
    counts = np.stack([axis.ravel() for axis in np.indices(gate.grid.shape)], axis=1)
    points = 1 - 2 * counts / np.array([len(group) for group in gate.groups])
    # Heads that this gate does not use read some mean.
    low = np.full((len(points), block.n_heads), -largest)
    high = -low
    used = slice(0, len(gate.groups))
    low[:, used], high[:, used] = points - errors, points + errors
    ones = gate.grid.ravel().astype(np.float64)
    return _distance(lookup, low, high, np.stack([1 - ones, ones], axis=1))


def _distance(
    lookup: Lookup,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    wanted: NDArray[np.float64],
) -> tuple[float, float]:
    """The largest error of e_0 and e_1, rounding in the sums of the lookup included, and that
    rounding."""
    bounds = output_bounds(lookup, low, high)
    if bounds is None:
        return float("inf"), 0.0
    rounding = lookup.resolution((low + high) / 2)
    return float((distance(bounds, wanted) + rounding).max()), float(rounding.max())
