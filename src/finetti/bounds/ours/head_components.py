"""Attention heads: product scores, rotary scores, and heads given by their whole matrices."""

import abc
import math
from dataclasses import replace

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.description import all_are
from finetti.bounds.ours.block_components import (
    ComponentBound,
    Part,
    Piece,
    chained,
    log_plus,
    log_size,
    weights,
)
from finetti.bounds.ours.weight_classes import MatrixWeights, RowWeights, WeightClass
from finetti.bounds.value import log_of
from finetti.core.arguments import as_norm, as_positive, as_whole
from finetti.core.checked_fields import checked
from finetti.core.numerics.extremes import smallest_of


def head_constants(
    log_mixing: float, log_radius: float, log_score_lipschitz: float
) -> tuple[float, float]:
    """log ‖W_VW_O‖ρC, per unit of the scores, and log Lip = log ‖W_VW_O‖(1 + Cρs) of a head

    whose scores move s times as far as its tokens; C = 1 (Corollary A.7, edelman2022).
    """
    reach = log_mixing + log_radius + math.log(softmax_constant())
    return reach, log_plus(log_mixing, reach + log_score_lipschitz)


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
    ) -> ComponentBound:
        """From how far scores move with the tokens, and per unit of their own weights."""
        size = self.mixing.log_size
        reach, lipschitz = head_constants(size, log_radius, log_score_lipschitz)
        parts = [(name, reach + factor, radius, each) for name, factor, radius, each in scores]
        return ComponentBound(
            lipschitz,
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
    >>> found = ProductHeadPiece(score=square, mixing=square).propagate(0.0)
    >>> round(math.exp(found.log_lipschitz), 9)                              # 2(1 + 2·2)
    10.0
    """

    score: MatrixWeights = weights(MatrixWeights)
    score_bias: RowWeights | None = weights(RowWeights, optional=True)

    def propagate(self, log_radius: float) -> ComponentBound:
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
    >>> found = RotaryHeadPiece(query=inward, key=inward, mixing=square).propagate(0.0)
    >>> round(math.exp(found.log_lipschitz), 9)                       # 1 + 2·2·2/√4
    5.0
    """

    query: MatrixWeights = weights(MatrixWeights)
    key: MatrixWeights = weights(MatrixWeights)
    query_bias: RowWeights | None = weights(RowWeights, optional=True)
    key_bias: RowWeights | None = weights(RowWeights, optional=True)
    scale: float | None = checked(as_positive, None)

    def propagate(self, log_radius: float) -> ComponentBound:
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

    heads: tuple[HeadPiece, ...] = checked(all_are(HeadPiece))
    bias: RowWeights | None = weights(RowWeights, optional=True)

    def propagate(self, log_radius: float) -> ComponentBound:
        """The sum of the heads."""
        found = [head.propagate(log_radius) for head in self.heads]
        parts = tuple(
            replace(each, name=f"{each.name}, head {i}")
            for i, bound in enumerate(found, start=1)
            for each in bound.parts
        )
        return ComponentBound(
            log_plus(*(each.log_lipschitz for each in found)),
            log_plus(*(each.log_radius for each in found), log_size(self.bias)),
            (*parts, *chained(("bias of attention", 0.0, 0.0, self.bias))),
        )


class PretrainedHeadNorms(fields.Description, kw_only=True):
    """Spectral norms of one head before training: W_Q, W_K, W_V, W_QW_Kᵀ and W_VW_O, all fixed."""

    query: float = checked(as_norm, 0.0)
    key: float = checked(as_norm, 0.0)
    value: float = checked(as_norm, 0.0)
    scores: float = checked(as_norm, 0.0)
    mixing: float = checked(as_norm, 0.0)


class FineTunedHeads(Piece, kw_only=True):
    """Σ_h A_hXW_V^hW_O^h + b_VW_O + b_O, every matrix W₀ + Δ with ‖Δ‖ ≤ B (of all heads together)

    No columns of Δ have a larger norm than all of it. With the norms of a head before training,

        ‖W_Q‖ ≤ q + B_Q,  ‖W_QW_Kᵀ‖ ≤ m + qB_K + B_Q(k + B_K),  ‖W_VW_O‖ ≤ w + vB_O + B_V(o + B_O)

    and so on; Lip is Σ_h of `ProductHeadPiece`'s with these. Under rotary positions ‖W_QRW_Kᵀ‖ is
    at most ‖W_Q‖‖W_K‖, and b_K counts. Moving W_Q by x moves all scores of a head by at most
    (‖W_K‖ρ + ‖b_K‖)ρx/√d_k; moving W_V by x moves the H heads side by side by √H·ρx, and the
    output by ‖W_O‖ times that.

    Args:
        query, key, value: W_Q, W_K and W_V of all heads; keys and values may be shared by heads.
        output: W_O.
        query_bias, key_bias, value_bias, output_bias: b_Q, b_K, b_V and b_O.
        base_heads: one `PretrainedHeadNorms` per head.
        head_dimension: d_k.
        rotary: whether positions rotate queries and keys.

    >>> inward = MatrixWeights(rows=8, columns=8, norm=2.0)
    >>> unit = MatrixWeights(rows=8, columns=8)
    >>> heads = {"query": inward, "key": inward, "value": unit, "output": unit}
    >>> piece = FineTunedHeads(**heads, base_heads=(PretrainedHeadNorms(),) * 4, head_dimension=4)
    >>> round(math.exp(piece.propagate(0.0).log_lipschitz), 9)                  # 4(1 + 2·2·2/√4)
    20.0
    """

    query: MatrixWeights = weights(MatrixWeights)
    key: MatrixWeights = weights(MatrixWeights)
    value: MatrixWeights = weights(MatrixWeights)
    output: MatrixWeights = weights(MatrixWeights)
    query_bias: RowWeights | None = weights(RowWeights, optional=True)
    key_bias: RowWeights | None = weights(RowWeights, optional=True)
    value_bias: RowWeights | None = weights(RowWeights, optional=True)
    output_bias: RowWeights | None = weights(RowWeights, optional=True)
    base_heads: tuple[PretrainedHeadNorms, ...] = checked(
        all_are(PretrainedHeadNorms, "a PretrainedHeadNorms per head")
    )
    head_dimension: int = checked(as_whole)
    rotary: bool = False

    def propagate(self, log_radius: float) -> ComponentBound:
        """On a ball of radius ρ."""
        moved = [_moved(each) for each in (self.query, self.key, self.value, self.output)]
        by_query, by_key, by_value, by_output = moved
        output = self.output.log_size
        shift = log_size(self.key_bias) if self.rotary else -math.inf  # which softmax sees
        scale = -math.log(self.head_dimension) / 2
        lipschitz, asking, reading, mixings, values = [], [], [], [], []
        for head in self.base_heads:
            query, key = log_plus(log_of(head.query), by_query), log_plus(log_of(head.key), by_key)
            scores = query + key
            if not self.rotary:
                pulled = log_of(head.query) + by_key, by_query + key
                scores = smallest_of(scores, log_plus(log_of(head.scores), *pulled))
            value = log_plus(log_of(head.value), by_value)
            pushed = log_of(head.value) + by_output, by_value + output
            mixing = smallest_of(value + output, log_plus(log_of(head.mixing), *pushed))
            biased = log_plus(key + log_size(self.query_bias), query + shift)
            steep = log_plus(math.log(2) + scores + log_radius, biased)
            reach, of_tokens = head_constants(mixing, log_radius, scale + steep)
            lipschitz.append(of_tokens)
            asking.append(reach + scale + log_plus(query + log_radius, log_size(self.query_bias)))
            reading.append(reach + scale + log_plus(key + log_radius, shift))
            mixings.append(mixing)
            values.append(value)
        by_q, by_k = log_plus(*reading), log_plus(*asking)
        # What W_O reads: all heads side by side.
        side = log_plus(*(2 * (each + log_radius) for each in values)) / 2
        inside = log_plus(side, log_size(self.value_bias))
        outside = log_plus(output + log_size(self.value_bias), log_size(self.output_bias))
        root = math.log(len(self.base_heads)) / 2
        return ComponentBound(
            log_plus(*lipschitz),
            log_plus(*(each + log_radius for each in mixings), outside),
            chained(
                ("W_Q", by_q, log_radius, self.query),
                ("bias of W_Q", by_q, 0.0, self.query_bias),
                ("W_K", by_k, log_radius, self.key),
                ("bias of W_K", by_k, 0.0, self.key_bias if self.rotary else None),
                ("W_V", root + output, log_radius, self.value),
                ("bias of W_V", output, 0.0, self.value_bias),
                ("W_O", 0.0, inside, self.output),
                ("bias of W_O", 0.0, 0.0, self.output_bias),
            ),
        )


def _moved(weights: WeightClass) -> float:
    """log of ‖Δ‖, −∞ for weights that are fixed."""
    return log_of(weights.norm) if weights.trained else -math.inf
