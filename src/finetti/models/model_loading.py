"""Recognizes what a user brings, and loads it by name."""

import functools
import importlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from finetti.core.errors import FinettiError, InputError
from finetti.models.answers import named_errors
from finetti.models.factory import Factory, Purpose, make_factory
from finetti.models.model import Model
from finetti.studies.source_code import (
    PACKAGE,
    SourceSnapshot,
    defined_names,
    find_source,
    installed_version,
    load_object,
)

# The files that recognize a form, the first that does so wins. A file whose library nobody has
# imported is not asked: no object can be of it.
FORMS = ("flax_model", "equinox_model", "torch_model", "sklearn_model", "function_model")
LIBRARIES = {"flax_model": "flax", "torch_model": "torch"}


def as_model(
    thing: Any,
    *,
    purpose: Purpose,
    name: str = "",
    options: Mapping[str, Any] | None = None,
    reserved: tuple[str, ...] = (),
    example: tuple[Any, ...] = (),
    own: tuple[type, ...] = (),
) -> Any:
    """The model that ``thing`` is: a class, a factory or an instance of any form.

    Args:
        thing: what the user brings.
        purpose: what the command asks of it.
        name: as the user wrote it; errors begin with it.
        options: keyword arguments of a class or factory.
        reserved: options that are the command's own.
        example: a batch of inputs, arrays or their shapes, for whose sizes a factory is tried.
        own: classes of the command itself, whose instances are returned as they are.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> as_model(DecisionTreeClassifier(), purpose=Purpose("learner", "anything")).form
    'an estimator with fit and predict'
    """
    name = name or getattr(thing, "__name__", type(thing).__name__)
    factory = make_factory(name, thing, options or {}, purpose, reserved)
    built = factory.sample(*example)
    if isinstance(built, own):
        factory.refuse_unknown(options or {})
        return built
    return recognize(factory, built)


def recognize(factory: Factory, built: Any) -> Model:
    """The model of a factory, by what it has built."""
    for form in FORMS:
        library = LIBRARIES.get(form)
        if library is None or library in sys.modules:
            module = importlib.import_module(f"finetti.models.{form}")
            found = module.recognize(factory, built)
            if found is not None:
                # That of a class would be a function without its object.
                attribute = getattr(factory.found, "optimizer", None)
                outside = None if isinstance(factory.found, type) else attribute
                return replace(found, optimizer=outside or getattr(built, "optimizer", None))
    what = "returned" if factory.is_factory else "is"
    raise InputError(f"{factory.label} must be {factory.purpose.forms}. It {what} {_kind(built)}.")


def wrong_form(model: Model) -> InputError:
    """The error about a form that the command does not take."""
    return InputError(f"{model.label} must be {model.factory.purpose.forms}. It is {model.form}.")


def load_model(
    source: SourceSnapshot,
    *,
    name: str,
    purpose: Purpose,
    options: Mapping[str, Any] | None = None,
    **given: Any,
) -> Any:
    """The model that a source (`find_model`) has, with the fingerprint of the source.

    Args:
        source: where the model stands.
        name: as the user wrote it.
        purpose: what the command asks of it.
        options: keyword arguments of the class or factory.
        given: further arguments of `as_model`.
    """
    found = load_object(source, purpose.noun)
    with named_errors(f"The {purpose.noun} {name}", "cannot be loaded"):
        model = as_model(found, purpose=purpose, name=name, options=options, **given)
    return replace(model, fingerprint=source.fingerprint) if isinstance(model, Model) else model


def find_model(
    reference: str, builtin: Mapping[str, str], noun: str, directory: str | Path = "."
) -> SourceSnapshot:
    """The source of a model and its fingerprint, without running any of it."""
    if reference not in builtin and ":" not in reference:
        path = Path(directory, reference)
        if path.suffix == ".py" and path.is_file():
            own = defined_names(path.read_text(encoding="utf-8"))
            raise InputError(
                f"The {noun} {reference} is a file. Say what to take from it, as in "
                f"{reference}:{[*own, 'Name'][0]}. It defines {', '.join(own) or 'nothing'}."
            )
        raise InputError(
            f"Unknown {noun} {reference!r}. Choose one of {', '.join(builtin)}, or pass your own "
            "as package.module:Name or ./file.py:Name."
        )
    kind = builtin.get(reference, reference)
    return find_source(kind, directory, _installed_version(kind), argument=noun)


def changed(reference: str, noun: str) -> FinettiError:
    """The error about a source that was edited after the study was planned."""
    return FinettiError(
        f"The source of the {noun} {reference} has changed since the study was planned. Start the "
        "study again, and do not edit the file while it runs."
    )


@functools.cache
def _installed_version(reference: str) -> str | None:
    """Name and version of an installed package, which stand for its many files."""
    place = reference.rpartition(":")[0]
    package = place.partition(".")[0]
    if place.endswith(".py") or package == PACKAGE or not package.isidentifier():
        return None
    version = installed_version(package)
    return version and f"{package} {version}"


def _kind(thing: Any) -> str:
    return f"a {type(thing).__module__}.{type(thing).__qualname__}".replace("builtins.", "")
