"""What an audit found, as an object that shows itself."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from finetti.audit.layouts.block_design import BlockDesign
from finetti.audit.layouts.shape_checks import HeadGeometry
from finetti.audit.measures.matrix_norms import MatrixMeasures
from finetti.core.numerics.extremes import largest_of
from finetti.core.plain_data import field_values, to_plain
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

TITLES = {
    "query_key": "W_QW_Kᵀ",
    "value_output": "W_VW_O",
    "output": "output",
    "feed_in": "feed-forward in",
    "feed_gate": "gate",
    "feed_out": "feed-forward out",
}


@dataclass(frozen=True)
class HeadMeasures:
    """The two products that a head is made of: which tokens it reads, and what it writes.

    ``factors`` are W_Q, W_K and W_V of the head by role; ``biases`` the lengths of b_Q, b_K and, as
    "score", of W_Kb_Q, those that there are.
    """

    number: int
    query_key: MatrixMeasures
    value_output: MatrixMeasures
    factors: dict[str, MatrixMeasures] = field(default_factory=dict)
    biases: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the factors stand beside the products."""
        found = field_values(self)
        return to_plain({"head": found.pop("number"), **found.pop("factors"), **found})


@dataclass(frozen=True)
class LayerMeasures:
    """A layer's heads, its other matrices by role, and the Euclidean norms of its vectors.

    ``gains`` are the largest entries of its norms' weights, ``attention_bias`` the length of
    b_VW_O + b_O, which all heads add together; None without biases.
    """

    label: str
    heads: tuple[HeadMeasures, ...]
    matrices: dict[str, MatrixMeasures]
    vectors: dict[str, float]
    gains: dict[str, float] = field(default_factory=dict)
    attention_bias: float | None = None

    def largest_head(self, product: str) -> HeadMeasures:
        """Return the head whose ``query_key`` or ``value_output`` has the largest spectral norm."""
        return max(self.heads, key=lambda head: getattr(head, product).spectral)

    def of_kind(self, kind: str) -> list[MatrixMeasures]:
        """Return all matrices of one kind: a product of every head, or one matrix (or none)."""
        if kind in ("query_key", "value_output"):
            return [getattr(head, kind) for head in self.heads]
        return [self.matrices[kind]] if kind in self.matrices else []

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        found = field_values(self)
        return to_plain({"layer": found.pop("label"), **found})


@dataclass(frozen=True)
class OuterMeasures:
    """A norm or a projection beside the layers: its gain or matrix, and the length of its bias."""

    gain: float | None = None
    matrix: MatrixMeasures | None = None
    bias: float | None = None


