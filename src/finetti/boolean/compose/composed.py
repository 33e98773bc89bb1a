"""A network of blocks that computes a rule gate by gate."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compose.block import Block, Layout
from finetti.boolean.compose.forward import Mixture, make_mixture, run
from finetti.boolean.compose.gates import SparseGate
from finetti.boolean.compose.written import n_parameters, refuse_written, written_weights
from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.base import Embedding
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.functions.expressions import Rule
from finetti.boolean.network.predict import as_rows, is_single
from finetti.boolean.parser import as_rule
from finetti.show.card import Card
from finetti.show.shown import Shown

if TYPE_CHECKING:
    from finetti.boolean.check import Check
    from finetti.boolean.compose.certificate import NetworkCertificate
    from finetti.boolean.compose.explanation import NetworkExplanation
    from finetti.boolean.compose.module import GateTransformer


@dataclass(frozen=True, eq=False)
class Composed(Shown):
    """A rule as a network with one block per level and one token per gate.

    Args:
        function: the rule.
        gates: its gates; the last one is its value.
        layout: the coordinates of a token.
        blocks: one per level.
        settings: how it was made: embedding, basis, width, coherence, margin, seed.
    """

    function: Rule
    gates: tuple[SparseGate, ...]
    layout: Layout
    blocks: tuple[Block, ...]
    settings: dict[str, Any]

    @property
    def context_length(self) -> int:
        """T."""
        return self.layout.positions.count

    @property
    def rule(self) -> str:
        """The rule as text."""
        return str(self.function)

    @property
    def embedding(self) -> Embedding:
        """How bits become tokens."""
        return find_embedding(self.settings.get("embedding", EMBEDDINGS[0]))

    @property
    def depth(self) -> int:
        """L, the number of blocks."""
        return len(self.blocks)

    @property
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""
        return n_parameters(self.blocks, self.layout)

    @property
    def work(self) -> int:
        """Multiplications that one input takes after the sums over its bits."""
        return sum(block.work for block in self.blocks)

    @cached_property
    def mixture(self) -> Mixture:
        """The attention of every read, in float64."""
        return make_mixture(self.blocks, self.layout, np.float64)

    @cached_property
    def mixture32(self) -> Mixture:
        """The same in float32."""
        return make_mixture(self.blocks, self.layout, np.float32)

    def predict(self, bits: Any, dtype: Any = np.float64) -> NDArray[Any]:
        """The network's value at every row of ``bits``, shape (m, T) or (T,), or sparse (SciPy).

        Runs through a table of T rows and one column per read: thousands of rows at T = 10⁵ take
        seconds.
        """
        rows = as_rows(bits, self.context_length, "Composed.predict")
        mixture = self.mixture32 if is_single(dtype, "Composed.predict") else self.mixture
        if not isinstance(rows, np.ndarray):
            return run(self.blocks, mixture, mixture.sums(rows))
        sums = mixture.sums(rows.reshape(-1, self.context_length))
        return run(self.blocks, mixture, sums).reshape(rows.shape[:-1])

    def module(self, dtype: Any = None) -> "GateTransformer":
        """The network as an Equinox module with every token and every matrix written out.

        Its leaves are in JAX's default precision; a warning says so where that is float32 and the
        certificate finds float32 not usable. Bits are not checked under `jax.jit`, where they
        have no values yet: anything that is not 0 counts as 1.
        """
        from finetti.boolean.compose.module import GateTransformer
        from finetti.boolean.network.module import warn_of_single

        refuse_written(self.blocks, self.layout, "module")
        warn_of_single(dtype, self.certificate.check)
        return GateTransformer(self, dtype)

    @property
    def weights(self) -> dict[str, NDArray[np.float64]]:
        """Every matrix by name, written out over all d coordinates."""
        refuse_written(self.blocks, self.layout, "weights")
        return written_weights(self.blocks, self.layout)

    def verify(self, function: BooleanFunction | str | None = None) -> "Check":
        """Compare the network with a rule, its own by default."""
        from finetti.boolean.compose.checking import check_network

        return check_network(self, as_rule(function, self.function, self.context_length))

    def explain(self, bits: Any = None) -> "NetworkExplanation":
        """What every gate attends to on one input, level by level: relevant bits 1 by default."""
        from finetti.boolean.compose.explanation import explain_network

        return explain_network(self, bits)

    def save(self, path: str | Path) -> Path:
        """Write the numbers as safetensors, with the rule as metadata; `load` reads them."""
        from finetti.boolean.files import save

        return save(self, path)

    @property
    def check(self) -> "Check":
        """The network against its rule."""
        return self.certificate.check

    @cached_property
    def certificate(self) -> "NetworkCertificate":
        """Everything that is known of the network, measured on its weights."""
        from finetti.boolean.compose.certificate import certify_network

        return certify_network(self)

    def __card__(self) -> Card:
        return self.certificate.__card__()
