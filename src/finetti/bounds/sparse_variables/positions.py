"""A.4: what vectors of position cost, added to the tokens."""

from dataclasses import dataclass, replace
from typing import ClassVar

from finetti.bounds.covering.composed import ComposedCovering
from finetti.bounds.settings import BoundSettings
from finetti.bounds.sparse_variables.head import ASSUMED_OF_A_HEAD, head_class
from finetti.bounds.sparse_variables.sizes import SizedClass
from finetti.core.errors import bad_argument


@dataclass(frozen=True)
class PositionCovering(ComposedCovering):
    """Corollary 4.4 for tokens x_t + p_t: B_X becomes B_X + B_P, for the query too   A.4

    The vectors are fixed; a trained table has T·d parameters, which costs a factor linear in T and
    is refused. Printed: (dL_σB)²((B_V^∞)^{2/3} + (2B_QK^∞B_VB)^{2/3})³/ε² · log(mT), B = B_X + B_P,
    which lacks B_τ (erratum 1).

    Args:
        functions: a `HeadClass` (or any class of paper S) with ``positions="fixed"``.
        resolution: ε.

    >>> from finetti.bounds import Sample
    >>> from finetti.bounds.sparse_variables import HeadClass, HeadCovering
    >>> moved = PositionCovering(HeadClass(width=8, positions="fixed", position_norm=0.5))
    >>> plain = HeadCovering(HeadClass(width=8))
    >>> moved.evaluate(Sample(100, 50)).value == plain.evaluate(Sample(100, 50, 1.5)).value
    True
    """

    name: ClassVar[str] = "S-app-A.4"
    title: ClassVar[str] = "the capacity of one head with positions"
    statement: ClassVar[str] = "positions of length B_P: as without, for tokens of length B_X + B_P"
    citation: ClassVar[str] = "A.4, edelman2022"
    assumes: ClassVar[tuple[str, ...]] = ASSUMED_OF_A_HEAD

    def __post_init__(self) -> None:
        super().__post_init__()
        positions = self.functions.positions if isinstance(self.functions, SizedClass) else None
        if positions != "fixed":
            advice = "S-cor-4.4 is without."
            raise bad_argument("positions", "PositionCovering", "'fixed'", positions, advice)

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "PositionCovering":
        """One head; ``position_norm`` is 1 by default here."""
        length = settings.norm("position_norm", 1.0)
        head = head_class(cls, settings, scalar=False)
        if head.positions != "trained":  # which is refused below
            head = replace(head, positions="fixed", position_norm=length)
        return cls(head, settings.resolution, form=settings.form)