@dataclass(frozen=True)
class Audit(Displayable):
    """The norms of a checkpoint, which parameters they come from, and which were left out."""

    name: str
    layout: str
    geometry: HeadGeometry
    layers: tuple[LayerMeasures, ...]
    embeddings: dict[str, dict[str, float]]
    n_parameters: int
    read: tuple[str, ...]
    skipped: dict[str, str]
    tied: tuple[str, ...] = ()
    note: str = ""
    design: BlockDesign = field(default_factory=BlockDesign)
    outer: dict[str, OuterMeasures] = field(default_factory=dict)
    kinds: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        kinds = tuple(kind for kind in TITLES if self.layers[0].of_kind(kind))
        object.__setattr__(self, "kinds", kinds)

    @property
    def tables(self) -> dict[str, dict[str, float]]:
        """Return the tables of embeddings that tokens begin with, without the unembedding."""
        return {name: each for name, each in self.embeddings.items() if name != "unembedding"}

    def totals(self) -> dict[str, dict[str, float]]:
        """For each kind of matrix: how many, the largest and typical norm, what they sum to."""
        return {kind: _total(self._of_kind(kind)) for kind in self.kinds}

    def _of_kind(self, kind: str) -> list[MatrixMeasures]:
        return [each for layer in self.layers for each in layer.of_kind(kind)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: everything that was measured, read and skipped."""
        found = field_values(self)
        heads = found.pop("geometry")
        del found["kinds"]
        sizes = {
            "n_layers": len(self.layers) * heads.repeats,
            "stored_layers": len(self.layers),
            "n_heads": heads.heads,
            "n_kv_heads": heads.kv_heads,
            "head_width": heads.head_width,
            "width": heads.width,
            "totals": self.totals(),
        }
        return to_plain({**found, **sizes})

    def __card__(self) -> Card:
        heads = self.geometry
        layers = f"{len(self.layers)}"
        if heads.repeats > 1:
            layers += f", each run {heads.repeats} times"
        shared = f", {heads.kv_heads} keys and values" if heads.kv_heads < heads.heads else ""
        fields = (
            ("layout", self.layout),
            ("layers", layers),
            ("heads", f"{heads.heads} of width {heads.head_width}{shared}"),
            ("width", heads.width),
            ("numbers read", self.n_parameters),
            ("parameters", f"{len(self.read)} read, {len(self.skipped)} skipped"),
        )
        tables = (self._layer_table(), self._head_table(), self._total_table())
        return Card(f"Audit of {self.name}", fields, tables, tuple(self._notes()))

    def _layer_table(self) -> Table:
        rows = []
        for layer in self.layers:
            cells: list[Any] = [layer.label]
            for kind in self.kinds:
                cells.append(largest_of(each.spectral for each in layer.of_kind(kind)))
                if kind in ("query_key", "value_output"):
                    cells.append(layer.largest_head(kind).number)
            rows.append(tuple(cells))
        columns = ["layer"]
        for kind in self.kinds:
            columns += [TITLES[kind]]
            columns += ["head"] if kind in ("query_key", "value_output") else []
        return Table("Spectral norms, of heads the largest", tuple(columns), tuple(rows))

    def _head_table(self) -> Table:
        rows = []
        for kind in ("query_key", "value_output"):
            heads = ((each, each.largest_head(kind)) for each in self.layers)
            layer, head = max(heads, key=lambda pair: getattr(pair[1], kind).spectral)
            found = getattr(head, kind)
            sizes = (found.spectral, found.frobenius, found.nuclear, found.norm_2_1, found.entries)
            rows.append((TITLES[kind], f"{layer.label}.{head.number}", *sizes, found.stable_rank))
        columns = ("product", "layer.head", "spectral", "Frobenius", "nuclear")
        return Table("Largest heads", (*columns, "(2,1)", "entries", "stable rank"), tuple(rows))

    def _total_table(self) -> Table:
        totals = self.totals()
        names = ("count", "largest", "geometric mean", "Frobenius", "mean stable rank")
        rows = tuple((TITLES[kind], *totals[kind].values()) for kind in totals)
        return Table("Totals", ("matrices", *names), rows)

    def _notes(self) -> Iterator[str]:
        if self.note:
            yield self.note
        reasons: dict[str, list[str]] = {}
        for name, reason in self.skipped.items():
            reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            yield f"Skipped ({reason}): {', '.join(names[:3])}{more}."
        if self.tied:
            yield f"Tied, counted once: {', '.join(self.tied)}."
        found = [each for kind in self.kinds for each in self._of_kind(kind)]
        gaps = [1 - each.spectral_lower / each.spectral_upper for each in found if each.spectral]
        gap = max(gaps, default=0.0)
        yield f"Every spectral norm is certain to {gap:.1e} of itself."


def _total(found: list[MatrixMeasures]) -> dict[str, float]:
    logs = [math.log(each.spectral) if each.spectral > 0 else -math.inf for each in found]
    return {
        "count": len(found),
        "largest_spectral": largest_of(each.spectral for each in found),
        "geometric_mean_spectral": math.exp(sum(logs) / len(logs)),
        "frobenius": math.hypot(*(each.frobenius for each in found)),
        "mean_stable_rank": sum(each.stable_rank for each in found) / len(found),
    }
