"""A network of real blocks, from norms alone: what an audit of a checkpoint fills in."""

from functools import cached_property
from typing import Any, Self

from finetti.bounds import description as fields
from finetti.bounds.covering.network_bounds import NetworkClass
from finetti.bounds.description import BoundSettings, all_are
from finetti.bounds.ours.block_components import (
    SLOPES,
    ComponentBound,
    EmbeddingPiece,
    LinearPiece,
    NormalizationPiece,
    Piece,
    ResidualPiece,
    compose_pieces,
)
from finetti.bounds.ours.cover_allocation import LengthFreeComposition
from finetti.bounds.ours.feed_forward_components import FeedForwardPiece, GatedPiece
from finetti.bounds.ours.head_components import AttentionPiece, ProductHeadPiece
from finetti.bounds.ours.weight_classes import GainWeights, MatrixWeights
from finetti.bounds.value import Sample, log_of
from finetti.core.arguments import Form, as_positive
from finetti.core.checked_fields import checked, one_of
from finetti.core.errors import bad_argument


class BlockNorms(fields.Description, kw_only=True):
    """The spectral norms of one block, as settings give them; see `BlockNetwork.from_settings`.

    Args:
        score_norm, value_norm: ‖W_QW_Kᵀ‖/√d_k and ‖W_VW_O‖ of each head.
        inner_norm, outer_norm: ‖W₁‖ and ‖W₂‖ (gated: W_up and W_down).
        gate_norm: ‖W_gate‖ of a gated part.
        gain_norm: max|g| of both normalizations.
    """

    score_norm: float = fields.norm(1.0)
    value_norm: float = fields.norm(1.0)
    inner_norm: float = fields.norm(1.0)
    outer_norm: float = fields.norm(1.0)
    gate_norm: float = fields.norm(1.0, like="inner_norm")
    gain_norm: float = fields.norm(1.0)


class BlockShape(fields.Description, kw_only=True):
    """What blocks of one kind share.

    Args:
        width: d.
        hidden_dimension: columns of W₁; the width by default, as in all bounds.
        n_heads, head_dimension: H and d_k.
        order: "pre" (x + f(norm(x)), and a last norm) or "post" (norm(x + f(x))).
        gated: three matrices with a gate in the place of two.
        activation: of the feed-forward part.
        epsilon: under the root of a normalization.
        readout_norm: B_w, of the vector that reads a token at the end.
    """

    width: int = fields.size("width")
    hidden_dimension: int = fields.width_or_own()
    n_heads: int = fields.size("n_heads", 1)
    head_dimension: int = fields.size("head_width")
    order: str = fields.choice("pre", "post")
    gated: bool = fields.flag(False)
    activation: str = fields.setting("gelu", one_of(*SLOPES))
    epsilon: float = fields.number(1e-5, as_positive)
    readout_norm: float = fields.norm(1.0)

    def block(self, norms: BlockNorms, layer: int) -> tuple[Piece, Piece]:
        """Attention and feed-forward part, each with its normalization and residual."""
        d, rank = self.width, min(self.width, self.head_dimension)
        hidden = self.hidden_dimension
        head = ProductHeadPiece(
            score=MatrixWeights(rows=d, columns=d, rank=rank, norm=norms.score_norm),
            mixing=MatrixWeights(rows=d, columns=d, rank=rank, norm=norms.value_norm),
        )
        up = MatrixWeights(rows=d, columns=hidden, norm=norms.inner_norm)
        down = MatrixWeights(rows=hidden, columns=d, norm=norms.outer_norm)
        if self.gated:
            gate = MatrixWeights(rows=d, columns=hidden, norm=norms.gate_norm)
            after = GatedPiece(gate=gate, up=up, down=down, activation=self.activation)
        else:
            after = FeedForwardPiece(inner=up, outer=down, activation=self.activation)
        attention = AttentionPiece(heads=(head,) * self.n_heads)
        return self._residual(attention, norms, layer), self._residual(after, norms, layer)

    def _residual(self, piece: Piece, norms: BlockNorms, layer: int) -> ResidualPiece:
        norm = self.normalization(norms.gain_norm)
        order: Any = self.order
        return ResidualPiece(piece=piece, normalization=norm, order=order, layer=layer)

    def normalization(self, gain_norm: float) -> NormalizationPiece:
        """A normalization without shift."""
        gain = GainWeights(rows=1, columns=self.width, norm=gain_norm)
        return NormalizationPiece(gain=gain, epsilon=self.epsilon)

    def network(self, blocks: tuple[BlockNorms, ...]) -> tuple[Piece, ...]:
        """All blocks, the last normalization where they have none, and the readout."""
        numbered = enumerate(blocks, start=1)
        pieces = [piece for layer, norms in numbered for piece in self.block(norms, layer)]
        last = [self.normalization(blocks[-1].gain_norm)] if self.order == "pre" else []
        readout = MatrixWeights(rows=self.width, columns=1, norm=self.readout_norm)
        return (*pieces, *last, LinearPiece(matrix=readout, name="w"))


