"""What every network is, how it runs, and what can be found out about it."""

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.base import Embedding
from finetti.boolean.embeddings.positions import BitPositions
from finetti.boolean.findings import InputBound, NetworkEvidence, Reading
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.network.runner import Runner, Trials
from finetti.show.shown import Shown


class Network(Shown):
    """A Transformer that computes a rule: blocks read with the tokens of readers, [CLS] or one per
    gate.

    Attributes:
        function: the rule.
        settings: how it was made: embedding, basis, width, coherence, margin, seed.
        embedding: how bits become tokens.
        positions: of the bits.
    """

    function: BooleanFunction
    settings: dict[str, Any]
    embedding: Embedding
    positions: BitPositions

    @property
    @abstractmethod
    def heads_per_block(self) -> tuple[int, ...]:
        """H of every block."""

    @property
    @abstractmethod
    def width(self) -> int:
        """d."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""

    @property
    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file has of it beside the positions, by name."""

    @abstractmethod
    def written(self) -> dict[str, NDArray[Any]]:
        """Every matrix by name, over all d coordinates."""

    @property
    @abstractmethod
    def work(self) -> int:
        """Multiplications that one input takes after the sums over its bits."""

    @abstractmethod
    def runner(self, dtype: Any) -> Runner:
        """It in float64 or float32."""

    @abstractmethod
    def comparable(self, function: BooleanFunction) -> BooleanFunction:
        """A rule in the form that it is compared with."""

    @abstractmethod
    def trials(self, function: BooleanFunction) -> Trials:
        """What is run against a rule, where not all inputs can be."""

    @abstractmethod
    def bound(self, function: BooleanFunction, tried: tuple[int, ...] | None) -> InputBound:
        """The error against a rule on all inputs; ``tried`` bits were set in trials, if any."""

    @abstractmethod
    def evidence(self, margin: float) -> NetworkEvidence:
        """What is measured of its weights, which were built for a margin."""

    @abstractmethod
    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """What is read on one input, block by block; and the readers with their values, the last
        of which is the network's."""

    @cached_property
    def double(self) -> Runner:
        """It in float64."""
        return self.runner(np.float64)

    @cached_property
    def single(self) -> Runner:
        """It in float32."""
        return self.runner(np.float32)

    @property
    def context_length(self) -> int:
        """T."""
        return self.positions.count

    @property
    def depth(self) -> int:
        """L, the number of blocks."""
        return len(self.heads_per_block)

    @property
    def rule(self) -> str:
        """The rule as text."""
        return str(self.function)
