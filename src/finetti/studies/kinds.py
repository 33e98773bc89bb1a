"""Kinds of trials: what a study repeats. Workers load them by name."""

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from finetti.core.errors import FinettiError, InputError, UnsupportedError
from finetti.studies.canonical import canonical_json
from finetti.studies.importing import import_snapshot
from finetti.studies.outcome import Result
from finetti.studies.sources import KindSource
from finetti.studies.trial import Trial


class Kind(ABC):
    """What every kind says about itself. Subclass ``TrialKind`` or ``CohortKind``.

    ``version`` enters the ids: change it when results change. ``Parameters`` is a pydantic model of
    the parameters: unknown names and impossible values are refused before anything runs, and
    defaults enter the ids.
    """

    version: ClassVar[int | str] = 1
    cohort_size: ClassVar[int] = 16
    Parameters: ClassVar[type[BaseModel] | None] = None

    def resolve(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The whole configuration, defaults included; raises for what is unknown or impossible."""
        if self.Parameters is None:
            return dict(params)
        return resolve_with(self.Parameters, params)

    @abstractmethod
    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """Plain data that is equal for trials which may run together."""


class TrialKind(Kind):
    """Trials that run one after another. One that raises fails alone."""

    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """All trials are alike; a cohort is what one message to a worker carries."""
        return None

    @abstractmethod
    def run(self, params: dict[str, Any], seed: int) -> Mapping[str, Any] | Result:
        """The metrics of one trial. All randomness comes from ``seed``."""


class CohortKind(Kind):
    """Trials that run together, for example under ``jax.vmap``.

    A cohort that raises is split until the culprit stands alone.
    """

    cohort_size: ClassVar[int] = 64

    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """One shape per cell, unless overridden."""
        return dict(params)

    @abstractmethod
    def run_cohort(self, trials: Sequence[Trial]) -> Sequence[Mapping[str, Any] | Result]:
        """The metrics of each trial, in order (or an exception in the place of one)."""


@final
class FunctionKind(TrialKind):
    """A plain function ``function(seed, **parameters)``; its signature says the parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.version = getattr(function, "version", 1)  # pyright: ignore[reportIncompatibleVariableOverride, reportAttributeAccessIssue]
        self.model, self.seed_name = _model_of(function)

    def resolve(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters by the names, types and defaults of the signature."""
        return resolve_with(self.model, params)

    def run(self, params: dict[str, Any], seed: int) -> Mapping[str, Any] | Result:
        """Call the function."""
        if self.seed_name is None:
            return self.function(seed, **params)
        return self.function(**{self.seed_name: seed}, **params)


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError):
        return inspect.signature(function)  # names that only a type checker knows
    except (TypeError, ValueError) as error:
        raise UnsupportedError(f"The parameters of {name} cannot be read: {error}.") from error


def _model_of(function: Callable[..., Any]) -> tuple[type[BaseModel], str | None]:
    """A model of the parameters, and the name of the seed if it is given by name."""
    name = getattr(function, "__name__", "function")
    parameters = list(_signature(function, name).parameters.values())
    seeds = [each for each in parameters if each.name == "seed"] or parameters[:1]
    if not seeds or seeds[0].kind in (seeds[0].VAR_KEYWORD, seeds[0].VAR_POSITIONAL):
        raise InputError(f"The function {name} must take a seed as its first argument.")
    by_name = seeds[0].kind in (seeds[0].POSITIONAL_OR_KEYWORD, seeds[0].KEYWORD_ONLY)
    fields: dict[str, Any] = {}
    extra = "forbid"
    for parameter in parameters:
        if parameter is seeds[0]:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InputError(
                f"The function {name} must take {parameter.name!r} by name: parameters have names."
            )
        else:
            known = parameter.annotation is not parameter.empty
            known = known and not isinstance(parameter.annotation, str)
            default = ... if parameter.default is parameter.empty else parameter.default
            # By alias: a model has methods of its own, whose names a parameter may have.
            content = Field(default, alias=parameter.name)
            fields[f"field_{len(fields)}"] = (parameter.annotation if known else Any, content)
    config = ConfigDict(
        extra=extra,  # pyright: ignore[reportArgumentType]
        strict=True,
        protected_namespaces=(),
        arbitrary_types_allowed=True,
    )
    model = create_model(name, __config__=config, **fields)
    return model, seeds[0].name if by_name else None


class ParameterError(InputError):
    """A parameter that the kind refuses; ``parameter`` is its name."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


def resolve_with(model: type[BaseModel], params: Mapping[str, Any]) -> dict[str, Any]:
    """``params`` checked by ``model`` and completed with its defaults."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    for name in params:
        if name not in names and model.model_config.get("extra") != "allow":
            known = ", ".join(sorted(names)) or "none"
            raise ParameterError(name, f"is not a parameter of the kind, which has: {known}")
    try:
        # As JSON, so that lists become tuples where the model says so, and nothing else is bent.
        found = model.model_validate_json(canonical_json(params), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "missing":
            raise ParameterError(name, "is missing: the kind has no default for it") from error
        path = ".".join(map(str, first["loc"][1:]))
        message = first["msg"].removeprefix("Input ").removeprefix("should ")
        text = f"should {message}. Got {first['input']!r} instead"
        raise ParameterError(name, f"{path}: {text}".removeprefix(": ")) from error
    return found.model_dump(mode="json", by_alias=True)


def as_kind(found: Any, reference: str) -> Kind:
    """A kind from what its name stands for: a class, an instance, or a function."""
    if inspect.isclass(found) and issubclass(found, Kind):
        if inspect.isabstract(found):
            missing = ", ".join(sorted(found.__abstractmethods__))
            raise UnsupportedError(f"The kind {reference} lacks {missing}.")
        found = found()
    if isinstance(found, Kind):
        return found
    if inspect.isroutine(found):
        return FunctionKind(found)
    raise UnsupportedError(
        f"{reference} is neither a function of a seed nor a subclass of TrialKind or CohortKind."
    )


def load_kind(source: KindSource) -> Kind:
    """Import the kind that ``source`` names."""
    place, _, name = source.reference.rpartition(":")
    try:
        module = import_snapshot(source) if source.is_file else importlib.import_module(place)
    except FinettiError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise InputError(f"The kind {source.reference} cannot be loaded: {text}.") from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"There is no {name!r} in {place}.")
        found = getattr(found, part)
    return as_kind(found, source.reference)