class BlockNetwork(Piece, NetworkClass, kw_only=True):
    """Pieces in a row: embedding, blocks, readout. Every weight gets its multiplier and radius.

    Args:
        pieces: in the order of the network. Without an `EmbeddingPiece` at the beginning, tokens
            are vectors no longer than B_X of the sample.

    >>> head = MatrixWeights(rows=8, columns=8, rank=4)
    >>> gain = GainWeights(rows=1, columns=8)
    >>> attention = AttentionPiece(heads=(ProductHeadPiece(score=head, mixing=head),) * 2)
    >>> block = ResidualPiece(piece=attention, normalization=NormalizationPiece(gain=gain), layer=1)
    >>> readout = LinearPiece(matrix=MatrixWeights(rows=8, columns=1), name="w")
    >>> network = BlockNetwork(pieces=(block, readout))
    >>> [each.name for each in network.propagate_tokens(Sample(1, 1)).parts][:3]
    ['gain', 'W_QK, head 1', 'W_VO, head 1']
    """

    pieces: tuple[Piece, ...] = checked(all_are(Piece))

    def __post_init__(self) -> None:
        super().__post_init__()
        late = [each for each in self.pieces[1:] if isinstance(each, EmbeddingPiece)]
        if late:
            raise bad_argument("pieces", "BlockNetwork", "an EmbeddingPiece only first", "later")

    @classmethod
    def from_settings(cls, settings: BoundSettings, bound: Any = None) -> Self:
        """Alike blocks of the usual kind, by `BlockShape` and `BlockNorms`."""
        shape = BlockShape.from_settings(settings, bound)
        owner = f"A layer of {bound.name if bound is not None else cls.__name__}"
        blocks = settings.each("layers", BlockNorms, owner)
        return cls(pieces=shape.network(blocks))

    @classmethod
    def norm_names(cls) -> tuple[str, ...]:
        """Those of `BlockShape` and `BlockNorms`."""
        return ("layers", *BlockShape.norm_names(), *BlockNorms.norm_names())

    def propagate(self, log_radius: float) -> ComponentBound:
        """The whole chain: its constant, the radius of its output, and all weights."""
        return self._kept(log_radius)[0]

    def _kept(self, log_radius: float) -> tuple[ComponentBound, LengthFreeComposition]:
        """Every n of an inversion asks for the same ones, and the allocations that were found."""
        if log_radius not in self._by_radius:
            bound = compose_pieces(self.pieces, log_radius)
            self._by_radius[log_radius] = bound, LengthFreeComposition(bound.parts)
        return self._by_radius[log_radius]

    @cached_property
    def _by_radius(self) -> dict[float, tuple[ComponentBound, LengthFreeComposition]]:
        return {}

    def propagate_tokens(self, sample: Sample) -> ComponentBound:
        """The same for tokens of a sample."""
        return self.propagate(log_of(sample.input_norm))

    def composition(self, sample: Sample, form: Form = "derived") -> LengthFreeComposition:
        """All weights with a_jρ_j."""
        return self._kept(log_of(sample.input_norm))[1]

    def log_range(self, sample: Sample) -> float:
        """log of the largest output."""
        return self.propagate_tokens(sample).log_radius
