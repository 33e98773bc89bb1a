"""Learners by name: those of the package, and whatever a user's reference stands for."""

import copy
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from finetti.core.errors import InputError
from finetti.probe.learners.base import FitLearner, Learner, NetworkLearner
from finetti.probe.learners.equinox_network import EquinoxNetwork
from finetti.probe.learners.fitted import EstimatorLearner
from finetti.probe.learners.function_network import FunctionNetwork
from finetti.probe.learners.given_network import (
    OPTIMIZER_DEFAULTS,
    GivenNetwork,
    optimizer_options,
)
from finetti.probe.learners.recipe import NOT_OPTIONS, Recipe, options_for, parameters
from finetti.probe.learners.torch_network import TorchNetwork
from finetti.studies.source_code import (
    PACKAGE,
    SourceSnapshot,
    find_source,
    installed_versions,
    load_object,
    loading,
)
from finetti.training.pairs import pair_of

AnyLearner = NetworkLearner | FitLearner | TorchNetwork
_HERE = "finetti.probe.learners"
BUILT_IN = {
    "paper": f"{_HERE}.transformer:TransformerLearner",
    "exhaustive": f"{_HERE}.exhaustive:ExhaustiveSearch",
    **{
        name: f"{_HERE}.baselines:{name}"
        for name in ("l1", "tree", "boosting", "cme", "rf_mlp", "rfa")
    },
}
FORMS = (
    "a class or factory of an Equinox, Flax or PyTorch module, a pair (init, apply), or anything "
    "with fit and predict"
)
TRAINING = ("iterations", "check_every", "inputs", *OPTIMIZER_DEFAULTS)


def load_learner(
    reference: str,
    options: Mapping[str, Any] | None = None,
    *,
    directory: str | Path = ".",
    context_length: int = 64,
) -> AnyLearner:
    """The learner that ``reference`` names.

    Args:
        reference: "paper" (the Transformer of edelman2022), "l1", "tree", "boosting", "cme",
            "rf_mlp", "rfa", "exhaustive", or one of your own as ``package.module:Name`` or
            ``./file.py:Name``: a class or factory of an Equinox, Flax or PyTorch module, a pair
            (init, apply), or anything with fit and predict.
        options: keyword arguments of the class or factory; for networks also iterations,
            check_every, learning_rate, weight_decay, clip_norm and inputs.
        directory: where ``./file.py`` stands.
        context_length: at which a factory is called once, and a network tried, to see what it is.

    >>> learner = load_learner("tree", {"max_depth": 3})
    >>> learner.settings()
    {'min_samples_leaf': 1, 'max_depth': 3}
    """
    source = find_learner(reference, directory)
    name = reference if reference in BUILT_IN else source.reference
    found = load_object(source, "learner")
    with loading(source, "learner"):
        learner = _as_learner(name, found, dict(options or {}), context_length)
        if isinstance(learner, GivenNetwork):
            _try(learner, context_length)
        elif isinstance(learner, TorchNetwork):
            learner.check(context_length)
    # A copy: what the user's module holds stays as it is.
    learner = copy.copy(learner)
    object.__setattr__(learner, "source", source.fingerprint)
    return learner


def find_learner(reference: str, directory: str | Path = ".") -> SourceSnapshot:
    """The source of a learner and its fingerprint, without running any of it."""
    if reference not in BUILT_IN and ":" not in reference:
        raise InputError(
            f"Unknown learner {reference!r}. Choose one of {', '.join(BUILT_IN)}, or pass your own "
            "as package.module:Name or ./file.py:Name."
        )
    kind = BUILT_IN.get(reference, reference)
    return find_source(kind, directory, _installed_version(kind), argument="learner")


@functools.cache
def _installed_version(reference: str) -> str | None:
    """Name and version of an installed package, which stand for its many files."""
    place = reference.rpartition(":")[0]
    package = place.partition(".")[0]
    if place.endswith(".py") or package == PACKAGE or not package.isidentifier():
        return None
    match installed_versions([package]):
        case [[_, str(version)]]:
            return f"{package} {version}"
        case _:
            return None


