"""What every compiled network has: an embedding, positions, and tables that it runs through."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.position_vectors import BitPositions
from finetti.boolean.embeddings.token_embedding import Embedding
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.network.sum_tables import SumTables


@dataclass(frozen=True, eq=False)
class Network(ABC):
    """Weights that read X(b). `dataclasses.replace` and `changed` give copies."""

    embedding: Embedding  # how bits become tokens
    rule: BooleanFunction  # that it was built for
    positions: BitPositions  # P or V, (T, d)

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
    def n_tokens(self) -> int:
        """T, and the gates."""

    @abstractmethod
    def changed(self, block: int = 0, **matrices: Any) -> Self:
        """A copy with other matrices in one block, by their names."""

    @abstractmethod
    def tables(self, dtype: Any) -> SumTables:
        """What readers see of every position, computed in this precision."""

    @abstractmethod
    def matrices(self) -> dict[str, NDArray[Any]]:
        """Every matrix but the positions by its name in a file, over all d coordinates."""

    @property
    def context_length(self) -> int:
        """T."""
        return self.positions.count

    @property
    def depth(self) -> int:
        """L, the number of blocks."""
        return len(self.heads_per_block)

    @cached_property
    def float64(self) -> Any:
        """Its tables in float64."""
        with np.errstate(all="ignore"):
            return self.tables(np.float64)

    @cached_property
    def float32(self) -> Any:
        """Its tables in float32; what that cannot hold is reported, not warned of."""
        with np.errstate(all="ignore"):
            return self.tables(np.float32)

    def weights(self) -> dict[str, NDArray[Any]]:
        """Every matrix by its name in a file, with the positions over all d coordinates."""
        positions = np.zeros((self.context_length, self.width))
        positions[:, : self.positions.width] = self.positions.dense()
        return {"embedding.positions": positions, **self.matrices()}
