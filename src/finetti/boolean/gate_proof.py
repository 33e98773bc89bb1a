"""Why a network of gates is right on all 2^T inputs: gate by gate, level by level.

Scores come from positions alone, so the attention of a gate is the same on every input, and its
features lie within Σ|w_i − 1/n| + (the rest of the attention) of their points. Intervals through
the block's lookup (`network.proof`) then bound what the gate writes; if that is right up to
rounding, the gate looks like a bit to the gates above, and the rounding is carried on.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.findings import InputBound
from finetti.boolean.gates import SparseGate
from finetti.boolean.network.block import Block
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.proof import distance, output_bounds, proof_fits, proof_work
from finetti.boolean.network.weights import Network
from finetti.boolean.trials import MAX_WORK
from finetti.boolean.words import short_text

EPSILON = float(np.finfo(np.float64).eps)


def read_errors(network: Network) -> NDArray[np.float64]:
    """The largest distance of what every read of gates reads from its point, over all inputs whose
    gates below are right."""
    tables, reads = network.tables, network.reads
    # Tokens of gates of this level and above are empty: what is read of them is 0.
    levels = np.array([gate.level for gate in network.gates])
    full = levels[:, None] < levels[[read.reader for read in reads]]
    sizes = np.maximum(np.abs(tables.zero), np.abs(tables.one))[:, : len(reads)]
    gates = np.where(full, tables.readers[:, : len(reads)], 0.0)
    total, errors = sizes.sum(axis=0) + gates.sum(axis=0), np.zeros(len(reads))
    for k, read in enumerate(reads):
        bits, point = read.bits, 1 / len(read.sources)
        own = np.append(sizes[bits, k], gates[read.gates, k])
        apart = np.abs(tables.zero[bits, k] - point), np.abs(tables.one[bits, k] + point)
        errors[k] = np.append(np.maximum(*apart), np.abs(gates[read.gates, k] - point)).sum()
        errors[k] += max(0.0, float(total[k] - own.sum())) + abs(float(tables.cls[k]))
    return errors


def gate_bound(network: Network) -> InputBound:
    """The largest error of any gate over all inputs."""
    below, rounding, drift, found = 0.0, 0.0, 0.0, read_errors(network)
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
        below, rounding = max(below, *errors), max(rounding, *sums)
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
