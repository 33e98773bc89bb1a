"""What the heads look at, as a picture and as a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.attention_chart import attention_layer
from finetti.boolean.functions.base import binary_array
from finetti.boolean.layer import LayerNetwork
from finetti.boolean.simplification import relevant_indices
from finetti.boolean.words import counted, short_text
from finetti.core.errors import bad_argument
from finetti.show.card import Card, Table
from finetti.show.charts import save_chart
from finetti.show.shown import Shown
from finetti.show.theme import chart_config

SHOWN = 24  # columns of the picture


@dataclass(frozen=True, eq=False)
class Explanation(Shown):
    """The attention of [CLS] on one input.

    Args:
        rule: as text.
        bits: the input.
        attention: what each head puts on [CLS] and then on every position, shape (H, 1 + T).
        features: what the heads read.
        value: what the network says.
        relevant: the bits that matter.
    """

    rule: str
    bits: NDArray[np.uint8]
    attention: NDArray[np.float64]
    features: NDArray[np.float64]
    value: float
    relevant: tuple[int, ...]

    @property
    def columns(self) -> list[tuple[str, NDArray[np.float64]]]:
        """What is told apart: every token of a short context, else the relevant bits, [CLS], the
        bit with the most attention among the others, and all the rest together."""
        length = len(self.bits)
        if length < SHOWN:
            shown = list(range(length))
        else:
            others = self.attention[:, 1:].max(axis=0)
            others[list(self.relevant)] = -1.0
            shown = [*self.relevant[: SHOWN - 3], int(others.argmax())]
        found = [(f"x{i} = {self.bits[i]}", self.attention[:, i + 1]) for i in shown]
        found.append(("[CLS]", self.attention[:, 0]))
        n_rest = length - len(shown)
        if n_rest:
            rest = 1 - np.sum([column for _, column in found], axis=0)
            found.append((counted(n_rest, "other bit"), np.maximum(rest, 0.0)))
        return found

    @property
    def chart(self) -> dict[str, Any]:
        """A Vega-Lite specification: heads by tokens, the darker the more attention."""
        heads = [str(head + 1) for head in range(len(self.attention))]
        title = f"What [CLS] reads: {self.rule} = {self.value:.4g}"
        spec = attention_layer(heads, self.columns, "head", title).to_dict()
        spec["config"] = chart_config()
        return spec

    def save(self, path: str | Path) -> Path:
        """Write the picture as SVG, PNG, PDF or HTML, by the suffix of ``path``."""
        return save_chart(self.chart, path)

    def __card__(self) -> Card:
        columns = self.columns
        rows = [
            (head + 1, *(float(weights[head]) for _, weights in columns))
            for head in range(len(self.attention))
        ]
        table = Table("Attention", ("head", *(name for name, _ in columns)), tuple(rows))
        fields = (("features", tuple(map(float, self.features))), ("value", self.value))
        return Card(f"What [CLS] reads: {self.rule}", fields, (table,))


def explain(compiled: LayerNetwork, bits: Any = None) -> Explanation:
    """The attention of [CLS] on ``bits``, or on the input whose relevant bits alone are 1.

    >>> from finetti.boolean.compiler import compile
    >>> seen = explain(compile("x1 & x4", 6))
    >>> seen.attention.round(2).tolist()
    [[0.01, 0.01, 0.48, 0.01, 0.01, 0.48, 0.01]]
    """
    relevant = relevant_indices(compiled.function)
    bits = one_input(bits, compiled.context_length, relevant)
    tables = compiled.head.tables
    return Explanation(
        short_text(compiled.rule),
        bits,
        tables.attention(bits),
        tables.read(bits[None])[0],
        float(compiled.predict(bits)),
        relevant,
    )


def one_input(bits: Any, length: int, relevant: tuple[int, ...]) -> NDArray[np.uint8]:
    """The input to explain, checked: the one whose relevant bits alone are 1 by default."""
    if bits is None:
        bits = np.zeros(length, dtype=np.uint8)
        bits[list(relevant)] = 1
    requirement = f"{length} zeros and ones"
    bits = binary_array(bits, "explain", requirement)
    if bits.shape != (length,):
        raise bad_argument("bits", "explain", requirement, f"shape {bits.shape}")
    return bits.astype(np.uint8)
