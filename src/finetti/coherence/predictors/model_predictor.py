"""Users' models as predictors: networks and functions that read a context, and estimators."""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    RegressionPredictor,
    SampledPredictor,
)
from finetti.core.arguments import Floats, Letters
from finetti.core.errors import FinettiError, InputError
from finetti.latent.world import Pairs
from finetti.models.answers import named_errors
from finetti.models.function_model import FunctionModel, SamplerModel
from finetti.models.model import JaxNetwork
from finetti.models.sklearn_model import EstimatorModel, one_thread
from finetti.models.torch_model import TorchModel

ROWS = 4096  # of a batch that a network answers at once


class NetworkPredictor(RegressionPredictor):
    """A network that answers a batch of (keys (n, L, d_k), values (n, L, d_v), query (n, d_k)).

    With a mean (n, d_v), or with a pair of mean and variance, noise included. Equinox modules are
    written for one of them. Without weights, they are drawn from the ``seed``. In evaluation mode:
    JAX in float64 as far as the weights allow, PyTorch in the precision of the weights.
    """

    gives_variance = None

    def __init__(self, model: JaxNetwork | TorchModel, seed: int = 0):
        self.model, self.name, self.seed = model, model.name, seed
        self._network: Any = None

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """All contexts and queries as one batch."""
        n, asked = query.shape[:2]
        context = (np.repeat(part, asked, axis=0) for part in (keys, values))
        batch = (*context, query.reshape(-1, query.shape[2]))
        parts = [
            self._answers(*(each[start : start + ROWS] for each in batch))
            for start in range(0, n * asked, ROWS)
        ]
        mean, spread = _stacked(self.name, parts, (n, asked))
        self.gives_variance = spread is not None
        return mean, spread

    def _answers(self, *batch: Floats) -> tuple[Any, ...]:
        if isinstance(self.model, TorchModel):
            found: Any = tuple(self.model.answer(*batch))
        else:
            import jax

            from finetti.core.numerics.float64 import float64
            from finetti.models.model import evaluate

            with float64():
                if self._network is None:
                    self._network = self.model.start(jax.random.key(self.seed), *batch)
                found = evaluate(self._network, *batch)
        return tuple(map(np.asarray, _parts(self.name, found)))


class FunctionPredictor(RegressionPredictor):
    """A plain function of (keys, values, query) in NumPy, called one query at a time.

    It answers with a mean (d_v,), or with a pair of mean and variance, noise included; for d_v = 1
    the mean, and always the variance, may be a number.
    """

    gives_variance = None

    def __init__(self, model: FunctionModel):
        self.model, self.name = model, model.name

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """Call the function once per query."""
        answers = [
            # Copies, since a function may answer in the same array each time.
            tuple(np.array(each)[None] for each in _parts(self.name, self.model(*context, place)))
            for asked, *context in zip(query, keys, values, strict=True)
            for place in asked
        ]
        mean, spread = _stacked(self.name, answers, query.shape[:2])
        self.gives_variance = spread is not None
        return mean, spread


def _parts(name: str, returned: Any) -> tuple[Any, ...]:
    """Split the answer of one call into a mean, or a mean and a variance."""
    parts = returned if isinstance(returned, tuple) else (returned,)
    if len(parts) > 2:
        raise InputError(
            f"{name} returned a tuple of {len(parts)}. Return a mean, as an array of shape (d_v,), "
            "or a pair (mean, variance)."
        )
    return parts


def _stacked(
    name: str, answers: list[tuple[Any, ...]], batch: tuple[int, ...]
) -> tuple[Floats, Any]:
    """Means and variances (B, Q, …) of calls whose answers have a first axis each."""
    shapes = sorted({str(tuple(each.shape[1:] for each in parts)) for parts in answers})
    if len(shapes) > 1:
        raise InputError(
            f"{name} returned arrays of shapes {' and '.join(shapes)}. Return a mean of shape "
            "(d_v,), or a pair (mean, variance), at every call."
        )
    mean, *spread = (np.concatenate(each) for each in zip(*answers, strict=True))
    if len(mean) != np.prod(batch):
        raise InputError(
            f"{name} answered a batch of {np.prod(batch)} with {len(mean)} rows. Flax modules, "
            "PyTorch modules and pairs (init, apply) are called with a batch, and return one row "
            "for each query."
        )
    mean, *spread = (each.reshape(*batch, *each.shape[1:]) for each in (mean, *spread))
    return mean, spread[0] if spread else None


