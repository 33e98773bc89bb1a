"""What theorems assume of a network, and whether a usual Transformer is like that."""

from typing import Literal

PositionKind = Literal["none", "fixed", "trained"]
NormalizationKind = Literal["ball", "layer_norm", "none"]

ONE_LAYER = "one layer (a usual Transformer has many)"
ONE_HEAD = "one head per layer (a usual Transformer has several)"
NO_RESIDUALS = "no residual connections (a usual Transformer has them)"
NO_LAYER_NORM = "no LayerNorm (a usual Transformer has it)"
UNIT_BALL = (
    "tokens are projected onto the unit ball between and inside the layers (a usual Transformer "
    "has LayerNorm instead)"
)
FIXED_POSITIONS = "positions are fixed vectors, not trained (a usual Transformer may train them)"
RBF_SCORES = "attention is softmax over −‖q − k‖²/(2σ²) (a usual Transformer has q·k/√d)"
ASSUMED_OF_A_SAMPLE = (
    "the n sequences are independent of each other",
    "the loss is Lipschitz in the prediction, and bounded",
)
