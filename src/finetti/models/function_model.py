"""Functions: a pair (init, apply) of JAX, a function in NumPy, and an object that samples."""

import inspect
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from finetti.models.answers import read_only
from finetti.models.factory import Factory, count_arguments, parameters
from finetti.models.model import JaxNetwork, Model, check_params


def recognize(factory: Factory, built: Any) -> Model | None:
    """A pair (init, apply), an object that samples, or a function."""
    if pair_of(built) is not None:
        return PairModel(factory)
    if callable(getattr(built, "sample", None)):
        return SamplerModel(factory)
    if callable(built) and factory.purpose.plain_functions:
        return FunctionModel(factory)
    return None


def pair_of(found: Any) -> tuple[Any, Any] | None:
    """(init, apply): functions of these names, or both in a plain tuple; None if there are none.

    >>> pair_of((print, len)) == (print, len)
    True
    >>> pair_of(print) is None
    True
    """
    pair = getattr(found, "init", None), getattr(found, "apply", None)
    # By name also in a named tuple, whose order is its own.
    if isinstance(found, tuple) and not hasattr(found, "_fields"):
        pair = found
    return pair if len(pair) == 2 and all(map(callable, pair)) else None


@final
@dataclass(frozen=True, eq=False)
class PairModel(JaxNetwork):
    """``init(key, …) -> params`` and ``apply(params, *inputs, key) -> answers`` to a batch.

    Of the sizes of the inputs ``init`` gets those that its signature names, or else the batch
    itself, as far as it takes it; ``apply`` may do without the key, if it draws nothing.
    """

    form = "a pair (init, apply)"

    def init(self, key: Any, *example: Any) -> Any:
        """Return the parameters that ``init`` draws."""
        function, _ = self._pair(example)
        names = parameters(function)[0]
        sizes = self.factory.sizes(*example)
        given = {name: size for name, size in sizes.items() if name in names}
        batch = () if given or not _takes_batch(function) else example
        return check_params(function(key, *batch, **given), self.label)

    def apply(self, params: Any, *inputs: Any, key: Any = None) -> Any:
        """Return the answers of ``apply`` to the batch."""
        _, function = self._pair(inputs)
        names, accepts_any = parameters(function)
        drawn = {"key": key} if accepts_any or "key" in names else {}
        return function(params, *inputs, **drawn)

    def _pair(self, inputs: Any) -> tuple[Any, Any]:
        pair = pair_of(self.factory.build(*inputs))
        assert pair is not None  # the same factory built one when it was loaded
        return pair


def _takes_batch(function: Any) -> bool:
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds or count_arguments(function) > 1


@final
@dataclass(frozen=True, eq=False)
class FunctionModel(Model):
    """A function in NumPy that is called with one example at a time."""

    form = "a function"

    def __call__(self, *example: Any) -> Any:
        """The answer to one example, whose arrays it cannot write into."""
        return self.factory.found(*map(read_only, example))

    @property
    def n_inputs(self) -> int:
        """Return the number of arguments that must be given."""
        return count_arguments(self.factory.found)


@final
@dataclass(frozen=True, eq=False)
class SamplerModel(Model):
    """An object with ``sample(rng, *example)``, which draws an answer to one example."""

    form = "a sampler"

    def sample(self, rng: np.random.Generator, *example: Any) -> Any:
        """Draw once after one example, whose arrays are read-only."""
        return self.factory.found.sample(rng, *map(read_only, example))

    @property
    def n_inputs(self) -> int:
        """Return the number of arguments that must be given, the generator aside."""
        return count_arguments(self.factory.found.sample) - 1
