"""Flax modules, linen and nnx: called with a batch."""

from dataclasses import dataclass, field, replace
from typing import Any, final

import jax
import jax.numpy as jnp
from flax import linen, nnx

from finetti.models.factory import Factory, parameters
from finetti.models.model import Network, check_params, refuse_state

MODES = {"train": True, "training": True, "is_training": True, "deterministic": False}


def recognize(factory: Factory, built: Any) -> Network | None:
    """A module of linen or of nnx."""
    if isinstance(built, linen.Module):
        return LinenModel(factory)
    if not isinstance(built, nnx.Module):
        return None
    if factory.is_factory:
        return NnxModel(factory)
    return NnxModel(factory, weights=nnx.to_pure_dict(nnx.state(built, nnx.Param)))


def mode_arguments(function: Any, training: bool) -> dict[str, bool]:
    """The arguments by which a module is told whether it is trained, as it calls them.

    >>> mode_arguments(lambda bits, deterministic: bits, training=True)
    {'deterministic': False}
    """
    names = parameters(function)[0]
    return {name: training == value for name, value in MODES.items() if name in names}


@final
@dataclass(frozen=True, eq=False)
class LinenModel(Network):
    """A linen module; it draws its randomness from the stream "dropout" or any other.

    Args:
        state: collections beside the parameters, of a module that was trained elsewhere.
    """

    form = "a Flax module"
    state: dict[str, Any] = field(default_factory=dict, repr=False)

    def given(self, variables: Any) -> "LinenModel":
        """The model with variables that a user has: all collections, or the parameters alone."""
        variables = dict(variables)
        params = variables.pop("params", None)
        if params is None:
            return replace(self, weights=variables)
        return replace(self, weights=params, state=variables)

    def init(self, key: Any, *example: Any) -> Any:
        """The collection "params"."""
        module = self.factory.build(*example)
        mode = mode_arguments(type(module).__call__, training=False)
        inputs = [jnp.zeros(each.shape, each.dtype) for each in example]
        variables = dict(module.init(key, *inputs, **mode))
        params = variables.pop("params", {})
        refuse_state(list(variables), self.label)
        return check_params(params, self.label)

    def apply(self, params: Any, *inputs: Any, key: Any = None) -> Any:
        """The module on the batch."""
        module = self.factory.build(*inputs)
        mode = mode_arguments(type(module).__call__, training=key is not None)
        rngs = None if key is None else {"params": key}  # all streams fall back on this one
        return module.apply({"params": params, **self.state}, *inputs, **mode, rngs=rngs)


@final
@dataclass(frozen=True, eq=False)
class NnxModel(Network):
    """An nnx module; a class or factory takes ``rngs``."""

    form = "a Flax module"

    def init(self, key: Any, *example: Any) -> Any:
        """The variables of type `nnx.Param`."""
        module = self._build(key, example)
        params, state, others = nnx.state(module, nnx.Param, nnx.RngState, ...)
        del state
        kinds = {type(each).__name__ for each in jax.tree.leaves(others, is_leaf=_is_variable)}
        refuse_state(sorted(kinds), self.label)
        return check_params(nnx.to_pure_dict(params), self.label)

    def apply(self, params: Any, *inputs: Any, key: Any = None) -> Any:
        """The module on the batch, with its random streams started by ``key``."""
        # A new one at every trace, whose own weights nobody reads: the compiler drops their draw.
        module = self._build(jax.random.key(0) if key is None else key, inputs)
        state = nnx.state(module, nnx.Param)
        nnx.replace_by_pure_dict(state, params)
        nnx.update(module, state)
        if key is None:
            module.eval()
        else:
            module.train()
        return module(*inputs, **mode_arguments(type(module).__call__, key is not None))

    def _build(self, key: Any, inputs: Any) -> Any:
        if self.factory.is_factory:
            return self.factory.build(*inputs, rngs=nnx.Rngs(key), key=key)
        module = nnx.clone(self.factory.found)
        for _, stream in nnx.iter_graph(module):
            if isinstance(stream, nnx.RngStream):
                stream.key.set_value(key)
        return module


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)
