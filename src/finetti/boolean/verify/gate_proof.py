"""Why a network of gates is right on all 2^T inputs: gate by gate, level by level.

A gate is followed through all numbers of ones in each of its groups. Its attention is the same on
every input, since scores come from positions alone: its features lie within Σ|w_i − 1/n| + (the
rest of the attention) of their points. Intervals through the lookup (`interval_bound`) then bound
what it writes; a gate that is right up to rounding looks like a bit to the gates above, and the
rounding is carried on.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import NormBound, ReaderRow
from finetti.boolean.embeddings.position_vectors import Indices
from finetti.boolean.embeddings.token_embedding import HeadBounds, scale_bound
from finetti.boolean.explanation import Reading
from finetti.boolean.language.gate_graph import Gates, SparseGate, same_rule
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.network.gate_network import GateBlock, GateNetwork
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.sum_tables import SumTables
from finetti.boolean.verify.family_proof import (
    MAX_SETTINGS_BYTES,
    MAX_WORK,
    N_RANDOM,
    Batch,
    ChosenInputs,
    InputBound,
    all_settings,
    mass_and_lead,
    reader_row,
    setting_batches,
)
from finetti.boolean.verify.interval_bound import distance, output_bounds, proof_fits, proof_work
from finetti.boolean.verify.norm_bounds import head_covering, head_norm_rows, lookup_norms
from finetti.bounds.value import BoundValue
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.random_keys import generator
from finetti.display.formatting import plural, short_text

MAX_GATE_SETTINGS = 2**12  # that are chosen for gates, where not all are run
GATE_INPUT_WORK = 2000  # what an input costs beside its multiplications, in multiplications
DENSITIES = (0.03, 0.2, 0.5, 0.8, 0.97)  # so that gates of each kind change their value
EPSILON = float(np.finfo(np.float64).eps)


class GateVerifier:
    """Verifies networks with one token per gate."""

    def __init__(self, network: GateNetwork):
        self.network: GateNetwork = network

    def comparable(self, function: BooleanFunction) -> BooleanFunction:
        """The rule as it is: its table may be too long."""
        return function

    @property
    def work_per_input(self) -> int:
        """Multiplications that one input takes after the sums over its bits; in every block one
        token stands for all others."""
        blocks = self.network.blocks
        return GATE_INPUT_WORK + sum((len(b.readers) + 1) * b.lookup.work for b in blocks)

    def choose_inputs(self, function: BooleanFunction) -> ChosenInputs:
        """Settings of the bits of both rules, each with the others all 0, all 1 and 64 times
        random. All 0 and all 1 are the worst for gates: what a gate reads is a sum of signs whose
        weights no bit changes and are never negative."""
        length = self.network.context_length
        tried = tuple(sorted({*self.network.rule.indices, *function.indices}))
        rng = generator("network of gates", length, len(tried))
        limit = max(64, MAX_WORK // (8 * self.work_per_input * (N_RANDOM + 2)))
        settings, described = gate_settings(self.network.gates, tried, limit, rng)
        patterns = rng.integers(0, 2, size=(N_RANDOM + 2, length), dtype=np.uint8)
        patterns[0], patterns[1] = 0, 1
        if length == len(tried):  # there is no outside
            return ChosenInputs(tried, settings, patterns[:1], described)
        outside = f" × (all-0 and all-1, the worst for the attention, and {N_RANDOM} random)"
        return ChosenInputs(tried, settings, patterns, described + outside)

    def batches(self, tables: SumTables, inputs: ChosenInputs) -> Iterator[Batch]:
        """Sums of all settings, for each choice of the other bits."""
        return setting_batches(tables, inputs)

    def n_batches(self, tables: SumTables, inputs: ChosenInputs) -> int:
        """How many of them there are."""
        return len(inputs.patterns)

    @cached_property
    def _read_errors(self) -> NDArray[np.float64]:
        """The largest distance of what is read from its points, for every read, over all inputs
        whose gates below are right."""
        tables, reads = self.network.float64, self.network.reads
        # Tokens of gates of this level and above are empty: what is read of them is 0.
        levels = np.array([gate.level for gate in self.network.gates])
        full = levels[:, None] < levels[[read.reader for read in reads]]
        attention, seen = tables.attention, tables.seen
        most = np.maximum(*np.abs(seen))  # of what a bit shows
        gates = np.where(full, tables.beside[:, :-1], 0.0)
        total, errors = (most @ attention)[:-1] + gates.sum(axis=0), np.zeros(len(reads))
        for k, read in enumerate(reads):
            point, below = 1 / len(read.sources), gates[read.gates, k]
            own = attention[read.bits, k]
            apart = [np.abs(own * seen[b][read.bits] - (1 - 2 * b) * point) for b in (0, 1)]
            errors[k] = np.maximum(*apart).sum() + np.abs(below - point).sum()
            rest = total[k] - (own * most[read.bits]).sum() - below.sum()
            errors[k] += largest_of(0.0, float(rest))
        return errors

    def bound_all_inputs(
        self, function: BooleanFunction, tried: tuple[int, ...] | None
    ) -> InputBound:
        """The largest error of any gate over all inputs."""
        network = self.network
        if not same_rule(network.rule, function):
            reason = "the rule is not known to be the one that the gates were built for"
            return InputBound(None, reason)
        below, rounding, drift, found = 0.0, 0.0, 0.0, self._read_errors
        for block, columns in zip(network.blocks, network.columns, strict=True):
            noise = 2 * below + drift + 4 * EPSILON * network.n_tokens
            largest = network.float64.largest + noise
            # First what the block writes into a token that is none of its gates, whatever it has
            # read.
            low = np.full((1, block.n_heads), -largest)
            silent = replace(block.recognizer, inner_bias=block.marks[-1])
            written = [_distance(silent, low, -low, np.zeros((1, 2)))]
            for gate, marks, tolerances in _classes(network, block, found[columns] + noise):
                lookup = replace(block.recognizer, inner_bias=marks)
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

    @property
    def route(self) -> str:
        """The lemmas that built the network."""
        lemma = self.network.embedding.lemma
        return f"Lemma {lemma} for the heads of every gate, lookups of Lemma B.8"

    @property
    def readers(self) -> str:
        """One token per gate."""
        return plural(len(self.network.gates), "gate token")

    @property
    def places(self) -> list[list[int]]:
        """The tokens that each read is built to attend to, bits first: its group of sources."""
        first = self.network.context_length
        return [[s.index + first * s.is_gate for s in read.sources] for read in self.network.reads]

    @property
    def reader_rows(self) -> tuple[ReaderRow, ...]:
        """Why each gate is right, as was measured."""
        network, embedding, reads = self.network, self.network.embedding, self.network.reads
        attention, errors = network.float64.read_attention(), self._read_errors
        nothing = np.zeros(0)
        seen = [
            mass_and_lead(*embedding.worst_attention(row, row, nothing, own))
            for row, own in zip(attention, self.places, strict=True)
        ]
        scales = np.concatenate([np.abs(block.scales) for block in network.blocks])
        rows = []
        for number, gate in enumerate(network.gates):
            own = [column for column, read in enumerate(reads) if read.reader == number]
            sizes = [len(reads[column].sources) for column in own]
            known = {
                "text": gate.text,
                "level": gate.level,
                "sparsity": len(gate.sources),
                "score_scale": float(scales[own].max()),
            }
            measured = [seen[column] for column in own]
            rows.append(reader_row(embedding, sizes, errors[own], measured, **known))
        return tuple(rows)

    @property
    def _tolerances(self) -> list[float]:
        """δ of the lookup of every block: of its widest read."""
        widest = [max(len(read.sources) for read in block.reads) for block in self.network.blocks]
        return [self.network.embedding.tolerance(size, True) for size in widest]

    def norms(self, margin: float) -> tuple[NormBound, ...]:
        """The norms of all blocks beside their bounds."""
        network, embedding = self.network, self.network.embedding
        lemma, found = f"Lemma {embedding.lemma}", []
        stated = "" if margin == 1 else f", margin {margin:g} as stated"
        for number, (block, delta) in enumerate(
            zip(network.blocks, self._tolerances, strict=True), start=1
        ):
            at = f", block {number}"
            limits = self._limits(block, margin)
            said = f"{lemma}, per gate" + ", measured gap" * (not limits.prior)
            queries = _per_head(block, np.abs(block.scales))
            sizes = [queries, _per_head(block, np.linalg.norm(block.keys, axis=1))]
            sizes += [np.full(block.n_heads, math.sqrt(2)), np.ones(block.n_heads)]
            found += head_norm_rows(at, sizes, limits, (said + stated, said, lemma, lemma))
            norms = lookup_norms(block.lookup, 1.0, delta, 1.0, len(block.readers) - 1)
            found += [replace(norm, name=f"{norm.name}{at}") for norm in norms]
        extra = embedding.position_bounds(network.positions, tuple(sorted(network.rule.indices)))
        return (*found, *(NormBound(*row, lemma) for row in extra))

    def _limits(self, block: GateBlock, margin: float) -> HeadBounds:
        """The lemma's bounds for the reads of one block."""
        embedding, n_tokens = self.network.embedding, self.network.n_tokens
        apart = [embedding.separation(len(read.sources), True) for read in block.reads]
        queries = [
            scale_bound(n_tokens, each, margin, float(gap))
            for each, gap in zip(apart, block.gaps, strict=True)
        ]
        limits = _per_head(block, np.array(queries)), _per_head(block, np.sqrt(block.spans))
        return HeadBounds(*limits, 2.0, 1.0, prior=not (block.gaps < 1).any())

    def capacities(self) -> tuple[BoundValue, ...]:
        """Of the heads of each block (Lemma A.12).

        Tokens are no longer than √2 before the first block. Every block adds a feature of at most 1
        per head to a token, and e_0 or e_1 to that of a gate.
        """
        network, found, added = self.network, [], 0
        for block, resolution in zip(network.blocks, self._tolerances, strict=True):
            rows = np.zeros(block.n_heads)
            sizes = np.abs(block.scales) * np.linalg.norm(block.keys, axis=1)
            np.maximum.at(rows, [read.head for read in block.reads], sizes)
            sign = np.zeros((block.n_heads, network.positions.width, 1))
            sign[:, 0], sign[:, 1] = 1.0, -1.0
            matrices = rows, sign, np.eye(block.n_heads)[:, None, :]
            longest = math.sqrt(2 + added + (added > 0))
            lengths = longest, longest  # of queries and of inputs
            found.append(head_covering(network, matrices, resolution, *lengths))
            added += block.n_heads
        return tuple(found)

    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """What every gate reads on one input."""
        network, tables = self.network, self.network.float64
        done, attention = list(tables.levels(tables.sums(bits[None]))), tables.read_attention()
        values, places = done[-1][1][0].tolist(), self.places
        found, column = [], 0
        for block, (features, _) in zip(network.blocks, done, strict=True):
            here = []
            for read, place in zip(block.reads, block.places[0], strict=True):
                here.append(
                    Reading(
                        f"g{read.reader}",
                        network.gates[read.reader].text,
                        read.head,
                        tuple(places[column]),
                        attention[column],
                        (float(features[0, place, read.head]),),
                        values[read.reader],
                    )
                )
                column += 1
            found.append(tuple(here))
        return tuple(found), {f"g{number}": value for number, value in enumerate(values)}


