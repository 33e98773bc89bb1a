"""A network of blocks that computes a rule gate by gate: every gate is a reader."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import ReaderProof
from finetti.boolean.compiled import Compiled
from finetti.boolean.compose.block import Block, Layout
from finetti.boolean.compose.capacity import block_capacities
from finetti.boolean.compose.forward import Mixture, levels, make_mixture, run_blocks
from finetti.boolean.compose.gates import SparseGate
from finetti.boolean.compose.norms import network_norms
from finetti.boolean.compose.proof import ReadErrors, gate_proofs, network_bound, read_errors
from finetti.boolean.compose.same import same_rule
from finetti.boolean.compose.trials import network_trials
from finetti.boolean.compose.written import count_parameters, written_weights
from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.base import ONE_BIT, Embedding
from finetti.boolean.explanation import Reading
from finetti.boolean.functions.base import BooleanFunction, all_bits
from finetti.boolean.network.positions import BitPositions
from finetti.boolean.network.runner import Batch, Runner, Trials
from finetti.boolean.norms import NormBound
from finetti.boolean.verification import InputBound
from finetti.boolean.words import counted
from finetti.bounds.value import BoundValue

WORK_PER_INPUT = 2000  # what an input costs beside its multiplications, in multiplications
MAX_ROWS = 2**16  # that are run together


@dataclass(frozen=True, eq=False)
class GateRunner(Runner):
    """States are what every read sums up over the bits (`Mixture.sums`)."""

    blocks: tuple[Block, ...]
    mixture: Mixture

    def states(self, rows: Any) -> NDArray[Any]:
        """Sums of every row."""
        return self.mixture.sums(rows)

    def all_states(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Sums of all inputs."""
        bits = all_bits(len(self.mixture.bits))
        for start in range(0, len(bits), MAX_ROWS):
            yield start, self.mixture.sums(bits[start : start + MAX_ROWS])

    def batches(self, trials: Trials) -> Iterator[Batch]:
        """The patterns outside; all 0 and all 1 are the worst: what a gate reads is a sum of signs
        whose weights no bit changes and are never negative."""
        inside = np.array(trials.tried, dtype=np.int64)
        aside = np.delete(np.arange(len(self.mixture.bits)), inside)
        own = self.mixture.sums(trials.settings, inside)
        outside = self.mixture.sums(trials.patterns[:, aside], aside)
        for row, sums in zip(trials.patterns, outside, strict=True):
            yield own + sums, lambda _, row=row: row

    def outputs(self, states: NDArray[Any]) -> NDArray[Any]:
        """The value of the last gate."""
        return run_blocks(self.blocks, self.mixture, states)


@dataclass(frozen=True, eq=False, repr=False)
class GateNetwork(Compiled):
    """A rule as a network with one block per level and one token per gate: what `compose` makes.

    Args:
        function: the rule.
        gates: its gates; the last one is its value.
        layout: the coordinates of a token.
        blocks: one per level.
        settings: how it was made: embedding, basis, width, coherence, margin, seed.
    """

    function: BooleanFunction
    gates: tuple[SparseGate, ...]
    layout: Layout
    blocks: tuple[Block, ...]
    settings: dict[str, Any]

    @property
    def embedding(self) -> Embedding:
        """How bits become tokens."""
        return find_embedding(self.settings.get("embedding", EMBEDDINGS[0]))

    @property
    def positions(self) -> BitPositions:
        """Of the bits."""
        return self.layout.positions

    @property
    def heads_per_block(self) -> tuple[int, ...]:
        """H of every block."""
        return tuple(block.n_heads for block in self.blocks)

    @property
    def readers(self) -> str:
        """Which tokens read."""
        return counted(len(self.gates), "gate token")

    @property
    def width(self) -> int:
        """d."""
        return self.layout.width

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""
        return count_parameters(self.blocks, self.layout)

    @property
    def work(self) -> int:
        """Multiplications that one input takes after the sums over its bits."""
        return sum(block.work for block in self.blocks) + WORK_PER_INPUT

    @cached_property
    def mixture(self) -> Mixture:
        """The attention of every read, in float64."""
        return make_mixture(self.blocks, self.layout, np.float64)

    def runner(self, dtype: Any) -> GateRunner:
        """Through a table of T rows and one column per read."""
        if dtype == np.float32:
            return GateRunner(self.blocks, make_mixture(self.blocks, self.layout, dtype))
        return GateRunner(self.blocks, self.mixture)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Per block: the key (on positions and gates) and the R of every read, and the lookup."""
        return {
            f"blocks.{number}.{name}": array
            for number, block in enumerate(self.blocks)
            for name, array in block.arrays.items()
        }

    def written(self) -> dict[str, NDArray[np.float64]]:
        """Every matrix by name."""
        return written_weights(self.blocks, self.layout)

    def comparable(self, function: BooleanFunction) -> BooleanFunction:
        """As it is: its table may be too long."""
        return function

    def trials(self, function: BooleanFunction) -> Trials:
        """Settings of the bits of the rule, and of those that the network says it reads."""
        return network_trials(self, function)

    def bound(self, function: BooleanFunction, tried: tuple[int, ...] | None) -> InputBound:
        """Gate by gate, if the rule is known to be the one that the gates were built for."""
        if same_rule(self, function):
            return network_bound(self)
        reason = "the rule is not known to be the one that the gates were built for"
        return InputBound(None, reason)

    @cached_property
    def read_errors(self) -> ReadErrors:
        """What is measured of the attention of every read."""
        return read_errors(self)

    @property
    def route(self) -> str:
        """The lemmas that built it."""
        return f"Lemma {self.embedding.lemma} for the heads of every gate, lookups of Lemma B.8"

    def proofs(self) -> tuple[ReaderProof, ...]:
        """What each gate reads, over all inputs whose gates below are right."""
        return gate_proofs(self)

    def norms(self, margin: float) -> tuple[NormBound, ...]:
        """Of every block."""
        return network_norms(self, margin)

    def capacities(self) -> tuple[BoundValue, ...]:
        """Lemma A.12 for the heads of every block."""
        return block_capacities(self)

    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """The attention of every gate."""
        mixture, length = self.mixture, self.context_length
        done = list(levels(self.blocks, mixture, mixture.sums(bits[None])))
        values = done[-1].written[0, :, ONE_BIT]
        found = []
        for block, columns, level in zip(self.blocks, mixture.columns, done, strict=True):
            attention = np.concatenate([mixture.bits[:, columns], mixture.gates[:, columns]]).T
            here = []
            for read, weights in zip(block.reads, attention, strict=True):
                places = tuple(s.index + length * s.is_gate for s in read.sources)
                feature = float(level.features[0, block.gates.index(read.gate), read.head])
                text, value = self.gates[read.gate].text, float(values[read.gate])
                seen = places, weights, (feature,), value
                here.append(Reading(f"g{read.gate}", text, read.head, *seen))
            found.append(tuple(here))
        return tuple(found), {f"g{k}": float(value) for k, value in enumerate(values)}
