"""The interface of learners: networks that the probe trains, or anything with fit and predict.

Learners are frozen dataclasses. Their fields, but for those that are not shown (``repr=False``),
are their settings, and enter the ids of trials.
"""

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, final

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, Integer, PRNGKeyArray
from numpy.typing import NDArray

from finetti.boolean.language.rule import BooleanFunction
from finetti.models.answers import check_shape, named_errors

LOGITS = "logits (m, 2) of labels 0 and 1, or one (m, 1) or (m,) of label 1"


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Base of all learners. Subclass ``NetworkLearner`` or ``FitLearner``.

    Args:
        source: hash of the user's source; empty for learners of this package.
        reference: the name that it was loaded by, with which errors begin.
    """

    source: str = field(default="", repr=False)
    reference: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """The learner as errors name it."""
        return f"The learner {self.reference or type(self).__name__}"

    def settings(self) -> dict[str, Any]:
        """The fields as plain data; they enter the id of a trial, and as options give it again."""
        fields = dataclasses.fields(self)
        return {each.name: getattr(self, each.name) for each in fields if each.repr}

    def fingerprint(self) -> str:
        """Hash of the user's source, which enters the id of a trial; "" for this package's own."""
        return self.source

    def with_function(self, function: BooleanFunction) -> Self:
        """Return a copy that knows the hidden function but not its positions.

        Only exhaustive search uses it; every other learner finds the function by itself.
        """
        return self


@dataclass(frozen=True, kw_only=True)
class TrainedLearner(Learner):
    """A network that the probe trains, by gradients on the cross-entropy of all samples at once.

    Args:
        iterations: steps of the optimizer.
        check_every: steps between two validations.
    """

    iterations: int = 1000
    check_every: int = 10


@dataclass(frozen=True, kw_only=True)
class NetworkLearner(TrainedLearner, ABC):
    """A network in JAX; its arguments are those of `TrainedLearner`."""

    @abstractmethod
    def init(self, key: PRNGKeyArray, context_length: int) -> Any:
        """Draw the parameters, a pytree of floating-point arrays."""

    @abstractmethod
    def apply(
        self, params: Any, bits: Integer[Array, "m T"], key: PRNGKeyArray | None
    ) -> Float[Array, "m 2"]:
        """The logits of labels 0 and 1. Pure JAX: it runs under jit, vmap and grad.

        Without a key there is no dropout, nor any other randomness: evaluation.
        """

    @abstractmethod
    def optimizer(self) -> optax.GradientTransformation:
        """Return the Optax transformation of gradients into steps."""

    @final
    def check_shapes(self, context_length: int) -> None:
        """Trace it, which computes nothing: wrong shapes are refused before any trial runs."""
        key, bits = jax.random.key(0), jax.ShapeDtypeStruct((3, context_length), "uint8")
        with named_errors(self.label, "fails on inputs of shape", [bits]):
            params = eqx.filter_eval_shape(self.init, key, context_length)
            for each in (None, key):
                found = eqx.filter_eval_shape(self.apply, params, bits, each)
                check_shape(self.label, found, [(3, 2)], "logits (m, 2) of labels 0 and 1", bits)
        self.optimizer()


class Predictor(Protocol):
    """A fitted learner, as ``FitLearner.fit`` returns it."""

    def predict(self, bits: Any, /) -> Any:
        """The labels (n,) of bits (n, T)."""
        ...


@dataclass(frozen=True, kw_only=True)
class FitLearner(Learner, ABC):
    """A learner that is fitted by its own means, and asked for labels."""

    @abstractmethod
    def fit(self, bits: NDArray[Any], labels: NDArray[Any], seed: int) -> Predictor:
        """Fit to bits (m, T) and labels (m,), both 0 or 1. All randomness comes from ``seed``."""
