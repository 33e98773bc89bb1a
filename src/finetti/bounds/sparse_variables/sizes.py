"""What all descriptions of paper S have in common: norms that are checked, sizes, positions."""

from dataclasses import dataclass, fields

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds.base import NORM, Bound, norm_field
from finetti.bounds.covering.function_class import (
    FunctionClass,
    PositionKind,
    check_word,
    refuse_positions,
)
from finetti.bounds.sample import Sample
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_norm, as_whole


@dataclass(frozen=True, kw_only=True)
class Norms:
    """A description whose norms are finite numbers ≥ 0."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.metadata.get(NORM) and value is not None:
                number = as_norm(value, each.name, type(self).__name__)
                object.__setattr__(self, each.name, number)


@dataclass(frozen=True, kw_only=True)
class SizedClass(Norms, FunctionClass):
    """Sizes, positions and the constant of softmax.

    Args:
        width: d, the dimension of a token; in cross-attention that of the query.
        head_dimension: k, the number of columns of W_V; the width by default.
        positions: "none", "fixed" vectors added to the tokens, or "trained" ones (refused).
        position_norm: B_P, the length of the longest of them: B_X becomes B_X + B_P (A.4).
        norm_lipschitz: C of Corollary A.7; by default 1, which is sharp (printed: 2).
    """

    width: int
    head_dimension: int | None = None
    positions: PositionKind = "none"
    position_norm: float = norm_field(0.0)
    norm_lipschitz: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_word(self.positions, ("none", "fixed", "trained"), "positions", owner)
        for name, value in (("width", self.width), ("head_dimension", self.columns)):
            object.__setattr__(self, name, as_whole(value, name, owner))
        if self.norm_lipschitz is not None:
            as_norm(self.norm_lipschitz, "norm_lipschitz", owner)
        if self.positions == "none" and self.position_norm:
            raise bad_argument("positions", owner, "'fixed' where there is a position_norm", "none")

    @property
    def columns(self) -> int:
        """k, the number of columns of W_V."""
        return self.width if self.head_dimension is None else self.head_dimension

    @property
    def constant(self) -> float:
        """C with ‖softmax(θ) − softmax(θ')‖₁ ≤ C‖θ − θ'‖_∞."""
        return softmax_constant() if self.norm_lipschitz is None else self.norm_lipschitz

    def token_norm(self, sample: Sample) -> float:
        """B_X + B_P."""
        return sample.input_norm + self.position_norm

    def check(self, bound: Bound) -> None:
        """No trained positions."""
        refuse_positions(bound, self.positions)

    def notes(self) -> tuple[str, ...]:
        """That positions make the tokens longer."""
        return ("Positions make the tokens longer: B_X + B_P (A.4).",) if self.position_norm else ()
