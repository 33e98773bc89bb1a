"""A class of functions whose cover is composed of covers of its matrices."""

import abc
from typing import Literal

from finetti.bounds.base import Bound, same_quantity
from finetti.bounds.covering.composition import Composition
from finetti.bounds.sample import Sample
from finetti.core.forms import Form

PositionKind = Literal["none", "fixed", "trained"]
NormalizationKind = Literal["ball", "layer_norm", "none"]


class FunctionClass(abc.ABC):
    """What a covering bound and its generalization gap ask of a description."""

    @abc.abstractmethod
    def composition(self, sample: Sample, form: Form) -> Composition:
        """All trained matrices with what their errors cost."""

    @abc.abstractmethod
    def log_range(self, sample: Sample) -> float:
        """log A: no function of the class is larger than A on the sample."""

    @abc.abstractmethod
    def check(self, bound: Bound) -> None:
        """Refuse, by name, what ``bound`` does not cover."""

    @property
    @abc.abstractmethod
    def scalar(self) -> bool:
        """Whether the functions give one number per sequence, as a loss needs it."""

    def notes(self) -> tuple[str, ...]:
        """What a reader of a value should know of this class."""
        return ()


def refuse_positions(bound: Bound, positions: str) -> None:
    """Trained positions cost a factor linear in T, which the theorems of paper S leave out."""
    if positions == "trained":
        raise bound.refuse(
            "positions that are not trained, and `positions` is 'trained': a trained table has "
            "T·d parameters, a factor linear in T (A.4, edelman2022)",
            f"{same_quantity(bound, 'parameter-count', 'parameter-count-gap')}, which counts the "
            "table; or 'fixed' positions.",
        )
