"""What theorems assume of a network, whether it is met, and which bound does without it."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from finetti.bounds.description import BoundSettings, Checked, checked, one_of
from finetti.bounds.value import OF_THE_LOSS
from finetti.core.forms import Form
from finetti.core.numbers import as_norm, as_whole

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
IN_THE_TOKENS = "positions are part of the tokens, and of the length of the longest"
RBF_SCORES = "attention is softmax over −‖q − k‖²/(2σ²) (a usual Transformer has q·k/√d_k)"
ASSUMED_OF_A_SAMPLE = (
    "the n sequences are independent of each other",
    "the loss is Lipschitz in the prediction, and bounded",
)

# By which of the settings an assumption is judged.
_SETTINGS = {
    FIXED_POSITIONS: "positions",
    IN_THE_TOKENS: "position_norm",
    UNIT_BALL: "normalization",
    NO_LAYER_NORM: "normalization",
    NO_RESIDUALS: "skips",
}
# The bounds to offer, the nearest first: what they bound, and what they assume. What the last
# would assume can be given as numbers.
NEAREST = (
    (
        {"log covering number": "S-lemma-A.12", "generalization gap": "S-lemma-A.12-gap"},
        (ONE_LAYER, NO_RESIDUALS, NO_LAYER_NORM, FIXED_POSITIONS),
    ),
    (
        {"log covering number": "S-thm-A.17", "generalization gap": "S-thm-A.17-gap"},
        (ONE_HEAD, NO_RESIDUALS, UNIT_BALL, FIXED_POSITIONS),
    ),
    (
        {
            "log covering number": "E-lemma-C.8",
            "generalization gap": "E-thm-C.5",
            "generalization error": "E-thm-C.4-constants",
        },
        (NO_LAYER_NORM, FIXED_POSITIONS, IN_THE_TOKENS),
    ),
    ({"log covering number": "parameter-count", "generalization gap": "parameter-count-gap"}, ()),
)


class NetworkShape(Checked):
    """What a network has of the things that theorems exclude; None: not said, so as they like."""

    n_layers: int = checked(as_whole, 1)
    n_heads: int = checked(as_whole, 1)
    positions: PositionKind | None = checked(one_of(*get_args(PositionKind)), None)
    normalization: NormalizationKind | None = checked(one_of(*get_args(NormalizationKind)), None)
    skips: bool | None = None
    position_norm: float | None = checked(as_norm, None)

    @classmethod
    def of(cls, settings: BoundSettings) -> "NetworkShape":
        """That of ``settings``."""
        said = {name: settings.value(name, None) for name in _SETTINGS.values()}
        return cls(settings.n_layers, settings.n_heads, **said)

    @staticmethod
    def names(assumes: Sequence[str]) -> set[str]:
        """The settings by which some assumptions are judged."""
        return {_SETTINGS[each] for each in assumes if each in _SETTINGS}

    def failed(self, assumes: Sequence[str]) -> list[str]:
        """Those of the assumptions that are not met, in words."""
        normalization = self.normalization
        lipschitz = ", which is only max|gain|/√ε-Lipschitz" * (normalization == "layer_norm")
        failures = {
            ONE_LAYER: self.n_layers > 1 and f"a single layer, and here are {self.n_layers}",
            ONE_HEAD: self.n_heads > 1 and f"a single head per layer, and here are {self.n_heads}",
            FIXED_POSITIONS: self.positions == "trained"
            and "positions that are not trained, and `positions` is 'trained': a trained "
            "positional table has T·d parameters, a factor linear in T (A.4, edelman2022)",
            UNIT_BALL: normalization in ("layer_norm", "none")
            and "a projection of the tokens onto the unit ball, and `normalization` is "
            f"{normalization!r}{lipschitz}",
            NO_LAYER_NORM: normalization in ("layer_norm", "ball")
            and f"layers without normalization, and this network has {normalization}",
            IN_THE_TOKENS: self.position_norm
            and "positions that are part of the tokens and of `input_norm`, and `position_norm` "
            f"is {self.position_norm:g}",
            NO_RESIDUALS: self.skips and "no residual connections, and `skips` is true",
        }
        return [words for each in assumes if (words := failures.get(each))]


DERIVED_ONLY = ("E-thm-C.4-constants", "parameter-count", "parameter-count-gap")


def nearest_bound(bound: Any, shape: NetworkShape, form: Form) -> str:
    """The bound to take in place of a ``bound`` (or its class) that does not cover ``shape``."""
    kinds = [bound.quantity]
    if bound.quantity in OF_THE_LOSS:
        kinds.append("generalization gap")
    for kind in kinds:
        found = [(names[kind], assumes) for names, assumes in NEAREST if kind in names]
        # Those of the same paper first: they speak of the same network.
        found.sort(key=lambda each: not each[0].startswith(f"{bound.paper}-"))
        for name, assumes in found:
            if not shape.failed(assumes):
                derived = ", derived" * (form == "printed" and name in DERIVED_ONLY)
                return name + derived + ("" if assumes else _numbers(shape)) + "."
    return f"none; no bound of a {bound.quantity} covers such a network."


def _numbers(shape: NetworkShape) -> str:
    """What the count of parameters has to be told of a network that the papers do not have."""
    table = ", which counts the table (give its `position_norm`)"
    own = ", with `lipschitz` and `output_range` of your own"
    return table * (shape.positions == "trained") + own * bool(
        shape.failed((UNIT_BALL, NO_RESIDUALS))
    )
