"""A network of blocks that computes a rule gate by gate: every gate is a reader."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compiled import Compiled
from finetti.boolean.embeddings.base import ONE_BIT
from finetti.boolean.findings import InputBound, NetworkEvidence, Reading
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.gate_proof import ReadErrors, gate_bound, gate_proofs, read_errors
from finetti.boolean.gates import same_rule
from finetti.boolean.network.gate_weights import GateWeights
from finetti.boolean.network.mixture import levels, make_mixture
from finetti.boolean.network.runner import GateRunner, Trials
from finetti.boolean.norms import block_capacities, gate_norm_bounds
from finetti.boolean.trials import gate_trials
from finetti.boolean.words import counted

WORK_PER_INPUT = 2000  # what an input costs beside its multiplications, in multiplications


@dataclass(frozen=True, eq=False, repr=False)
class GateNetwork(GateWeights, Compiled):
    """A rule as a network with one block per level and one token per gate: what `compose` makes."""

    function: BooleanFunction
    settings: dict[str, Any]

    @property
    def heads_per_block(self) -> tuple[int, ...]:
        """H of every block."""
        return tuple(block.n_heads for block in self.blocks)

    @property
    def work(self) -> int:
        """Per block: its gates, and one token for all others."""
        own = sum((len(block.gates) + 1) * block.lookup.work for block in self.blocks)
        return own + WORK_PER_INPUT

    def runner(self, dtype: Any) -> GateRunner:
        """Through a table of T rows and one column per read."""
        double = dtype == np.float64
        mixture = self.mixture if double else make_mixture(self.blocks, self.positions, dtype)
        return GateRunner(mixture, self.blocks)

    def comparable(self, function: BooleanFunction) -> BooleanFunction:
        """As it is: its table may be too long."""
        return function

    def trials(self, function: BooleanFunction) -> Trials:
        """Settings of the bits of the rule, and of those that the network says it reads."""
        indices = {*function.indices, *self.function.indices}
        return gate_trials(self.gates, indices, self.context_length, self.work)

    def bound(self, function: BooleanFunction, tried: tuple[int, ...] | None) -> InputBound:
        """Gate by gate, if the rule is known to be the one that the gates were built for."""
        if same_rule(self.function, self.gates, function):
            return gate_bound(self, self.read_errors)
        reason = "the rule is not known to be the one that the gates were built for"
        return InputBound(None, reason)

    @cached_property
    def read_errors(self) -> ReadErrors:
        """What is measured of the attention of every read."""
        return read_errors(self)

    def evidence(self, margin: float) -> NetworkEvidence:
        """Gate by gate, and block by block."""
        return NetworkEvidence(
            f"Lemma {self.embedding.lemma} for the heads of every gate, lookups of Lemma B.8",
            counted(len(self.gates), "gate token"),
            gate_proofs(self, self.read_errors),
            gate_norm_bounds(self, tuple(sorted(self.function.indices)), margin),
            block_capacities(self),
        )

    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """The attention of every gate."""
        mixture, length = self.mixture, self.context_length
        done = list(levels(self.blocks, mixture, mixture.sums(bits[None])))
        values = done[-1][1][0, :, ONE_BIT]
        found = []
        for block, columns, (features, _) in zip(self.blocks, mixture.columns, done, strict=True):
            attention = np.concatenate([mixture.bits[:, columns], mixture.gates[:, columns]]).T
            here = []
            for read, weights in zip(block.reads, attention, strict=True):
                places = tuple(s.index + length * s.is_gate for s in read.sources)
                feature = float(features[0, block.gates.index(read.gate), read.head])
                text, value = self.gates[read.gate].text, float(values[read.gate])
                seen = places, weights, (feature,), value
                here.append(Reading(f"g{read.gate}", text, read.head, *seen))
            found.append(tuple(here))
        return tuple(found), {f"g{k}": float(value) for k, value in enumerate(values)}
