"""Learners by name: those of the package, and whatever a user's reference stands for."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from finetti.core.errors import InputError
from finetti.models.factory import Purpose
from finetti.models.model import JaxNetwork, Model
from finetti.models.model_loading import find_model, load_model, wrong_form
from finetti.models.sklearn_model import EstimatorModel
from finetti.models.torch_model import TorchModel
from finetti.probe.learners.estimator_learner import EstimatorLearner
from finetti.probe.learners.learner import FitLearner, Learner, NetworkLearner
from finetti.probe.learners.network_learner import (
    OPTIMIZER_DEFAULTS,
    UserNetwork,
    optimizer_options,
)
from finetti.probe.learners.torch_learner import TorchLearner
from finetti.studies.source_code import SourceSnapshot

AnyLearner = NetworkLearner | FitLearner | TorchLearner
_HERE = "finetti.probe.learners"
BUILT_IN = {
    "paper": f"{_HERE}.paper_transformer:TransformerLearner",
    "exhaustive": f"{_HERE}.exhaustive:ExhaustiveSearch",
    **{
        name: f"{_HERE}.baselines:{name}"
        for name in ("l1", "tree", "boosting", "cme", "rf_mlp", "rfa")
    },
}
TRAINING = ("iterations", "check_every", "inputs", *OPTIMIZER_DEFAULTS)
PROBE = Purpose(
    "learner",
    "a class or factory of an Equinox, Flax or PyTorch module, a pair (init, apply), or anything "
    "with fit and predict",
    ("context_length",),
    lambda bits: {"context_length": bits.shape[1]},
)


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
    import jax

    options, source = dict(options or {}), find_learner(reference, directory)
    found = load_model(
        source,
        name=reference,
        purpose=PROBE,
        options=options,
        reserved=TRAINING,
        example=(jax.ShapeDtypeStruct((3, context_length), "int32"),),
        own=(Learner,),
    )
    learner = (
        _as_learner(found, options) if isinstance(found, Model) else _checked(reference, found)
    )
    # A copy: what the user's module holds stays as it is.
    learner = copy.copy(learner)
    for name, value in (("source", source.fingerprint), ("reference", reference)):
        object.__setattr__(learner, name, value)
    if source.fingerprint and not isinstance(learner, FitLearner):
        _check_shapes(learner, context_length)
    return learner


def _check_shapes(learner: NetworkLearner | TorchLearner, context_length: int) -> None:
    """Try it; what fails on integers alone, such as a dense layer, is told how to get floats."""
    try:
        learner.check_shapes(context_length)
    except InputError as error:
        if getattr(learner, "inputs", None) != "integers":
            raise
        floats = copy.copy(learner)
        object.__setattr__(floats, "inputs", "floats")
        try:
            floats.check_shapes(context_length)
        except InputError:
            raise error from None
        raise InputError(
            f"{error} Bits arrive as integers, for embeddings; with the option inputs=floats it "
            "runs."
        ) from error


def find_learner(reference: str, directory: str | Path = ".") -> SourceSnapshot:
    """The source of a learner and its fingerprint, without running any of it."""
    return find_model(reference, BUILT_IN, "learner", directory)


def _as_learner(model: Model, options: dict[str, Any]) -> AnyLearner:
    if isinstance(model, EstimatorModel):
        model.factory.refuse_unknown(options)
        return EstimatorLearner(model=model)
    if not isinstance(model, JaxNetwork | TorchModel):
        raise wrong_form(model)
    has_weights = model.weights if isinstance(model, JaxNetwork) else model.module
    if has_weights is not None:
        raise InputError(
            f"{model.label} is an instance of {type(model.factory.found).__name__}, whose weights "
            "are drawn already. Every trial draws its own: give the class, or a function that "
            "returns a new one."
        )
    if isinstance(model, TorchModel) and model.optimizer is not None:
        raise InputError(
            f"{model.label} has an `optimizer`, but a PyTorch module is trained by AdamW with the "
            "options learning_rate, weight_decay and clip_norm. Rename the attribute."
        )
    known = model.factory.known_options
    model.factory.refuse_unknown(options, TRAINING)
    # What the factory takes by the same name is one setting, whose default the factory has.
    chosen = {**model.settings, **options}
    given = {each: chosen[each] for each in TRAINING if each in chosen}
    fields = {each: value for each, value in given.items() if each not in OPTIMIZER_DEFAULTS}
    fields["optimizer_options"] = optimizer_options(model.optimizer, given, known, model.name)
    if isinstance(model, JaxNetwork):
        return UserNetwork(model=model, own_optimizer=model.optimizer, **fields)
    return TorchLearner(model=model, **fields)


def _checked(name: str, learner: Any) -> Any:
    if "__dataclass_fields__" not in vars(type(learner)):
        raise InputError(
            f"The learner {name} must be a dataclass (@dataclass(frozen=True, kw_only=True)), so "
            "that its fields, which are its settings, enter the ids of trials."
        )
    return learner
