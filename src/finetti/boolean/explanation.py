"""What every reader of a network attends to, block by block, as a picture and as tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.numerics.extremes import largest_of
from finetti.display.card import Card, Table
from finetti.display.charts.chart_theme import chart_config
from finetti.display.charts.line_charts import Chart
from finetti.display.displayable import Displayable
from finetti.display.formatting import plural, short_text

MAX_COLUMNS = 24  # of a picture
MAX_ROWS = 24
MAX_NAMED_SOURCES = 4
Columns = list[tuple[str, NDArray[np.float64]]]  # what is read, and the attention of every row


@dataclass(frozen=True, eq=False)
class Reading:
    """What one reader reads with one head."""

    reader: str  # "[CLS]", or a gate's name
    text: str  # what it computes
    head: int  # which head of its block
    places: tuple[int, ...]  # which tokens it should read: bits first, then readers
    weights: NDArray[np.float64]  # the attention on all tokens
    features: tuple[float, ...]  # what the head reads
    value: float  # what the reader says

    @property
    def rest(self) -> float:
        """The attention on everything that it should not read."""
        return largest_of(0.0, 1.0 - float(self.weights[list(self.places)].sum()))


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Displayable):
    """The attention of every reader on one input.

    Args:
        rule: as text.
        bits: the input.
        readers: the names of the readers, each with its value.
        readings: one per reader and head, for every block.
        value: what the network says.
    """

    rule: str
    bits: NDArray[np.uint8]
    readers: tuple[str, ...]
    readings: tuple[tuple[Reading, ...], ...]
    value: float

    @property
    def attention(self) -> tuple[NDArray[np.float64], ...]:
        """Of every block, what its readings put on the T bits and then on the readers."""
        return tuple(np.stack([reading.weights for reading in block]) for block in self.readings)

    def name(self, token: int) -> str:
        """A token and its value."""
        length = len(self.bits)
        return f"x{token} = {self.bits[token]}" if token < length else self.readers[token - length]

    def columns(self, block: int) -> Columns:
        """What is told apart: every token where they are few; else what the first readings of a
        block should read, as much as there is room for, the token with the most attention beside
        it, and all others together."""
        shown = self.readings[block][:MAX_ROWS]
        weights = np.stack([reading.weights for reading in shown])
        n_tokens = weights.shape[1]
        chosen = list(range(n_tokens))
        if n_tokens > MAX_COLUMNS:
            room = MAX_COLUMNS - 2
            chosen = list(dict.fromkeys(place for r in shown for place in r.places))
            if len(chosen) > room:  # a few of each
                each = max(1, room // len(shown))
                chosen = list(dict.fromkeys(p for r in shown for p in r.places[:each]))
            aside = weights.max(axis=0)
            aside[chosen] = -1.0
            chosen.append(int(aside.argmax()))
        found = [(self.name(token), weights[:, token]) for token in chosen]
        left = n_tokens - len(chosen)
        if left:
            rest = np.maximum(1 - weights[:, chosen].sum(axis=1), 0.0)
            found.append((plural(left, "other token"), rest))
        return found

    @property
    def chart(self) -> Chart:
        """A Vega-Lite specification: for every block, readers by what they read."""
        import altair as alt

        layers = []
        for block, readings in enumerate(self.readings):
            several = len({reading.head for reading in readings}) > 1
            names = [r.reader + f", head {r.head + 1}" * several for r in readings[:MAX_ROWS]]
            title = _title(block, readings)
            layers.append(_attention_layer(names, self.columns(block), title))
        spec = alt.vconcat(*layers, title=f"{self.rule} = {self.value:.4g}").to_dict()
        return Chart(spec, config=chart_config())

    def save(self, path: str | Path) -> Path:
        """Write the picture as SVG, PNG, PDF or HTML, by the suffix of ``path``."""
        return self.chart.save(path)

    def __repr__(self) -> str:
        return f"<Explanation of {self.rule!r}, which is {self.value:.4g}>"

    def __card__(self) -> Card:
        columns = ("reader", "head", "reads", "attention on each", "on others", "feature", "says")
        tables = tuple(
            Table(_title(block, readings), columns, tuple(map(self._row, readings[:MAX_ROWS])))
            for block, readings in enumerate(self.readings)
        )
        ones = plural(int(self.bits.sum()), "one")
        fields = (("input", f"{plural(len(self.bits), 'bit')}, {ones}"), ("value", self.value))
        return Card(f"What is read: {self.rule}", fields, tables)

    def _row(self, reading: Reading) -> tuple[Any, ...]:
        own = reading.weights[list(reading.places)]
        ends = dict.fromkeys(f"{end:.4g}" for end in (own.min(), own.max())) if len(own) else ()
        return (
            f"{reading.reader} = {short_text(reading.text, 28)}",
            reading.head + 1,
            self._summary(reading.places),
            " to ".join(ends),
            reading.rest,
            ", ".join(f"{feature:.4g}" for feature in reading.features),
            reading.value,
        )

    def _summary(self, places: tuple[int, ...]) -> str:
        """What is read in few words: each with its value, or the first, the last and the ones."""
        names = [self.name(place) for place in places]
        if len(names) <= MAX_NAMED_SOURCES:
            return ", ".join(names)
        first, last = (names[k].split(" ")[0] for k in (0, -1))
        ones = sum(name.endswith(" = 1") for name in names)
        return f"{first} … {last}: {ones} of {len(names)} are 1"


def _title(block: int, readings: tuple[Reading, ...]) -> str:
    left = len(readings) - MAX_ROWS
    return f"Block {block + 1}" + (f" ({left} more are not listed)" if left > 0 else "")


def _attention_layer(names: list[str], columns: Columns, title: str) -> Any:
    """A layer of Altair: who reads by what is read, the darker the more, each with its number."""
    import altair as alt

    rows = [
        {"reader": reader_name, "token": token, "attention": float(weights[k])}
        for token, weights in columns
        for k, reader_name in enumerate(names)
    ]
    order = [token for token, _ in columns]
    x = alt.X(field="token", type="nominal", sort=order, title=None, axis={"labelAngle": 0})
    y = alt.Y(field="reader", type="nominal", sort=names, title="reader")
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y)
    scale = alt.Scale(domain=[0, 1], scheme="blues")
    color = alt.Color(field="attention", type="quantitative", scale=scale, title="attention")
    tiles = base.mark_rect(stroke="white", strokeWidth=2).encode(color=color)
    white = alt.condition("datum.attention > 0.5", alt.value("white"), alt.value("#222222"))
    text = alt.Text(field="attention", type="quantitative", format=".2f")
    numbers = base.mark_text(fontSize=11).encode(text=text, color=white)
    size = {"width": {"step": 64}, "height": {"step": 34}}
    return alt.layer(tiles, numbers, title=title).properties(**size)
