"""What every gate of a network attends to, level by level, as a picture and as tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.attention_chart import Columns, attention_layer
from finetti.boolean.compose.forward import levels
from finetti.boolean.compose.network import GateNetwork
from finetti.boolean.embeddings.base import ONE_BIT
from finetti.boolean.explanation import SHOWN, one_input
from finetti.boolean.words import counted, short_text
from finetti.show.card import Card, Table
from finetti.show.charts import save_chart
from finetti.show.shown import Shown
from finetti.show.theme import chart_config

MOST_READS = 24  # rows of a picture
FEW = 4  # sources that are named one by one


@dataclass(frozen=True, eq=False)
class Reading:
    """What one gate reads with one head.

    Args:
        gate: its number.
        head: which head of its block.
        sources: what it should read: names, each with its value on this input.
        places: which tokens these are, bits first.
        weights: the attention on each of them.
        feature: what the head reads.
        value: what the gate says.
    """

    gate: int
    head: int
    sources: tuple[str, ...]
    places: tuple[int, ...]
    weights: NDArray[np.float64]
    feature: float
    value: float

    @property
    def summary(self) -> str:
        """The sources in few words: each with its value, or the first, the last and the ones."""
        if len(self.sources) <= FEW:
            return ", ".join(self.sources)
        first, last = (self.sources[k].split(" ")[0] for k in (0, -1))
        ones = sum(name.endswith(" = 1") for name in self.sources)
        return f"{first} … {last}: {ones} of {len(self.sources)} are 1"

    @property
    def rest(self) -> float:
        """The attention on everything else."""
        return max(0.0, 1.0 - float(self.weights.sum()))


@dataclass(frozen=True, eq=False)
class NetworkExplanation(Shown):
    """The attention of every gate on one input.

    Args:
        rule: as text.
        bits: the input.
        gates: the text of every gate.
        readings: one per gate and head, for every block.
        attention: of every block, what its readings put on the T bits and then on the gates:
            arrays of shape (readings, T + G).
        value: what the network says.
    """

    rule: str
    bits: NDArray[np.uint8]
    gates: tuple[str, ...]
    readings: tuple[tuple[Reading, ...], ...]
    attention: tuple[NDArray[np.float64], ...]
    value: float

    def columns(self, block: int) -> Columns:
        """What the first readings of a block read: their sources, as many as a picture has room
        for, the other sources of each together, and all other tokens."""
        shown, weights = self.readings[block][:MOST_READS], self.attention[block][:MOST_READS]
        # A few of each, if all are too many.
        each = max(1, (SHOWN - 2) // len(shown))
        pairs = [list(zip(r.places, r.sources, strict=True)) for r in shown]
        named = dict(pair for own in pairs for pair in own)
        if len(named) > SHOWN - 2:
            named = dict(pair for own in pairs for pair in own[:each])
        found = [(name, weights[:, token]) for token, name in named.items()]
        left = [[token for token in r.places if token not in named] for r in shown]
        more = np.array([row[own].sum() for row, own in zip(weights, left, strict=True)])
        if more.any():
            found.append(("more sources", more))
        rest = 1 - np.sum([column for _, column in found], axis=0)
        return [*found, ("all others", np.maximum(rest, 0.0))]

    @property
    def chart(self) -> dict[str, Any]:
        """A Vega-Lite specification: for every block, gates by what they read."""
        import altair as alt

        layers = []
        for block, readings in enumerate(self.readings):
            shown = readings[:MOST_READS]
            several = len({reading.head for reading in readings}) > 1
            names = [f"g{r.gate}, head {r.head + 1}" if several else f"g{r.gate}" for r in shown]
            left = len(readings) - len(shown)
            title = f"Block {block + 1}" + (f" ({left} more are not drawn)" if left else "")
            layers.append(attention_layer(names, self.columns(block), "gate", title))
        spec = alt.vconcat(*layers, title=f"{self.rule} = {self.value:.4g}").to_dict()
        spec["config"] = chart_config()
        return spec

    def save(self, path: str | Path) -> Path:
        """Write the picture as SVG, PNG, PDF or HTML, by the suffix of ``path``."""
        return save_chart(self.chart, path)

    def __card__(self) -> Card:
        columns = ("gate", "head", "reads", "attention on each", "on others", "feature", "says")
        tables = []
        for block, readings in enumerate(self.readings, start=1):
            rows = [
                (
                    f"g{r.gate} = {short_text(self.gates[r.gate], 28)}",
                    r.head + 1,
                    r.summary,
                    _range(r.weights),
                    r.rest,
                    r.feature,
                    r.value,
                )
                for r in readings[:MOST_READS]
            ]
            left = len(readings) - len(rows)
            title = f"Block {block}" + (f" ({left} more are not listed)" if left else "")
            tables.append(Table(title, columns, tuple(rows)))
        ones = counted(int(self.bits.sum()), "one")
        fields = (("input", f"{counted(len(self.bits), 'bit')}, {ones}"), ("value", self.value))
        return Card(f"What the gates read: {self.rule}", fields, tuple(tables))


def _range(weights: NDArray[np.float64]) -> str:
    low, high = f"{weights.min():.4g}", f"{weights.max():.4g}"
    return low if low == high else f"{low} to {high}"


def explain_network(network: GateNetwork, bits: Any = None) -> NetworkExplanation:
    """What every gate attends to on ``bits``, or on the input whose relevant bits alone are 1.

    >>> from finetti.boolean.compose.composer import compose
    >>> seen = explain_network(compose("(x1 | x2) & x3", 8))
    >>> [(r.gate, r.sources, r.weights.round(2).tolist()) for level in seen.readings for r in level]
    [(0, ('x1 = 1', 'x2 = 1'), [0.48, 0.48]), (1, ('g0 = 1', 'x3 = 1'), [0.48, 0.48])]
    """
    bits = one_input(bits, network.context_length, network.function.indices)
    mixture = network.mixture
    done = list(levels(network.blocks, mixture, mixture.sums(bits[None])))
    values = done[-1].written[0, :, ONE_BIT]
    readings, attention = [], []
    for block, columns, level in zip(network.blocks, mixture.columns, done, strict=True):
        weights = np.concatenate([mixture.bits[:, columns], mixture.gates[:, columns]]).T
        found = []
        for read, own in zip(block.reads, weights, strict=True):
            places = [s.index + len(bits) * s.is_gate for s in read.sources]
            names = [
                f"{s} = {values[s.index]:.4g}" if s.is_gate else f"{s} = {bits[s.index]}"
                for s in read.sources
            ]
            feature = float(level.features[0, block.gates.index(read.gate), read.head])
            value = float(values[read.gate])
            found.append(
                Reading(
                    read.gate,
                    read.head,
                    tuple(names),
                    tuple(places),
                    own[places],
                    feature,
                    value,
                )
            )
        readings.append(tuple(found))
        attention.append(weights)
    texts = tuple(gate.text for gate in network.gates)
    return NetworkExplanation(
        short_text(network.rule),
        bits,
        texts,
        tuple(readings),
        tuple(attention),
        float(values[-1]),
    )
