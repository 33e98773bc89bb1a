"""Heads with biases, as factored objects or under rotary positions; heads add."""

import abc
import math
from dataclasses import replace

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds.description import checked
from finetti.bounds.ours.pieces import Part, Passage, Piece, chained, log_plus, log_size, weights
from finetti.bounds.ours.weights import MatrixWeights, RowWeights
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_positive


class HeadPiece(Piece, abc.ABC, kw_only=True):
    """A head: what its scores do is said by the subclass.

    Values move the output by ‖W_VW_O‖; a change of all scores by at most s moves the weights by at
    most C·s in ℓ1 (C = 1, Corollary A.7, edelman2022), and the output by ‖W_VW_O‖ρ·C·s.

    Args:
        mixing: W_VW_O, of rank d_k at most. The bias of the values is a constant in the output, for
            weights of attention add up to 1: it is part of the layer's.
    """

    mixing: MatrixWeights = weights(MatrixWeights)

    def attend(
        self,
        log_radius: float,
        log_score_lipschitz: float,
        *scores: Part,
    ) -> Passage:
        """From how far scores move with the tokens, and per unit of their own weights."""
        size = self.mixing.log_size
        reach = size + log_radius + math.log(softmax_constant())
        parts = [(name, reach + factor, radius, each) for name, factor, radius, each in scores]
        return Passage(
            log_plus(size, reach + log_score_lipschitz),
            size + log_radius,
            chained(*parts, ("W_VO", 0.0, log_radius, self.mixing)),
        )


class ProductHeadPiece(HeadPiece, kw_only=True):
    """Scores z_τMz_t + c·z_t, M = W_QW_Kᵀ/√d_k and c = W_Kb_Q/√d_k; the rest softmax does not see

        Lip = ‖W_VW_O‖(1 + Cρ(2‖M‖ρ + ‖c‖)) on a ball of radius ρ

    Moving M by x moves the output by ‖W_VW_O‖ρ·Cρ²x, c by ‖W_VW_O‖ρ·Cρx, W_VW_O by ρx. Masks change
    nothing, and biases that depend on positions only (ALiBi) cancel in differences.

    Args:
        score: M, of rank d_k at most.
        score_bias: c, one row; None without a bias of the queries.

    >>> square = MatrixWeights(rows=8, columns=8, norm=2.0, rank=4)
    >>> found = ProductHeadPiece(score=square, mixing=square).through(0.0)
    >>> round(math.exp(found.log_lipschitz), 9)                              # 2(1 + 2·2)
    10.0
    """

    score: MatrixWeights = weights(MatrixWeights)
    score_bias: RowWeights | None = weights(RowWeights, optional=True)

    def through(self, log_radius: float) -> Passage:
        """On a ball of radius ρ."""
        steep = math.log(2) + self.score.log_size + log_radius
        return self.attend(
            log_radius,
            log_plus(steep, log_size(self.score_bias)),
            ("W_QK", log_radius, log_radius, self.score),
            ("bias of W_QK", 0.0, log_radius, self.score_bias),
        )


class RotaryHeadPiece(HeadPiece, kw_only=True):
    """Scores (z_τW_Q + b_Q)R_{t−τ}(z_tW_K + b_K)ᵀ·scale with rotations R: no product of matrices

        ‖M‖ becomes ‖W_Q‖‖W_K‖·scale and ‖c‖ (‖W_K‖‖b_Q‖ + ‖W_Q‖‖b_K‖)·scale

    With lengths q = ‖W_Q‖ρ + ‖b_Q‖ and k = ‖W_K‖ρ + ‖b_K‖, moving W_Q by x moves scores by
    scale·kρx, b_Q by scale·kx, and W_K and b_K the same with q.

    Args:
        query, key: W_Q and W_K; heads that share a W_K may each count it, which is never too small.
        query_bias, key_bias: b_Q and b_K.
        scale: 1/√d_k by default.

    >>> inward = MatrixWeights(rows=8, columns=4, norm=2.0)
    >>> square = MatrixWeights(rows=8, columns=8, rank=4)
    >>> found = RotaryHeadPiece(query=inward, key=inward, mixing=square).through(0.0)
    >>> round(math.exp(found.log_lipschitz), 9)                       # 1 + 2·2·2/√4
    5.0
    """

    query: MatrixWeights = weights(MatrixWeights)
    key: MatrixWeights = weights(MatrixWeights)
    query_bias: RowWeights | None = weights(RowWeights, optional=True)
    key_bias: RowWeights | None = weights(RowWeights, optional=True)
    scale: float | None = checked(as_positive, None)

    def through(self, log_radius: float) -> Passage:
        """On a ball of radius ρ."""
        query, key = self.query.log_size, self.key.log_size
        log_scale = (
            -math.log(self.query.columns) / 2 if self.scale is None else math.log(self.scale)
        )
        asked = log_scale + log_plus(query + log_radius, log_size(self.query_bias))
        read = log_scale + log_plus(key + log_radius, log_size(self.key_bias))
        return self.attend(
            log_radius,
            log_plus(query + read, key + asked),
            ("W_Q", read, log_radius, self.query),
            ("W_K", asked, log_radius, self.key),
            ("bias of W_Q", read, 0.0, self.query_bias),
            ("bias of W_K", asked, 0.0, self.key_bias),
        )


class AttentionPiece(Piece, kw_only=True):
    """Heads that are added, and a bias b_VW_O + b_O of all of them

    Args:
        heads: `ProductHeadPiece` or `RotaryHeadPiece`.
        bias: one row, or None.
    """

    heads: tuple[HeadPiece, ...] = checked(lambda value, name, owner: tuple(value))
    bias: RowWeights | None = weights(RowWeights, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.heads or not all(isinstance(each, HeadPiece) for each in self.heads):
            raise bad_argument("heads", "AttentionPiece", "one HeadPiece or more", self.heads)

    def through(self, log_radius: float) -> Passage:
        """The sum of the heads."""
        found = [head.through(log_radius) for head in self.heads]
        parts = tuple(
            replace(each, name=f"{each.name}, head {i}")
            for i, passage in enumerate(found, start=1)
            for each in passage.parts
        )
        return Passage(
            log_plus(*(each.log_lipschitz for each in found)),
            log_plus(*(each.log_radius for each in found), log_size(self.bias)),
            (*parts, *chained(("bias of attention", 0.0, 0.0, self.bias))),
        )