class RegressorPredictor(RegressionPredictor):
    """A regressor, fitted anew to every context; some have a law (`EstimatorModel.has_law`)."""

    def __init__(self, model: EstimatorModel):
        self.model, self.name, self.gives_variance = model, model.name, model.has_law

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """Fit once per context."""
        wanted = variance and bool(self.gives_variance)
        single = values.shape[2] == 1

        def predict(asked: Floats, rows: Floats, targets: Floats) -> tuple[Floats, ...]:
            fitted = self.model.fit(rows, targets[:, 0] if single else targets)
            if not wanted:
                return (_columns(fitted.predict(asked), single),)
            mean, deviation = self.model.predict_law(fitted, asked)
            return _columns(mean, single), _columns(deviation, single) ** 2

        # Copies, since an estimator may be allowed to overwrite them (copy_X=False).
        answers = _of_contexts(self.name, predict, query.copy(), keys.copy(), values.copy())
        mean, *spread = map(np.array, zip(*answers, strict=True))
        return mean, spread[0] if wanted else None


class ClassifierPredictor(RegressionPredictor):
    """A classifier with ``predict_proba``: values are one-hot classes, answers their probabilities.

    A context without some class has probability 0 for it. There is no Gaussian law; the next value
    is one of the classes, so that expectations over it are exact sums over them.
    """

    linear, categorical = False, True

    def __init__(self, model: EstimatorModel):
        self.model, self.name = model, model.name

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """Fit once per context."""

        def predict(asked: Floats, rows: Floats, targets: Floats) -> Floats:
            found = np.zeros((len(asked), targets.shape[1]))
            fitted = self.model.fit_classes(rows, targets.argmax(axis=1))
            found[:, fitted.classes_] = fitted.predict_proba(asked)
            return found

        answers = _of_contexts(self.name, predict, query.copy(), keys.copy(), values)
        return np.array(answers), None


def _of_contexts(name: str, predict: Callable[..., Any], *contexts: Floats) -> list[Any]:
    """Answer each context; errors of the estimator name the target and the length."""
    length = contexts[1].shape[1]
    # Around all of them: a look at the libraries takes longer than a small fit.
    with one_thread():
        try:
            return [predict(*each) for each in zip(*contexts, strict=True)]
        except FinettiError:
            raise
        except ValueError as error:
            raise InputError(f"{name} cannot read a context of {length} tokens: {error}") from error


def _columns(found: Any, single: bool) -> Floats:
    """(Q,) or (Q, d) as (Q, d)."""
    array = np.asarray(found)
    return array[:, None] if single and array.ndim == 1 else array


class LettersPredictor(AlphabetPredictor):
    """A function predictive(tokens (L,)) → probabilities (c,), as of a language model."""

    def __init__(self, model: FunctionModel, n_letters: int | None = None):
        self.model, self.name = model, model.name
        if n_letters is None:
            with named_errors(self.name):
                found = np.asarray(model(np.array([0])))
            if found.ndim != 1 or not found.size:
                raise InputError(
                    f"{self.name} must answer with probabilities of shape (c,). It gave shape "
                    f"{found.shape}."
                )
            n_letters = len(found)
        self.n_letters = n_letters

    def answer(self, tokens: Letters) -> Floats:
        """Call the function once for each distinct context."""
        distinct, where = np.unique(tokens, axis=0, return_inverse=True)
        # Copies, since a function may answer in the same array each time.
        found = [np.array(self.model(each)) for each in distinct]
        if len({each.shape for each in found}) > 1:
            shapes = sorted({str(each.shape) for each in found})
            raise InputError(f"{self.name} gave probabilities of shapes {' and '.join(shapes)}.")
        return np.array(found)[where.reshape(-1)]


class SamplerPredictor(SampledPredictor):
    """An object with sample(rng, tokens), or with sample(rng, keys, values, query).

    One context at a time; letters need ``n_letters``.
    """

    def __init__(self, model: SamplerModel, n_letters: int | None = None):
        self.model, self.name, self.n_letters = model, model.name, n_letters

    def answer(self, rng: np.random.Generator, context: Any, query: Any, count: int) -> Any:
        """Call the sampler once for each draw."""
        parts = (*context, query) if isinstance(context, Pairs) else (context,)
        return np.array(
            [
                [self.model.sample(rng, *given) for given in zip(*parts, strict=True)]
                for _ in range(count)
            ]
        )
