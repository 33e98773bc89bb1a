"""Any target as a predictor."""

import inspect
import sys
from pathlib import Path
from typing import Any

from finetti.coherence.predictors.attention import AttentionPredictor
from finetti.coherence.predictors.base import (
    AlphabetPredictor,
    RegressionPredictor,
    SampledPredictor,
)
from finetti.coherence.predictors.estimators import ClassifierPredictor, RegressorPredictor
from finetti.coherence.predictors.functions import LettersPredictor, OnlyDraws
from finetti.coherence.predictors.networks import (
    FunctionPredictor,
    NetworkPredictor,
    TorchModulePredictor,
)
from finetti.coherence.predictors.worlds import world_predictor
from finetti.core.errors import InputError, UnsupportedError
from finetti.core.numbers import as_positive, as_whole
from finetti.latent.world import LatentModel
from finetti.training.pairs import pair_of

KINDS = (
    "an Attention, a scikit-learn regressor or classifier, an Equinox or Flax network or a pair "
    "(init, apply) called as network(keys, values, query), a PyTorch module, a function "
    "predictive(tokens) → probabilities, an object with sample(rng, …), or a world"
)
Predicts = RegressionPredictor | AlphabetPredictor | SampledPredictor


def as_predictor(
    target: Any,
    *,
    name: str = "",
    noise_variance: float | None = None,
    linear: bool | None = None,
    n_letters: int | None = None,
    params: Any = None,
    seed: int = 0,
) -> Predicts:
    """The predictor that ``target`` is.

    Args:
        target: an `Attention`; a scikit-learn regressor, or a classifier with predict_proba; an
            Equinox or Flax network, or a pair (init, apply), called as network(keys, values,
            query) for one query; a PyTorch module, called likewise; a function of (keys, values,
            query); a function predictive(tokens) → probabilities over letters; an object with
            sample(rng, tokens) or sample(rng, keys, values, query); a world with an exact answer.
        name: for tables.
        noise_variance: of a new value, for targets that answer with a mean only.
        linear: whether answers are linear in the values; tried out by default.
        n_letters: of a predictor of letters, where it cannot be asked.
        params: weights of a pair (init, apply), or of a Flax linen module.
        seed: of weights that are not given.

    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> as_predictor(KNeighborsRegressor(3)).name
    'KNeighborsRegressor'
    >>> as_predictor(3)
    Traceback (most recent call last):
    finetti.core.errors.UnsupportedError: A predictor must be an Attention, ...
    """
    found = _found(target, n_letters, params, seed)
    if name:
        found.name = name
    if isinstance(found, RegressionPredictor):
        if noise_variance is not None:
            found.noise_variance = as_positive(noise_variance, "noise_variance", "as_predictor")
        if linear is not None:
            found.linear = bool(linear)
    return found


def _found(target: Any, n_letters: Any, params: Any, seed: int) -> Predicts:
    if isinstance(target, Predicts):
        return target
    if n_letters is not None:
        n_letters = as_whole(n_letters, "n_letters", "as_predictor")
    if isinstance(target, LatentModel):
        return world_predictor(target)
    if isinstance(target, type):
        raise UnsupportedError(
            f"A predictor must be an object, not the class {target.__name__}. Create an instance."
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.nn.Module):
        return TorchModulePredictor(target)
    from finetti.attention.base import Attention

    if isinstance(target, Attention):
        return AttentionPredictor(target)
    if callable(getattr(target, "fit", None)) and callable(getattr(target, "predict", None)):
        if getattr(target, "_estimator_type", None) == "classifier" or _is_classifier(target):
            if not hasattr(target, "predict_proba"):
                raise UnsupportedError(
                    f"{type(target).__name__} has no predict_proba, so it gives no probabilities. "
                    "Wrap it in scikit-learn's CalibratedClassifierCV."
                )
            return ClassifierPredictor(target)
        return RegressorPredictor(target)
    if pair_of(target) is not None:
        return NetworkPredictor(target, params, seed)
    if callable(sample := getattr(target, "sample", None)):
        if n_letters is None and _n_arguments(sample) == 2:
            raise InputError(
                "A predictor that draws letters must say how many there are: as_predictor(target, "
                "n_letters=2)."
            )
        return OnlyDraws(target, n_letters)
    if callable(target):
        return _called(target, n_letters, params, seed)
    raise UnsupportedError(f"A predictor must be {KINDS}. Got {type(target).__name__} instead.")


def _called(target: Any, n_letters: int | None, params: Any, seed: int) -> Predicts:
    """By its arguments: tokens, or keys, values and a query."""
    count = _n_arguments(target)
    if count == 1:
        return LettersPredictor(target, n_letters)
    if count == 3:
        import equinox as eqx

        nnx = sys.modules.get("flax.nnx")
        if isinstance(target, eqx.Module) or (nnx and isinstance(target, nnx.Module)):
            return NetworkPredictor(target, params, seed)
        return FunctionPredictor(target)
    raise UnsupportedError(
        f"{getattr(target, '__name__', type(target).__name__)} takes {count} arguments. A function "
        "is called as predictive(tokens), or as network(keys, values, query)."
    )


def _n_arguments(function: Any) -> int:
    """Arguments that must be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # of some builtins
        name = getattr(function, "__name__", type(function).__name__)
        raise UnsupportedError(
            f"{name} does not say which arguments it takes. Call it inside a function "
            "predictive(tokens), or network(keys, values, query), of your own."
        ) from error
    return sum(each.kind in kinds and each.default is each.empty for each in given)


def _is_classifier(target: Any) -> bool:
    from sklearn.base import is_classifier

    return is_classifier(target)


def load_object_named(reference: str, directory: str | Path = ".") -> Any:
    """What ``package.module:name`` or ``./file.py:Name`` names.

    A class, or a function without arguments, is called once: it makes the target.
    """
    from finetti.studies.source_code import find_source, load_object, loading

    source = find_source(reference, directory, argument="target")
    found = load_object(source, "target")
    with loading(source, "target"):
        makes = isinstance(found, type) or (inspect.isfunction(found) and not _n_arguments(found))
        return found() if makes else found
