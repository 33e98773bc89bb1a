"""A user's model as the commands call it, and the checks of its answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import FinettiError, InputError
from finetti.core.numbers import largest_of
from finetti.models.factory import Factory

REPEAT_RTOL = 1e-6  # between two equal calls: parallel sums of float32 may differ by less


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
        """As the user wrote it."""
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
class Network(Model, ABC):
    """A network in pure JAX: Equinox, Flax, or a pair (init, apply).

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

    model: Network = eqx.field(static=True)
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


def check_shape(
    label: str, found: Any, shapes: Sequence[tuple[int, ...]], what: str, *inputs: Any
) -> None:
    """Refuse an answer that is no array of real numbers of one of these shapes."""
    shape = tuple(found.shape) if hasattr(found, "shape") else None
    if shape not in shapes or "float" not in str(found.dtype):
        given = " and ".join(str(list(np.shape(each))) for each in inputs)
        raise InputError(
            f"{label} must return {what}, real numbers. For inputs {given} it returned "
            f"{described(found)}."
        )


def described(found: Any) -> str:
    """The dtype and shape of an array, or the type of anything else.

    >>> described(np.zeros((2, 3))), described((1, 2))
    ('float64[2, 3]', 'a tuple')
    """
    if hasattr(found, "shape") and hasattr(found, "dtype"):
        return f"{str(found.dtype).removeprefix('torch.')}{list(found.shape)}"
    return f"a {type(found).__name__}"


def as_numbers(
    label: str, found: Any, wanted: tuple[int, ...], what: str, calls: int = 2
) -> NDArray[np.float64]:
    """A finite float64 array of the shape ``wanted``, or the reason why it is none.

    The first ``calls`` axes are over calls of the model, whose answers are arrays of the shape of
    the rest; one entry may also be a number.
    """
    array = np.asarray(found)
    over, one = wanted[:calls], wanted[calls:]
    if array.shape == over and one == (1,):
        array = array[..., None]
    if array.shape != wanted:
        if array.shape[:calls] != over:
            raise InputError(f"{label} gave {what} of shape {array.shape} instead of {wanted}.")
        number = " or a number" if one == (1,) else ""
        raise InputError(
            f"{label} gave {what} of shape {array.shape[calls:]} in one call. It must be of shape "
            f"{one}{number}."
        )
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{label} gave {what} that is no array of numbers.") from error
    count = int(np.sum(~np.isfinite(array)))
    if count:
        raise InputError(
            f"{label} gave {what} with {count} NaN or infinite entries of {array.size}. It must "
            "answer every input with finite numbers."
        )
    return array


def refuse_change(label: str, first: Any, second: Any) -> None:
    """Refuse a model whose answer to the same question is another one."""
    if first is None:
        return
    gap, size = np.abs(first - second).max(initial=0.0), np.abs(first).max(initial=0.0)
    if gap > REPEAT_RTOL * largest_of(size, 1e-12):
        raise InputError(
            f"{label} changed its answer by {gap:.3g} between two equal calls. Switch dropout off, "
            "fix its random_state, or, if it is meant to be random, give an object with "
            "sample(rng, …)."
        )


def read_only(array: Any) -> Any:
    """A view that a model cannot write into: others are asked with the same array."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


@contextmanager
def named_errors(
    label: str, what: str = "could not answer", inputs: Sequence[Any] = ()
) -> Iterator[None]:
    """Re-raise any exception of the user's model as an InputError that contains its name."""
    try:
        yield
    except FinettiError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and "read-only" in str(error):
            raise InputError(f"{label} writes into its arguments; copy them first.") from error
        given = ", ".join(str(list(each.shape)) for each in inputs)
        text = f"{type(error).__name__}: {error}".rstrip(".: ")
        raise InputError(f"{label} {what}{' ' if given else ''}{given}: {text}.") from error
