"""Why a network of gates is right on all 2^T inputs: gate by gate, level by level.

Scores come from positions alone, so the attention of a gate is the same on every input, and its
features lie within Σ|w_i − 1/n| + (the rest of the attention) of their points. Intervals through
the block's lookup (`network.proof`) then bound what the gate writes; if that is right up to
rounding, the gate looks like a bit to the gates above, and the rounding is carried on.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.findings import InputBound, ReaderProof
from finetti.boolean.gates import SparseGate
from finetti.boolean.network.block import Block
from finetti.boolean.network.gate_weights import GateWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.mixture import sign_values
from finetti.boolean.network.proof import distance, output_bounds, proof_fits, proof_work
from finetti.boolean.trials import MAX_WORK
from finetti.boolean.words import short_text

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class ReadErrors:
    """Of every read of a network, over all inputs whose gates below are right."""

    errors: NDArray[np.float64]  # the largest distance of a feature from its point
    masses: NDArray[np.float64]  # the attention on what should be read
    largest: float  # no token's value is larger than this


def read_errors(network: GateWeights) -> ReadErrors:
    """Measure the attention of every read."""
    mixture, reads = network.mixture, network.reads
    # Tokens of gates of this level and above are empty: what is read of them is 0.
    levels = np.array([gate.level for gate in network.gates])
    full = levels[:, None] < levels[[read.gate for read in reads]]
    below = np.where(full, mixture.gates[:, : len(reads)], 0.0)
    total = mixture.bits[:, : len(reads)].sum(axis=0) + below.sum(axis=0)
    errors, masses = np.zeros(len(reads)), np.zeros(len(reads))
    for column, read in enumerate(reads):
        own = np.append(mixture.bits[read.bits, column], mixture.gates[read.gates, column])
        masses[column] = own.sum()
        rest = max(0.0, float(total[column] - own.sum()))
        errors[column] = np.abs(own - 1 / len(own)).sum() + rest + abs(mixture.cls[column])
    apart = np.abs(sign_values(network.positions, np.float64)).max(initial=0.0)
    return ReadErrors(errors, masses, 1.0 + float(apart))


def gate_proofs(network: GateWeights, found: ReadErrors) -> tuple[ReaderProof, ...]:
    """One proof per gate, from what was measured of its reads."""
    scales = np.concatenate([block.scales for block in network.blocks])
    readers = np.array([read.gate for read in network.reads])
    proofs = []
    for which, gate in enumerate(network.gates):
        own = np.flatnonzero(readers == which)  # one read per group, in their order
        sizes = [len(group) for group in gate.groups]
        worst = int((found.errors[own] * sizes).argmax())
        proofs.append(
            ReaderProof(
                text=gate.text,
                level=gate.level,
                sparsity=len(gate.sources),
                separation=network.embedding.separation(sizes[worst], True),
                tolerance=network.embedding.tolerance(sizes[worst], True),
                head_error=float(found.errors[own[worst]]),
                score_scale=float(scales[own].max()),
                score_gap=float(network.mixture.leads[own].min()),
                attention_mass=float(found.masses[own].min()),
            )
        )
    return tuple(proofs)


def gate_bound(network: GateWeights, found: ReadErrors) -> InputBound:
    """The largest error of any gate over all inputs."""
    below, rounding, drift = 0.0, 0.0, 0.0
    for block, columns in zip(network.blocks, network.mixture.columns, strict=True):
        noise = 2 * below + drift + 4 * EPSILON * network.n_tokens
        largest = found.largest + noise
        # First what the block writes into a token that is none of its gates, whatever it has read.
        low = np.full((1, block.n_heads), -largest)
        silent = _with_marks(block, np.zeros(len(block.lookup.inner_bias)))
        written = [_distance(silent, low, -low, np.zeros((1, 2)))]
        for gate, marks, tolerances in _classes(network, block, found.errors[columns] + noise):
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
    network: GateWeights, block: Block, errors: NDArray[np.float64]
) -> list[tuple[SparseGate, NDArray[np.float64], NDArray[np.float64]]]:
    """Gates that compute the same with the same units, once, with the largest of their errors."""
    found: dict[object, tuple[SparseGate, NDArray[np.float64], NDArray[np.float64]]] = {}
    for place, which in enumerate(block.gates):
        gate, marks = network.gates[which], block.lookup.inner[block.n_heads + place]
        own = errors[[k for k, read in enumerate(block.reads) if read.gate == which]]
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
