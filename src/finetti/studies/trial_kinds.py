"""Kinds of trials: what a study repeats, and the parameters that it takes."""

import contextlib
import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_jsonable_python

from finetti.core.errors import InputError, UnsupportedError
from finetti.studies.source_code import SourceSnapshot, load_object, loading
from finetti.studies.trials import Trial, TrialResult, canonical_json, plain


class ParameterError(InputError):
    """A parameter that the kind refuses; ``parameter`` is its name."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


def model_of(function: Callable[..., Any]) -> type[BaseModel]:
    """A model of the parameters: of all arguments but ``seed``."""
    name = getattr(function, "__name__", "function")
    parameters = dict(_signature(function, name).parameters)
    seed = parameters.pop("seed", None)
    if seed is None or seed.kind not in (seed.POSITIONAL_OR_KEYWORD, seed.KEYWORD_ONLY):
        rest = ", ".join(each for each in parameters if each != "seed")
        raise InputError(
            f"The function {name} takes no `seed` by name, so that its trials would all be alike. "
            f"Write def {name}(seed{rest and ', ' + rest}), and draw all randomness from it."
        )
    fields: dict[str, Any] = {}
    extra = "forbid"
    for parameter in parameters.values():
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
    return create_model(name, __config__=config, **fields)


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError):
        return inspect.signature(function)  # names that only a type checker knows
    except (TypeError, ValueError) as error:
        raise UnsupportedError(f"The parameters of {name} cannot be read: {error}.") from error


def check_name(model: type[BaseModel] | None, name: str) -> None:
    """Refuse a name that is not that of a parameter."""
    if model is None:
        reason = "which takes none: declare them as `Parameters`, a pydantic model"
        raise ParameterError(name, f"is not a parameter of the kind, {reason}")
    names = _names(model)
    if name not in names and model.model_config.get("extra") != "allow":
        known = ", ".join(sorted(names)) or "none"
        raise ParameterError(name, f"is not a parameter of the kind, which has: {known}")


def resolve_with(model: type[BaseModel] | None, params: Mapping[str, Any]) -> dict[str, Any]:
    """``params`` checked by ``model`` and completed with its defaults, as plain data."""
    for name in params:
        check_name(model, name)
    if model is None:
        return {}
    resolved = _dumped(_validated(model, params))
    _no_unknown(params, resolved)
    # What workers make of the plain data must be what was meant here.
    again = _dumped(_restored(model, resolved))
    for name in resolved:
        if canonical_json(resolved[name]) != canonical_json(again.get(name)):
            raise ParameterError(
                name,
                f"becomes {again.get(name)!r} when {resolved[name]!r} is read again. "
                "Its validators must accept what they return",
            )
    return resolved


def deliver_with(model: type[BaseModel] | None, params: Mapping[str, Any]) -> dict[str, Any]:
    """Resolved ``params`` as the types that ``model`` says, in objects that nobody shares."""
    if model is None:
        return copy.deepcopy(dict(params))
    found = _restored(model, params)
    values = {name: getattr(found, field) for name, field in _names(model).items()}
    return {**values, **(found.model_extra or {})}


@functools.cache
def _names(model: type[BaseModel]) -> dict[str, str]:
    """The names of the parameters, each with that of its field."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _restored(model: type[BaseModel], params: Mapping[str, Any]) -> BaseModel:
    # Python does not check defaults (`width: int = None`), so they are taken as they stand.
    defaults = _defaults(model)
    given = {
        name: value
        for name, value in params.items()
        if name not in defaults or canonical_json(value) != defaults[name]
    }
    return _validated(model, given)


@functools.cache
def _defaults(model: type[BaseModel]) -> dict[str, str]:
    """The defaults as JSON, where they can be written so; others are refused by their path."""
    found = {}
    for name, field in _names(model).items():
        info = model.model_fields[field]
        if not info.is_required() and info.default_factory is None:
            with contextlib.suppress(TypeError, ValueError):
                found[name] = canonical_json(to_jsonable_python(info.default, fallback=repr))
    return found


def _validated(model: type[BaseModel], params: Mapping[str, Any]) -> BaseModel:
    try:
        # As JSON, so that lists become tuples where the model says so, and nothing else is bent.
        return model.model_validate_json(canonical_json(params), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        path = ".".join(map(str, first["loc"][1:]))
        if first["type"] == "missing" and not path:
            raise ParameterError(name, "is missing: the kind has no default for it") from error
        if first["type"] == "extra_forbidden":
            raise ParameterError(name, f"has no {path!r}") from error
        message = first["msg"].removeprefix("Input ").removeprefix("should ")
        text = f"should {message}. Got {first['input']!r} instead"
        raise ParameterError(name, f"{path}: {text}".removeprefix(": ")) from error


def _dumped(found: BaseModel) -> dict[str, Any]:
    try:
        # Unchecked defaults are not the model's to warn of.
        content = found.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    except PydanticSerializationError as error:
        raise InputError(f"The parameters cannot be written as JSON: {error}.") from error
    for name, value in content.items():
        try:
            plain(value, name)
        except InputError as error:
            sentence = str(error).partition("` ")[2].removesuffix(".")
            raise ParameterError(name, f"has a default or a value that {sentence}") from error
    return content


def _no_unknown(given: Any, resolved: Any, path: str = "") -> None:
    """Refuse names that a model inside of the parameters has silently left out."""
    if isinstance(given, Mapping) and isinstance(resolved, Mapping):
        for name, value in given.items():
            place = f"{path}.{name}".lstrip(".")
            if name not in resolved:
                first, _, rest = place.partition(".")
                known = ", ".join(sorted(resolved)) or "none"
                raise ParameterError(first, f"has no {rest!r}. Known there: {known}")
            _no_unknown(value, resolved[name], place)
    elif isinstance(given, list) and isinstance(resolved, list) and len(given) == len(resolved):
        for index, (value, inside) in enumerate(zip(given, resolved, strict=True)):
            _no_unknown(value, inside, f"{path}.{index}")


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

    def named_sources(self, params: Mapping[str, Any]) -> Iterable[str]:
        """The texts in resolved ``params`` that name code of the user, as ``./net.py:Net``.

        Their files travel to the workers as they were when the study was planned.
        """
        return ()

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


def load_kind(source: SourceSnapshot) -> StudyKind:
    """Import the kind that ``source`` names."""
    found = load_object(source)
    with loading(source):
        return as_kind(found, source.reference)
