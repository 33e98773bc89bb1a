"""From an audit to the chain of real blocks: every weight as a class of its own norms."""

import math
from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Any

from finetti.audit.measures.matrix_norms import POWERS, MatrixMeasures
from finetti.audit.measures.measurements import Audit, HeadMeasures, LayerMeasures, OuterMeasures
from finetti.bounds import ours
from finetti.core.errors import UnsupportedError

# Which norms each way of covering a matrix asks for, beside the spectral one.
SCHATTEN = ("frobenius_norm", "nuclear_norm", "half_norm", "quarter_norm")
COVERS = {"count": (), "Maurey": ("entry_norm",), "Schatten": SCHATTEN}
COVERS["smallest"] = ("entry_norm", *SCHATTEN)
_ROUNDING = 1 + 1e-12  # of sums of squares in float64, more than all of their rounding
_SPECTRAL = 1 + 1e-9  # of norms of singular values, ten times the error of `singular_values`


def block_network(
    audit: Audit, readout_norm: float = 1.0, known: Collection[str] = COVERS["smallest"]
) -> ours.BlockNetwork:
    """The network of an audited checkpoint as a chain of pieces, each with its measured norms.

    Embeddings (where the table names them), all layers, norms beside them, and a readout: one
    trained vector that makes a number of a token, or of a mean of tokens.

    Args:
        audit: of `measure_checkpoint`.
        readout_norm: B_w, of that vector.
        known: which norms a class has beside the spectral ones; see `COVERS`.
    """
    return ChainBuilder(audit, frozenset(known)).network(readout_norm)


def check_design(audit: Audit) -> None:
    """Refuse, by name, a network whose blocks the chain does not have."""
    if audit.design.refused:
        raise UnsupportedError(
            f"The chain for real blocks does not cover {audit.name}: {audit.design.refused}."
        )


def token_radius(audit: Audit, input_norm: float = 1.0) -> float:
    """How long a token can be before the first layer; ``input_norm`` where no table says it."""
    first = ChainBuilder(audit, frozenset()).first()
    return math.exp(ours.compose_pieces(first, math.log(input_norm)).log_radius)


def matrix_class(
    measured: MatrixMeasures,
    known: Collection[str],
    scale: float = 1.0,
    rank: int | None = None,
    error: float | None = None,
) -> ours.MatrixWeights:
    """Return the class of a matrix with these measures, times ``scale``.

    Singular values may each be off by ``error`` (by default max(rows, columns)·2⁻⁵²·σ₁, more than
    LAPACK's rounding): Σ(σ + e)^p ≤ Σσ^p + n·e^p for p ≤ 1, and the triangle inequality above.
    """
    side = min(measured.rows, measured.columns) if rank is None else rank
    if error is None:
        error = max(measured.rows, measured.columns) * 2.0**-52 * measured.spectral_upper
    norms: dict[str, Any] = {"entry_norm": scale * _ROUNDING * measured.entries}
    for name, power in POWERS.items():
        value = getattr(measured, name)
        if power >= 1:
            grown = value + side ** (1 / power) * error
        else:
            grown = (value**power + side * error**power) ** (1 / power)
        norms[f"{name}_norm"] = scale * _SPECTRAL * grown
    return ours.MatrixWeights(
        rows=measured.rows,
        columns=measured.columns,
        norm=scale * measured.spectral_upper,
        rank=rank,
        **{name: norm for name, norm in norms.items() if name in known},
    )


def vector_class(columns: int, norm: float | None) -> ours.RowWeights | None:
    """Return a bias or a shift; None where there is none."""
    if norm is None:
        return None
    return ours.RowWeights(rows=1, columns=columns, norm=norm * _ROUNDING)


