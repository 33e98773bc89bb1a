"""Kinds of trials: what a study repeats. Workers load them by name."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, final

from pydantic import BaseModel

from finetti.core.errors import UnsupportedError
from finetti.studies.importing import load_object, loading
from finetti.studies.outcome import TrialResult
from finetti.studies.parameters import check_name, deliver_with, model_of, resolve_with
from finetti.studies.sources import KindSource
from finetti.studies.trial import Trial


class StudyKind(ABC):
    """What every kind says about itself. Subclass ``TrialKind`` or ``CohortKind``.

    ``version`` enters the ids: change it when results change. ``Parameters`` is a pydantic model of
    the parameters: unknown names and impossible values are refused before anything runs, and
    defaults enter the ids. A kind without it takes no parameters.
    """

    version: ClassVar[int | str] = 1
    cohort_size: ClassVar[int] = 16
    Parameters: ClassVar[type[BaseModel] | None] = None

    def resolve(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The whole configuration, defaults included; raises for what is unknown or impossible."""
        return resolve_with(self.Parameters, params)

    def check_name(self, name: str) -> None:
        """Raise if there is no parameter ``name``; a ``resolve`` of your own decides by itself."""
        if type(self).resolve is StudyKind.resolve:
            check_name(self.Parameters, name)

    def deliver(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Resolved parameters as a trial gets them: of the types that ``Parameters`` says.

        The ids are those of the plain data, where an enumeration is its value and a tuple a list.
        What a ``resolve`` of your own returns is delivered as it is.
        """
        own = type(self).resolve is StudyKind.resolve
        return deliver_with(self.Parameters if own else None, params)

    @abstractmethod
    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """Plain data that is equal for trials which may run together."""


class TrialKind(StudyKind):
    """Trials that run one after another. One that raises fails alone."""

    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """All trials are alike; a cohort is what one message to a worker carries."""
        return None

    @abstractmethod
    def run(self, params: dict[str, Any], seed: int) -> Mapping[str, Any] | TrialResult:
        """The metrics of one trial. All randomness comes from ``seed``."""


class CohortKind(StudyKind):
    """Trials that run together, for example under ``jax.vmap``.

    A cohort that raises is split until the culprit stands alone.
    """

    cohort_size: ClassVar[int] = 64

    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """One shape per cell, unless overridden."""
        return dict(params)

    @abstractmethod
    def run_cohort(
        self, trials: Sequence[Trial]
    ) -> Sequence[Mapping[str, Any] | TrialResult | BaseException]:
        """The metrics of each trial, in order (or an exception in the place of one)."""


@final
class FunctionKind(TrialKind):
    """A plain function ``function(seed, **parameters)``; its signature says the parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.version = getattr(function, "version", 1)  # pyright: ignore[reportIncompatibleVariableOverride, reportAttributeAccessIssue]
        self.Parameters = model_of(function)  # pyright: ignore[reportIncompatibleVariableOverride, reportAttributeAccessIssue]

    def run(self, params: dict[str, Any], seed: int) -> Mapping[str, Any] | TrialResult:
        """Call the function."""
        return self.function(seed=seed, **params)


def as_kind(found: Any, reference: str) -> StudyKind:
    """A kind from what its name stands for: a class, an instance, or a function."""
    if inspect.isclass(found) and issubclass(found, StudyKind):
        if inspect.isabstract(found):
            missing = ", ".join(sorted(found.__abstractmethods__))
            raise UnsupportedError(f"The kind {reference} lacks {missing}.")
        found = found()
    if isinstance(found, StudyKind):
        return found
    if inspect.isroutine(found):
        return FunctionKind(found)
    raise UnsupportedError(
        f"{reference} is neither a function of a seed nor a subclass of TrialKind or CohortKind."
    )


def load_kind(source: KindSource) -> StudyKind:
    """Import the kind that ``source`` names."""
    found = load_object(source)
    with loading(source):
        return as_kind(found, source.reference)
