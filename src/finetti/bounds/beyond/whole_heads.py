"""All heads of a layer from its four whole matrices: where a fine-tuning moves them as wholes."""

import math

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds.beyond.pieces import Passage, Piece, chained, log_plus, log_size, weights
from finetti.bounds.beyond.weights import MatrixWeights, RowWeights
from finetti.bounds.checks import checked
from finetti.core.numbers import as_whole


class WholeHeadsPiece(Piece, kw_only=True):
    """(A_1XW_V^1, …, A_HXW_V^H)W_O + b_VW_O + b_O, scores (z_τW_Q^h + b_Q)R(z_tW_K^h + b_K)ᵀ/√d_k

        Lip = √H‖W_V‖‖W_O‖(1 + Cρ(‖W_Q‖k + ‖W_K‖q)/√d_k),   q = ‖W_Q‖ρ + ‖b_Q‖, k = ‖W_K‖ρ + ‖b_K‖

    No columns of a matrix have a larger norm than all of it, rotations R (or R = I) change no
    length, and H parts of length at most r are together no longer than √H·r. Moving W_Q by x moves
    all scores by at most kρx/√d_k, so the output by √H‖W_V‖‖W_O‖ρ·C times that; W_K and the biases
    alike; W_V by x: √H‖W_O‖ρx; W_O by x: (√H‖W_V‖ρ + ‖b_V‖)x.

    Args:
        query, key, value: W_Q, W_K and W_V of all heads; keys and values may be shared by heads.
        output: W_O.
        query_bias, key_bias, value_bias, output_bias: b_Q, b_K, b_V and b_O.
        n_heads: H.
        head_dimension: d_k.

    >>> inward = MatrixWeights(rows=8, columns=8, norm=2.0)
    >>> unit = MatrixWeights(rows=8, columns=8)
    >>> heads = {"query": inward, "key": inward, "value": unit, "output": unit}
    >>> found = WholeHeadsPiece(**heads, n_heads=4, head_dimension=4).through(0.0)
    >>> round(math.exp(found.log_lipschitz), 9)                              # √4(1 + 2·2·2/√4)
    10.0
    """

    query: MatrixWeights = weights(MatrixWeights)
    key: MatrixWeights = weights(MatrixWeights)
    value: MatrixWeights = weights(MatrixWeights)
    output: MatrixWeights = weights(MatrixWeights)
    query_bias: RowWeights | None = weights(RowWeights, optional=True)
    key_bias: RowWeights | None = weights(RowWeights, optional=True)
    value_bias: RowWeights | None = weights(RowWeights, optional=True)
    output_bias: RowWeights | None = weights(RowWeights, optional=True)
    n_heads: int = checked(as_whole)
    head_dimension: int = checked(as_whole)

    def through(self, log_radius: float) -> Passage:
        """On a ball of radius ρ."""
        root = math.log(self.n_heads) / 2
        query, key = self.query.log_size, self.key.log_size
        value, output = root + self.value.log_size, self.output.log_size
        scale = -math.log(self.head_dimension) / 2
        asked = scale + log_plus(query + log_radius, log_size(self.query_bias))
        read = scale + log_plus(key + log_radius, log_size(self.key_bias))
        reach = value + output + log_radius + math.log(softmax_constant())
        mixed = log_plus(value + log_radius, log_size(self.value_bias))
        return Passage(
            log_plus(value + output, reach + log_plus(query + read, key + asked)),
            log_plus(output + mixed, log_size(self.output_bias)),
            chained(
                ("W_Q", reach + read, log_radius, self.query),
                ("bias of W_Q", reach + read, 0.0, self.query_bias),
                ("W_K", reach + asked, log_radius, self.key),
                ("bias of W_K", reach + asked, 0.0, self.key_bias),
                ("W_V", root + output, log_radius, self.value),
                ("bias of W_V", output, 0.0, self.value_bias),
                ("W_O", 0.0, mixed, self.output),
                ("bias of W_O", 0.0, 0.0, self.output_bias),
            ),
        )
