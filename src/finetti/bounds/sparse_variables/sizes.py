"""What all classes of paper S have in common: sizes, positions, and what they refuse."""

import abc
from typing import Any

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import fields
from finetti.bounds.assumptions import NetworkShape, PositionKind
from finetti.bounds.covering.composition import Composition
from finetti.bounds.sample import Sample
from finetti.bounds.settings import BoundSettings
from finetti.core.errors import bad_argument
from finetti.core.forms import Form
from finetti.core.numbers import as_norm


def _read_positions(settings: BoundSettings, name: str, bound: Any) -> str:
    return settings.value(name, "fixed" if settings.norm("position_norm", 0.0) else "none")


class SizedClass(fields.Description, abc.ABC, kw_only=True):
    """Functions with sizes, positions and a constant of softmax, covered matrix by matrix.

    Args:
        width: d, the dimension of a token; in cross-attention that of the query.
        head_dimension: k, the number of columns of W_V; the width by default.
        positions: "none", "fixed" vectors added to the tokens, or "trained" ones (refused).
        position_norm: B_P, the length of the longest of them: B_X becomes B_X + B_P (A.4).
        norm_lipschitz: C of Corollary A.7; by default 1, which is sharp (printed: 2).
    """

    width: int = fields.size("width")
    head_dimension: int | None = fields.size("head_width", None)
    positions: PositionKind = fields.choice("none", "fixed", "trained", read=_read_positions)
    position_norm: float = fields.norm(0.0)
    norm_lipschitz: float | None = fields.number(None, as_norm)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "head_dimension", self.columns)
        if self.positions == "none" and self.position_norm:
            raise bad_argument(
                "positions", type(self).__name__, "'fixed' where there is a `position_norm`", "none"
            )

    @abc.abstractmethod
    def composition(self, sample: Sample, form: Form) -> Composition:
        """All trained matrices with what their errors cost."""

    @abc.abstractmethod
    def log_range(self, sample: Sample) -> float:
        """log A: no function of the class is larger than A on the sample."""

    @property
    @abc.abstractmethod
    def scalar(self) -> bool:
        """Whether the functions give one number per sequence, as a loss needs it."""

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

    @property
    def shape(self) -> NetworkShape:
        """What a bound may not cover; trained positions, for one."""
        return NetworkShape(positions=self.positions, position_norm=self.position_norm)

    def notes(self) -> tuple[str, ...]:
        """That positions make the tokens longer."""
        return ("Positions make the tokens longer: B_X + B_P (A.4).",) if self.position_norm else ()
