"""All heads of a layer from its four whole matrices: where a fine-tuning moves them as wholes."""

import math

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.description import checked
from finetti.bounds.ours.pieces import Passage, Piece, chained, log_plus, log_size, weights
from finetti.bounds.ours.weights import MatrixWeights, RowWeights, WeightClass
from finetti.bounds.value import log_of
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_norm, as_whole, smallest_of


class BaseHead(fields.Description, kw_only=True):
    """Spectral norms of one head before training: W_Q, W_K, W_V, W_QW_Kᵀ and W_VW_O, all fixed."""

    query: float = checked(as_norm, 0.0)
    key: float = checked(as_norm, 0.0)
    value: float = checked(as_norm, 0.0)
    scores: float = checked(as_norm, 0.0)
    mixing: float = checked(as_norm, 0.0)


class WholeHeadsPiece(Piece, kw_only=True):
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
        base_heads: one `BaseHead` per head.
        head_dimension: d_k.
        rotary: whether positions rotate queries and keys.

    >>> inward = MatrixWeights(rows=8, columns=8, norm=2.0)
    >>> unit = MatrixWeights(rows=8, columns=8)
    >>> heads = {"query": inward, "key": inward, "value": unit, "output": unit}
    >>> piece = WholeHeadsPiece(**heads, base_heads=(BaseHead(),) * 4, head_dimension=4)
    >>> round(math.exp(piece.through(0.0).log_lipschitz), 9)                  # 4(1 + 2·2·2/√4)
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
    base_heads: tuple[BaseHead, ...] = checked(lambda value, name, owner: tuple(value))
    head_dimension: int = checked(as_whole)
    rotary: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.base_heads or not all(isinstance(h, BaseHead) for h in self.base_heads):
            raise bad_argument("base_heads", "WholeHeadsPiece", "a BaseHead per head", "others")

    def through(self, log_radius: float) -> Passage:
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
            reach = mixing + log_radius + math.log(softmax_constant()) + scale
            biased = log_plus(key + log_size(self.query_bias), query + shift)
            steep = log_plus(math.log(2) + scores + log_radius, biased)
            lipschitz.append(log_plus(mixing, reach + steep))
            asking.append(reach + log_plus(query + log_radius, log_size(self.query_bias)))
            reading.append(reach + log_plus(key + log_radius, shift))
            mixings.append(mixing)
            values.append(value)
        by_q, by_k = log_plus(*reading), log_plus(*asking)
        # What W_O reads: all heads side by side.
        side = log_plus(*(2 * (each + log_radius) for each in values)) / 2
        inside = log_plus(side, log_size(self.value_bias))
        outside = log_plus(output + log_size(self.value_bias), log_size(self.output_bias))
        root = math.log(len(self.base_heads)) / 2
        return Passage(
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
