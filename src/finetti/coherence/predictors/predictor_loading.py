"""Any target as a predictor."""

import copy
from pathlib import Path
from typing import Any

from finetti.coherence.predictors.attention_predictor import AttentionPredictor
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    RegressionPredictor,
    SampledPredictor,
)
from finetti.coherence.predictors.model_predictor import (
    ClassifierPredictor,
    FunctionPredictor,
    LettersPredictor,
    NetworkPredictor,
    RegressorPredictor,
    SamplerPredictor,
)
from finetti.coherence.predictors.world_predictor import world_predictor
from finetti.core.arguments import as_positive, as_whole
from finetti.core.errors import InputError, UnsupportedError
from finetti.latent.world import LatentModel
from finetti.models.answers import named_errors
from finetti.models.factory import Purpose, count_arguments, is_plain_function, make_factory
from finetti.models.function_model import FunctionModel, SamplerModel
from finetti.models.model import JaxNetwork, Model
from finetti.models.model_loading import as_model, find_model
from finetti.models.sklearn_model import EstimatorModel
from finetti.models.torch_model import TorchModel

KINDS = (
    "an Attention, a scikit-learn regressor or classifier, an Equinox, Flax or PyTorch network or "
    "a pair (init, apply) called as network(keys, values, query), a function of these or "
    "predictive(tokens) → probabilities, an object with sample(rng, …), or a world"
)
COHERENCE = Purpose("target", KINDS, plain_functions=True)
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
            Equinox network that is called as network(keys, values, query) for one query; a Flax
            network, a pair (init, apply) or a PyTorch module that is called likewise for a batch;
            a function of (keys, values, query); a function predictive(tokens) → probabilities over
            letters; an object with sample(rng, tokens) or sample(rng, keys, values, query); a world
            with an exact answer.
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
    finetti.core.errors.InputError: The target int must be an Attention, ...
    """
    found = _found(target, n_letters, params, seed, name)
    if (name, noise_variance, linear) == ("", None, None):
        return found
    found = copy.copy(found)  # a predictor that is given stays as it is
    found.name = name or found.name
    if isinstance(found, RegressionPredictor):
        if noise_variance is not None:
            found.noise_variance = as_positive(noise_variance, "noise_variance", "as_predictor")
        if linear is not None:
            found.linear = bool(linear)
    return found


def _found(target: Any, n_letters: Any, params: Any, seed: int, name: str) -> Predicts:
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
    from finetti.attention.modules.attention_module import Attention

    if isinstance(target, Attention):
        return AttentionPredictor(target)
    model = as_model(target, purpose=COHERENCE, name=name)
    if params is not None:
        if not isinstance(model, JaxNetwork):
            raise InputError(f"{model.label} has no `params` to be given: it is {model.form}.")
        model = model.given(params)
    return _model_predictor(model, n_letters, seed)


def _model_predictor(model: Model, n_letters: int | None, seed: int) -> Predicts:
    if isinstance(model, EstimatorModel):
        if not model.is_classifier:
            return RegressorPredictor(model)
        if not hasattr(model.factory.found, "predict_proba"):
            raise UnsupportedError(
                f"{model.name} has no predict_proba, so it gives no probabilities. Wrap it in "
                "scikit-learn's CalibratedClassifierCV."
            )
        return ClassifierPredictor(model)
    if isinstance(model, SamplerModel):
        if n_letters is None and model.n_inputs == 1:
            raise InputError(
                f"{model.name} draws letters, and must say how many there are: "
                "as_predictor(target, n_letters=2), which a file may define for the command."
            )
        return SamplerPredictor(model, n_letters)
    if isinstance(model, JaxNetwork | TorchModel):
        return NetworkPredictor(model, seed)
    assert isinstance(model, FunctionModel)
    if model.n_inputs == 1:
        return LettersPredictor(model, n_letters)
    if model.n_inputs == 3:
        return FunctionPredictor(model)
    raise UnsupportedError(
        f"{model.name} takes {model.n_inputs} arguments. A function is called as "
        "predictive(tokens), or as network(keys, values, query)."
    )


def load_target(reference: str, builtin: Any, directory: str | Path = ".") -> Any:
    """Load the target that ``package.module:name`` or ``./file.py:Name`` names.

    A class, or a function without arguments, is called once: it makes the target.
    """
    from finetti.studies.source_code import load_object

    found = load_object(find_model(reference, builtin, "target", directory), "target")
    makes = is_plain_function(found) and not count_arguments(found)
    if not (isinstance(found, type) or makes):
        return found
    with named_errors(f"The target {reference}", "cannot be loaded"):
        import jax

        factory = make_factory(reference, found, {}, Purpose("target", KINDS), ())
        return factory.make(jax.random.key(0))
