"""Feed-forward parts: two matrices, or three with a gate."""

from finetti.bounds.ours.block_components import (
    ComponentBound,
    Piece,
    activation,
    chained,
    log_plus,
    log_size,
    log_slope,
    weights,
)
from finetti.bounds.ours.weight_classes import MatrixWeights, RowWeights


class FeedForwardPiece(Piece, kw_only=True):
    """σ(xW₁ + b₁)W₂ + b₂: Lip(σ)‖W₁‖‖W₂‖, radius (‖W₁‖ρ + ‖b₁‖)‖W₂‖ + ‖b₂‖, since |σ(x)| ≤ |x|

    Args:
        inner, outer: W₁ and W₂.
        inner_bias, outer_bias: b₁ and b₂.
        activation: σ: gelu, gelu_tanh, silu, relu, tanh or identity.

    >>> import math
    >>> inner, outer = (MatrixWeights(rows=a, columns=b, norm=2.0) for a, b in ((8, 32), (32, 8)))
    >>> part = FeedForwardPiece(inner=inner, outer=outer, activation="relu")
    >>> round(math.exp(part.propagate(0.0).log_lipschitz), 9)
    4.0
    """

    inner: MatrixWeights = weights(MatrixWeights)
    outer: MatrixWeights = weights(MatrixWeights)
    inner_bias: RowWeights | None = weights(RowWeights, optional=True)
    outer_bias: RowWeights | None = weights(RowWeights, optional=True)
    activation: str = activation()

    def propagate(self, log_radius: float) -> ComponentBound:
        """On a ball of radius ρ."""
        outside = log_slope(self.activation) + self.outer.log_size
        hidden = log_plus(self.inner.log_size + log_radius, log_size(self.inner_bias))
        return ComponentBound(
            outside + self.inner.log_size,
            log_plus(self.outer.log_size + hidden, log_size(self.outer_bias)),
            chained(
                ("W_in", outside, log_radius, self.inner),
                ("bias of W_in", outside, 0.0, self.inner_bias),
                ("W_out", 0.0, hidden, self.outer),
                ("bias of W_out", 0.0, 0.0, self.outer_bias),
            ),
        )


class GatedPiece(Piece, kw_only=True):
    """(σ(xW_gate + b_gate) ⊙ (xW_up + b_up))W_down + b_down, as SwiGLU with σ = silu

        Lip = ‖W_down‖(‖W_up‖·g + Lip(σ)‖W_gate‖·u)
        g = ‖W_gate‖ρ + ‖b_gate‖,   u = ‖W_up‖ρ + ‖b_up‖

    because ‖a ⊙ b‖ ≤ ‖a‖_∞‖b‖, and no entry of the gate is larger than g, or of xW_up than u.

    Args:
        gate, up, down: W_gate, W_up and W_down.
        gate_bias, up_bias, down_bias: their biases.
        activation: σ.

    >>> import math
    >>> inward, outward = (MatrixWeights(rows=a, columns=b) for a, b in ((8, 32), (32, 8)))
    >>> part = GatedPiece(gate=inward, up=inward, down=outward, activation="relu")
    >>> round(math.exp(part.propagate(math.log(3.0)).log_lipschitz), 9)
    6.0
    """

    gate: MatrixWeights = weights(MatrixWeights)
    up: MatrixWeights = weights(MatrixWeights)
    down: MatrixWeights = weights(MatrixWeights)
    gate_bias: RowWeights | None = weights(RowWeights, optional=True)
    up_bias: RowWeights | None = weights(RowWeights, optional=True)
    down_bias: RowWeights | None = weights(RowWeights, optional=True)
    activation: str = activation()

    def propagate(self, log_radius: float) -> ComponentBound:
        """On a ball of radius ρ."""
        down, steep = self.down.log_size, log_slope(self.activation)
        opened = log_plus(self.gate.log_size + log_radius, log_size(self.gate_bias))
        raised = log_plus(self.up.log_size + log_radius, log_size(self.up_bias))
        by_up, by_gate = down + opened, down + steep + raised
        return ComponentBound(
            log_plus(by_up + self.up.log_size, by_gate + self.gate.log_size),
            log_plus(down + opened + raised, log_size(self.down_bias)),
            chained(
                ("W_gate", by_gate, log_radius, self.gate),
                ("bias of W_gate", by_gate, 0.0, self.gate_bias),
                ("W_up", by_up, log_radius, self.up),
                ("bias of W_up", by_up, 0.0, self.up_bias),
                ("W_down", 0.0, opened + raised, self.down),
                ("bias of W_down", 0.0, 0.0, self.down_bias),
            ),
        )
