"""A network of blocks that computes a rule gate by gate."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compose.block import Block, Layout
from finetti.boolean.compose.gates import SparseGate
from finetti.boolean.functions.base import BooleanFunction, binary_array
from finetti.boolean.functions.expressions import Rule
from finetti.boolean.heads.plan import CLS, ONE_BIT, ZERO_BIT
from finetti.boolean.parser import as_rule
from finetti.core.errors import bad_argument
from finetti.show.card import Card
from finetti.show.shown import Shown

if TYPE_CHECKING:
    from finetti.boolean.check import Check
    from finetti.boolean.compose.certificate import NetworkCertificate
    from finetti.boolean.compose.module import GateTransformer

ROWS = 2**12  # inputs that are run together


@dataclass(frozen=True, eq=False)
class Mixture:
    """The softmax weights of one block, which no bit changes: scores come from positions alone.

    Args:
        bits: on the T bits, shape (T, reads).
        gates: on the gates, shape (G, reads).
    """

    bits: NDArray[Any]
    gates: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Composed(Shown):
    """A rule as a network with one block per level and one token per gate.

    Args:
        function: the rule.
        gates: its gates; the last one is its value.
        layout: the coordinates of a token.
        blocks: one per level.
        settings: how it was made.
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
    def depth(self) -> int:
        """L, the number of blocks."""
        return len(self.blocks)

    @cached_property
    def mixtures(self) -> tuple[Mixture, ...]:
        """The attention of every read, in float64."""
        return tuple(self._mixture(block, np.float64) for block in self.blocks)

    @cached_property
    def mixtures32(self) -> tuple[Mixture, ...]:
        """The same in float32."""
        return tuple(self._mixture(block, np.float32) for block in self.blocks)

    def _mixture(self, block: Block, dtype: Any) -> Mixture:
        keys = np.stack([read.scale * read.key for read in block.reads], axis=1).astype(dtype)
        width = self.layout.basis_width
        bits = self.layout.positions.project(keys[:width])
        gates = keys[width : width + len(self.gates)]
        top = np.maximum(bits.max(axis=0), gates.max(axis=0))
        bits, gates = np.exp(bits - top), np.exp(gates - top)
        total = bits.sum(axis=0) + gates.sum(axis=0)
        return Mixture(bits / total, gates / total)

    def predict(self, bits: Any, dtype: Any = np.float64) -> NDArray[Any]:
        """The network's value at every row of ``bits``, shape (m, T) or (T,)."""
        array = binary_array(bits, "Composed.predict")
        if array.ndim not in (1, 2) or array.shape[-1] != self.context_length:
            requirement = f"of shape (m, {self.context_length})"
            raise bad_argument("bits", "Composed.predict", requirement, f"shape {array.shape}")
        rows = array.reshape(-1, self.context_length)
        step = max(1, min(ROWS, 2**24 // self.context_length))
        parts = [self._run(rows[k : k + step], dtype) for k in range(0, len(rows), step)]
        values = np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)
        return values.reshape(array.shape[:-1])

    def _run(self, bits: NDArray[Any], dtype: Any) -> NDArray[Any]:
        """Block by block; of the stream only the gates' own (e_0, e_1) change."""
        single = np.dtype(dtype) == np.float32
        mixtures = self.mixtures32 if single else self.mixtures
        signs = 1 - 2 * bits.astype(dtype)  # E_0 − E_1 of every bit
        written = np.zeros((len(bits), len(self.gates), 2), dtype=dtype)
        for block, mixture in zip(self.blocks, mixtures, strict=True):
            values = written[:, :, ZERO_BIT] - written[:, :, ONE_BIT]
            read = signs @ mixture.bits + values @ mixture.gates  # (m, reads)
            for place, which in enumerate(block.gates):
                stream = np.zeros((len(bits), len(block.coordinates)), dtype=dtype)
                for column, each in enumerate(block.reads):
                    if each.gate == which:
                        stream[:, each.head] = read[:, column]
                stream[:, block.n_heads + place] = 1.0
                hidden = stream @ block.inner.astype(dtype) + block.inner_bias.astype(dtype)
                hidden = np.maximum(hidden, 0) @ block.middle.astype(dtype)
                hidden = np.maximum(hidden + block.middle_bias.astype(dtype), 0)
                written[:, which] += hidden @ block.outer.astype(dtype)
        return written[:, -1, ONE_BIT]

    def module(self, dtype: Any = None) -> "GateTransformer":
        """The network as an Equinox module with every token and every matrix written out."""
        from finetti.boolean.compose.module import GateTransformer
        from finetti.boolean.network.module import warn_of_single

        warn_of_single(dtype, self.certificate.check)
        return GateTransformer(self, dtype)

    @property
    def weights(self) -> dict[str, NDArray[np.float64]]:
        """Every matrix by name, written out over all d coordinates."""
        layout, width = self.layout, self.layout.width
        tokens = np.zeros((2, width))
        tokens[0, ZERO_BIT] = tokens[1, ONE_BIT] = 1.0
        positions = np.zeros((self.context_length, width))
        positions[:, : layout.basis_width] = layout.positions.dense()
        gate_tokens = np.zeros((len(self.gates), width))
        gate_tokens[:, CLS] = 1.0
        np.fill_diagonal(gate_tokens[:, layout.basis_width :], 1.0)
        named = {
            "embedding.tokens": tokens,
            "embedding.positions": positions,
            "embedding.gates": gate_tokens,
        }
        for number, block in enumerate(self.blocks):
            for name, array in written_out(block, layout).items():
                named[f"blocks.{number}.{name}"] = array
        return named

    def verify(self, function: BooleanFunction | str | None = None) -> "Check":
        """Compare the network with a rule, its own by default."""
        from finetti.boolean.compose.certificate import check_network

        return check_network(self, as_rule(function, self.function, self.context_length))

    def save(self, path: str | Path) -> Path:
        """Write the numbers as safetensors, with the rule as metadata; `load` reads them."""
        from finetti.boolean.files import save

        return save(self, path)

    @cached_property
    def certificate(self) -> "NetworkCertificate":
        """Everything that is known of the network, measured on its weights."""
        from finetti.boolean.compose.certificate import certify_network

        return certify_network(self)

    def __card__(self) -> Card:
        return self.certificate.__card__()


def written_out(block: Block, layout: Layout) -> dict[str, NDArray[np.float64]]:
    """The matrices of a block over all d coordinates."""
    width, heads, count = layout.width, block.n_heads, len(block.gates)
    query, key = np.zeros((heads, width, count)), np.zeros((heads, width, count))
    for read in block.reads:
        column = block.gates.index(read.gate)
        query[read.head, layout.basis_width + read.gate, column] = read.scale
        key[read.head, :, column] = read.key
    value, output = np.zeros((heads, width, 1)), np.zeros((heads, 1, width))
    value[:, ZERO_BIT], value[:, ONE_BIT] = 1.0, -1.0
    output[np.arange(heads), 0, block.first_feature + np.arange(heads)] = 1.0
    inner = np.zeros((width, block.inner.shape[1]))
    inner[block.coordinates] = block.inner
    outer = np.zeros((len(block.outer), width))
    outer[:, [ZERO_BIT, ONE_BIT]] = block.outer
    return {
        "query": query,
        "key": key,
        "value": value,
        "output": output,
        "inner": inner,
        "inner_bias": block.inner_bias,
        "middle": block.middle,
        "middle_bias": block.middle_bias,
        "outer": outer,
    }
