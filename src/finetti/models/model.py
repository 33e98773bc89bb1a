"""A user's model as the commands call it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from finetti.core.errors import InputError
from finetti.models.answers import named_errors
from finetti.models.factory import Factory


@dataclass(frozen=True, eq=False)
class Model:
    """A user's model, or the factory that builds it.

    Args:
        factory: of what it is built.
        fingerprint: hash of the user's source, or name and version of an installed package; it
            enters the ids of trials.
        optimizer: the attribute of that name, of the class, the factory or what it builds.
    """

    factory: Factory
    fingerprint: str = ""
    optimizer: Any = None
    form: ClassVar[str]  # in words

    @property
    def name(self) -> str:
        """Return the name as the user wrote it."""
        return self.factory.name

    @property
    def label(self) -> str:
        """The model as errors name it."""
        return self.factory.label

    @property
    def settings(self) -> dict[str, Any]:
        """The options, with the defaults of the factory's signature; they enter the trial ids."""
        return self.factory.all_options()


@dataclass(frozen=True, eq=False)
class JaxNetwork(Model, ABC):
    """A network that JAX differentiates: Equinox, Flax, PyTorch, or a pair (init, apply).

    Args:
        weights: of an instance that comes with them; None where they are drawn.
    """

    weights: Any = None

    @abstractmethod
    def init(self, key: Any, *example: Any) -> Any:
        """Draw weights, a tree of floating-point arrays, for inputs like those of the batch."""

    @abstractmethod
    def apply(self, params: Any, *inputs: Any, key: Any = None) -> Any:
        """The answers to a batch; without a key in evaluation mode, where nothing is random."""

    def given(self, weights: Any) -> Self:
        """The network with weights that a user has."""
        return replace(self, weights=weights)

    def kept_state(self) -> list[str]:
        """Return the names of state beside the weights, with which an instance cannot train."""
        return []

    def start(self, key: Any, *example: Any) -> Any:
        """The network with the weights that it comes with, or new ones: a tree to be trained."""
        return TrainedNetwork(
            self, self.init(key, *example) if self.weights is None else self.weights
        )

    @final
    def trace(self, *example: Any) -> list[Any]:
        """The shapes of the answers in evaluation and in training mode; nothing is computed."""
        key = jax.random.key(0)
        shapes = [jax.ShapeDtypeStruct(np.shape(each), each.dtype) for each in example]

        def run(weights: Any, key: Any, *inputs: Any) -> Any:
            params = self.init(key, *inputs) if weights is None else weights
            return self.apply(params, *inputs), self.apply(params, *inputs, key=key)

        with named_errors(self.label, "fails on inputs of shape", shapes):
            return list(jax.eval_shape(run, self.weights, key, *shapes))


class TrainedNetwork(eqx.Module):
    """A network and its weights: a tree whose arrays are trained, called with a batch."""

    model: JaxNetwork = eqx.field(static=True)
    params: Any

    def __call__(self, *inputs: Any, key: Any = None) -> Any:
        """The answers to a batch; without a key in evaluation mode."""
        return self.model.apply(self.params, *inputs, key=key)

    def unwrapped(self) -> Self:
        """The network as its owner knows it; an Equinox module is one already."""
        return self


@eqx.filter_jit
def evaluate(network: Any, *inputs: Any) -> Any:
    """The answers of a network to a batch, in a compiled program that equal networks share."""
    return network(*inputs)


def check_params(params: Any, label: str) -> Any:
    """The parameters, if all are arrays that gradients exist for."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)):
            got = getattr(leaf, "dtype", type(leaf).__name__)
            raise InputError(
                f"{label} must have parameters that are arrays of real numbers. "
                f"Got {got} at {jax.tree_util.keystr(path) or 'the top'}."
            )
    return params


def refuse_state(names: Sequence[str], label: str) -> None:
    """Only parameters: what is kept between calls would tie samples, and steps, together."""
    if names:
        raise InputError(
            f"{label} keeps {', '.join(names)} beside its parameters (BatchNorm, for example), so "
            "that samples would see each other. Use a stateless layer, such as LayerNorm."
        )