class ChainBuilder:
    """The pieces of one audit; all weights come from `matrix`, `vector` and `table`."""

    def __init__(self, audit: Audit, known: frozenset[str]) -> None:
        self.audit, self.known = audit, known
        self.width, self.design = audit.geometry.width, audit.design
        self.scale = audit.geometry.head_width**-0.5

    def network(self, readout_norm: float) -> ours.BlockNetwork:
        """Return all pieces, in their order."""
        check_design(self.audit)
        pieces = (*self.first(), *self.layers(), *self.last(readout_norm))
        return ours.BlockNetwork(pieces=pieces)

    def matrix(self, layer: str, role: str, measured: MatrixMeasures) -> ours.MatrixWeights:
        """Return the class of a matrix."""
        return matrix_class(measured, self.known)

    def vector(
        self, layer: str, role: str, columns: int, norm: float | None
    ) -> ours.RowWeights | None:
        """Return the class of a bias or a shift; None where there is none."""
        return vector_class(columns, norm)

    def gain(self, layer: str, role: str, columns: int, norm: float) -> ours.GainWeights:
        """Return the class of a gain, in the norm of its largest entry."""
        return ours.GainWeights(rows=1, columns=columns, norm=norm * _ROUNDING)

    def table(self, role: str, measured: Mapping[str, float]) -> ours.RowWeights:
        """Return the class of a table of embeddings."""
        rows, columns = int(measured["rows"]), int(measured["columns"])
        norm = measured["largest_row"] * _ROUNDING
        return ours.RowWeights(rows=rows, columns=columns, norm=norm)

    def first(self) -> list[ours.Piece]:
        """Tables of embeddings, their norm, and a projection to the width of the layers."""
        pieces: list[ours.Piece] = []
        rows = [self.table(name, each) for name, each in self.audit.tables.items()]
        if rows:
            pieces.append(ours.EmbeddingPiece(tables=tuple(rows)))
        found = self.audit.outer.get("projection", OuterMeasures())
        matrix = found.matrix
        pieces += self._outer_norm("embedding_norm", self.width if matrix is None else matrix.rows)
        if matrix is not None:
            made = self.matrix("", "projection_weight", matrix)
            bias = self.vector("", "projection_bias", self.width, found.bias)
            pieces.append(ours.LinearPiece(matrix=made, bias=bias, name="projection"))
        return pieces

    def _outer_norm(self, role: str, width: int) -> list[ours.Piece]:
        found = self.audit.outer.get(role, OuterMeasures())
        if found.gain is None:
            return []
        return [self.normalization("", role, width, found.gain, found.bias)]

    def normalization(
        self, layer: str, role: str, width: int, gain: float, shift: float | None
    ) -> ours.NormalizationPiece:
        """Return a LayerNorm, or its kin without a shift."""
        scales = self.gain(layer, f"{role}_weight", width, gain)
        assert self.design.epsilon is not None
        beta = self.vector(layer, f"{role}_bias", width, shift)
        return ours.NormalizationPiece(gain=scales, shift=beta, epsilon=self.design.epsilon)

    def layers(self) -> list[ours.Piece]:
        """Attention and feed-forward parts; layers that run several times, as one piece."""
        repeats, pieces = self.audit.geometry.repeats, []
        numbered = list(enumerate(self.audit.layers, start=1))
        # Layers "0.0", "0.1" are a group: it runs as a whole, again and again.
        for _, group in groupby(numbered, key=lambda each: each[1].label.rpartition(".")[0]):
            inside = [piece for number, layer in group for piece in self.layer(layer, number)]
            if repeats > 1:
                inside = [ours.RepeatedPiece(pieces=tuple(inside), times=repeats)]
            pieces += inside
        return pieces

    def layer(self, layer: LayerMeasures, number: int) -> list[ours.Piece]:
        """Return the two parts of a layer, each with its norm and residual."""
        parts: list[tuple[ours.Piece, str]] = [(self.attention(layer), "norm_1")]
        if "feed_in" in layer.matrices:
            parts.append((self.feed_forward(layer), "norm_2"))
        return [self.residual(piece, layer, norm, number) for piece, norm in parts]

    def residual(
        self, piece: ours.Piece, layer: LayerMeasures, norm: str, number: int
    ) -> ours.ResidualPiece:
        """x + f(norm(x)) or norm(x + f(x))."""
        gain, shift = layer.gains.get(norm), layer.vectors.get(f"{norm}_bias")
        around = None
        if gain is not None:
            around = self.normalization(layer.label, norm, self.width, gain, shift)
        order: Any = self.design.order or "pre"
        return ours.ResidualPiece(piece=piece, normalization=around, order=order, layer=number)

    def attention(self, layer: LayerMeasures) -> ours.Piece:
        """The heads of a layer: by their products or, under rotary positions, by their factors."""
        make = self._rotary_head if self.design.rotary else self._product_head
        output = layer.matrices["output"].spectral_upper
        heads = tuple(make(head, output) for head in layer.heads)
        bias = vector_class(self.width, layer.attention_bias)
        return ours.AttentionPiece(heads=heads, bias=bias)

    def _mixing(self, head: HeadMeasures, output: float) -> ours.MatrixWeights:
        return self._product(head.value_output, head.factors["value"].spectral_upper * output)

    def _product(
        self, measured: MatrixMeasures, sizes: float, scale: float = 1.0
    ) -> ours.MatrixWeights:
        """Return a product of a head: its rounding is that of its factors' norms."""
        error = measured.rows * 2.0**-52 * sizes
        rank = min(self.audit.geometry.head_width, measured.rows)
        return matrix_class(measured, self.known, scale, rank, error)

    def _product_head(self, head: HeadMeasures, output: float) -> ours.HeadPiece:
        """By W_QW_Kᵀ/√d_k and W_VW_O."""
        sizes = head.factors["query"].spectral_upper * head.factors["key"].spectral_upper
        bias = head.biases.get("score")
        return ours.ProductHeadPiece(
            score=self._product(head.query_key, sizes, self.scale),
            mixing=self._mixing(head, output),
            score_bias=vector_class(self.width, None if bias is None else self.scale * bias),
        )

    def _rotary_head(self, head: HeadMeasures, output: float) -> ours.HeadPiece:
        """By W_Q and W_K, between which positions rotate."""
        inside = self.audit.geometry.head_width
        return ours.RotaryHeadPiece(
            query=matrix_class(head.factors["query"], self.known),
            key=matrix_class(head.factors["key"], self.known),
            mixing=self._mixing(head, output),
            query_bias=vector_class(inside, head.biases.get("query")),
            key_bias=vector_class(inside, head.biases.get("key")),
        )

    def feed_forward(self, layer: LayerMeasures) -> ours.Piece:
        """Two matrices, or three with a gate."""
        made: dict[str, Any] = {}
        places = {"feed_in": "inner", "feed_out": "outer"}
        if "feed_gate" in layer.matrices:
            places = {"feed_in": "up", "feed_out": "down", "feed_gate": "gate"}
        for role, place in places.items():
            measured, bias = layer.matrices[role], f"{role}_bias"
            made[place] = self.matrix(layer.label, role, measured)
            length = layer.vectors.get(bias)
            made[f"{place}_bias"] = self.vector(layer.label, bias, measured.columns, length)
        piece = ours.GatedPiece if "gate" in made else ours.FeedForwardPiece
        return piece(**made, activation=self.design.activation)

    def last(self, readout_norm: float) -> list[ours.Piece]:
        """Return the norm after the last layer, and the readout."""
        vector = ours.MatrixWeights(rows=self.width, columns=1, norm=readout_norm)
        return [
            *self._outer_norm("final_norm", self.width),
            ours.LinearPiece(matrix=vector, name="readout"),
        ]