def _per_head(block: GateBlock, sizes: NDArray[np.floating]) -> NDArray[np.float64]:
    """‖W‖_F of every head. One head serves all readers of its block, each with a column of W_Q and
    W_K of its own, so that squares add up over them."""
    return np.sqrt(np.bincount([read.head for read in block.reads], np.square(sizes)))


def gate_settings(
    gates: Gates, indices: Indices, limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    """All settings of ``indices``; or, where these are too many, every number of ones in the groups
    of every gate, among others that are all 0, all 1 and random, and random settings."""
    count = len(indices)
    every = all_settings(count, limit)
    if every is not None:
        return every
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


def _classes(
    network: GateNetwork, block: GateBlock, errors: NDArray[np.float64]
) -> list[tuple[SparseGate, NDArray[np.float64], NDArray[np.float64]]]:
    """Gates that compute the same with the same biases, once, with the largest of their errors."""
    found: dict[object, tuple[SparseGate, NDArray[np.float64], NDArray[np.float64]]] = {}
    for place, which in enumerate(block.readers):
        gate, marks = network.gates[which], block.marks[place]
        own = errors[[k for k, read in enumerate(block.reads) if read.reader == which]]
        key = gate.function, marks.tobytes()
        known = found.get(key, (gate, marks, own))
        found[key] = known[0], known[1], np.maximum(known[2], own)
    return list(found.values())


def _written_error(
    block: GateBlock,
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