def _as_learner(name: str, found: Any, options: dict[str, Any], context_length: int) -> AnyLearner:
    recipe = Recipe(name, found, options_for(found, options, TRAINING))
    built = _sample(recipe, context_length)
    signature = parameters(found)[0] if recipe.is_factory else {}
    known = {*recipe.options, *(each for each in signature if each not in NOT_OPTIONS)}
    if isinstance(built, NetworkLearner | FitLearner):
        _refuse_unknown(name, options, known)
        return _checked(name, built)
    form = _form(name, recipe, built)
    if form is EstimatorLearner:
        _refuse_unknown(name, options, known)
        return EstimatorLearner(recipe=recipe)
    training = {each for each in TRAINING if each in OPTIMIZER_DEFAULTS or hasattr(form, each)}
    _refuse_unknown(name, options, known | training)
    # What the factory takes by the same name is one setting, whose default the factory has.
    chosen = {**recipe.all_options(), **options}
    given = {each: chosen[each] for each in training if each in chosen}
    fields = {each: value for each, value in given.items() if each not in OPTIMIZER_DEFAULTS}
    outside = None if isinstance(found, type) else getattr(found, "optimizer", None)
    own = outside or getattr(built, "optimizer", None)
    if issubclass(form, GivenNetwork):
        fields["own_optimizer"] = own
    elif own is not None:
        raise InputError(
            f"The learner {name} has an `optimizer`, but a PyTorch module is trained by AdamW with "
            "the options learning_rate, weight_decay and clip_norm. Rename the attribute."
        )
    optimizer = optimizer_options(own, given, known, name)
    return form(recipe=recipe, optimizer_options=optimizer, **fields)


def _sample(recipe: Recipe, context_length: int) -> Any:
    """One that is built, to see what it is: under a trace, so that no weights are drawn."""
    built = []

    def build(key: Any) -> None:
        supplied = {"key": key, "seed": 0, "random_state": 0, "context_length": context_length}
        if "flax.nnx" in sys.modules:
            supplied["rngs"] = sys.modules["flax.nnx"].Rngs(key)
        built.append(recipe.build(**supplied))

    jax.eval_shape(build, jax.random.key(0))
    return built[0]


def _form(name: str, recipe: Recipe, built: Any) -> Any:
    """The adapter for what was built."""
    linen, nnx, torch = map(sys.modules.get, ("flax.linen", "flax.nnx", "torch"))
    is_pair = pair_of(built) is not None
    if linen is not None and isinstance(built, linen.Module):
        from finetti.probe.learners.flax_networks import LinenNetwork

        return LinenNetwork
    form = None
    if isinstance(built, eqx.Module) and callable(built) and not is_pair:
        form = EquinoxNetwork
    elif nnx is not None and isinstance(built, nnx.Module):
        from finetti.probe.learners.flax_networks import NnxNetwork

        form = NnxNetwork
    elif torch is not None and isinstance(built, torch.nn.Module):
        form = TorchNetwork
    if form is not None:
        if not recipe.is_factory:
            raise InputError(
                f"The learner {name} is an instance of {type(built).__name__}, whose weights are "
                "drawn already. Every trial draws its own: give the class, or a function that "
                "returns a new one."
            )
        return form
    if is_pair:
        return FunctionNetwork
    if all(callable(getattr(built, each, None)) for each in ("fit", "predict")):
        return EstimatorLearner
    what = "returned" if recipe.is_factory else "is"
    raise InputError(f"The learner {name} must be {FORMS}. It {what} {_described(built)}.")


def _described(thing: Any) -> str:
    return f"a {type(thing).__module__}.{type(thing).__qualname__}".replace("builtins.", "")


def _refuse_unknown(name: str, options: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(options) - set(known))
    if unknown:
        listed = ", ".join(sorted(known)) or "none"
        raise InputError(f"The learner {name} has no option {unknown[0]!r}. It has: {listed}.")


def _checked(name: str, learner: Learner) -> Any:
    if "__dataclass_fields__" not in vars(type(learner)):
        raise InputError(
            f"The learner {name} must be a dataclass (@dataclass(frozen=True, kw_only=True)), so "
            "that its fields, which are its settings, enter the ids of trials."
        )
    return learner


def _try(learner: GivenNetwork, context_length: int) -> None:
    """Trace it, which computes nothing: wrong shapes are refused before any trial runs."""
    key = jax.random.key(0)
    bits = jax.ShapeDtypeStruct((3, context_length), "int32")
    params = jax.eval_shape(lambda key: learner.init(key, context_length), key)
    jax.eval_shape(lambda *given: learner.apply(*given, key=None), params, bits)
    jax.eval_shape(learner.apply, params, bits, key)
    learner.optimizer()
