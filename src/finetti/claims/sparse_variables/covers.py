"""The covering numbers of paper S once more.

No finite class comes near the bounds, so that none can tell a wrong constant from the right one.
What can be held to its constant is the formula, built again without the code of `bounds` from what
its proof states: Lemma A.10 for one column, how much of the error each matrix gets, and how much of
its error reaches the output. The 36 of Lemma A.10 is Zhang's (2002) and is quoted, not checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.numbers import smallest_of


@dataclass(frozen=True)
class Part:
    """A trained matrix: its columns (``outputs`` of length ``norm``), the points that it reads, and
    what an error of its output is multiplied by on the way to the network's."""

    multiplier: float
    outputs: int
    norm: float
    length: float
    points: float


def functional(norm: Any, length: Any, resolution: Any, points: Any) -> Any:
    """Lemma A.10 for one column."""
    ratio = norm * length / resolution
    whole = np.ceil(4 * ratio * (1 - 1e-12) + 2)  # a whole number missed by rounding stays whole
    return 36 * ratio**2 * np.log(2 * whole * points + 1)


def matrix(part: Part, resolution: Any) -> Any:
    """All columns, each at ε/√d: d errors of that size are ε together."""
    column = resolution / np.sqrt(part.outputs)
    return part.outputs * functional(part.norm, part.length, column, part.points)


def composed(parts: Sequence[Part], resolution: float) -> float:
    """Every matrix at its own resolution; the errors that reach the output add up to ε."""
    weights = [(p.multiplier * p.outputs * p.norm * p.length) ** (2 / 3) for p in parts]
    return sum(
        matrix(part, resolution * weight / sum(weights) / part.multiplier)
        for part, weight in zip(parts, weights, strict=True)
    )


def head_parts(head: Any, norms: Any, sample: Any) -> list[Part]:
    """W_V and W_QK of one head without positions and readout, by Lemma 4.3."""
    points = sample.n_samples * sample.context_length
    longest = sample.input_norm
    query = longest if head.query_norm is None else head.query_norm
    scores = norms.out_lipschitz * head.constant * norms.value_norm * longest * query
    columns = head.width if head.head_dimension is None else head.head_dimension
    return [
        Part(norms.out_lipschitz, columns, norms.value_column_norm, longest, points),
        Part(scores, head.width, norms.score_row_norm, longest, points),
    ]


def network_parts(network: Any, sample: Any) -> list[Part]:
    """All matrices of a deep network, from the last layer to the first (Lemmas A.13–A.16)."""
    steep, constant = network.activation_lipschitz, network.constant
    points = sample.n_samples * (sample.context_length + 1)
    lengths = [sample.input_norm]  # of the tokens before each layer
    for layer in network.layers:
        inside = smallest_of(1.0, layer.value_norm * lengths[-1])
        lengths.append(smallest_of(1.0, steep * layer.output_norm * inside))
    parts = [Part(1.0, 1, network.readout_norm, lengths[-1], sample.n_samples)]
    carried = network.readout_norm
    for layer, length in zip(reversed(network.layers), reversed(lengths[:-1]), strict=True):
        inside = steep * smallest_of(1.0, layer.value_norm * length)
        through = carried * steep * layer.output_norm
        scores = through * constant * layer.value_norm * length**2
        parts += [
            Part(carried, network.width, layer.output_column_norm, inside, points),
            Part(scores, network.width, layer.score_row_norm, length, points),
            Part(through, network.columns, layer.value_column_norm, length, points),
        ]
        carried = through * layer.value_norm * (1 + 2 * constant * layer.score_norm * length**2)
    return parts
