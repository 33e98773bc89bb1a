"""Equinox modules: written for one example, applied to a batch by vmap."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp

from finetti.core.errors import InputError
from finetti.models.factory import Factory, parameters
from finetti.models.function_model import pair_of
from finetti.models.model import Network, refuse_state


def recognize(factory: Factory, built: Any) -> Network | None:
    """An Equinox module that can be called."""
    is_pair = pair_of(built) is not None
    if is_pair or not (isinstance(built, eqx.Module) and callable(built)):
        return None
    if factory.is_factory:
        return EquinoxModel(factory)
    refuse_state(_state(built), factory.label)
    return EquinoxModel(factory, weights=eqx.filter(built, eqx.is_inexact_array))


@final
@dataclass(frozen=True, eq=False)
class EquinoxModel(Network):
    """A module that is called with one example, and with ``key`` if its signature has it.

    All its floating-point arrays are trained. In evaluation it is in inference mode, without a key.
    """

    form = "an Equinox module"
    rest: dict[Any, Any] = field(default_factory=dict, repr=False)  # what is not trained, by sizes

    def init(self, key: Any, *example: Any) -> Any:
        """The floating-point arrays of a new module."""
        return eqx.filter(self._build(key, *example), eqx.is_inexact_array)

    def apply(self, params: Any, *inputs: Any, key: Any = None) -> Any:
        """The module on every example, each with randomness of its own."""
        return EquinoxRows(eqx.combine(params, self._rest(inputs)))(*inputs, key=key)

    def start(self, key: Any, *example: Any) -> Any:
        """The module itself, called with a batch."""
        built = self._build(key, *example) if self.weights is None else self.factory.found
        return EquinoxRows(built)

    def _build(self, key: Any, *example: Any) -> Any:
        module = self.factory.build(*example, key=key)
        refuse_state(_state(module), self.label)
        return module

    def _rest(self, inputs: Any) -> Any:
        """The module without its trained arrays: functions, sizes, and arrays of integers."""
        if self.weights is not None:
            return eqx.filter(self.factory.found, eqx.is_inexact_array, inverse=True)
        sizes = tuple(self.factory.sizes(*inputs).items())
        if sizes not in self.rest:
            shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in inputs]

            def build(key: Any) -> Any:
                return self._build(key, *shapes)

            found = eqx.filter_eval_shape(build, jax.random.key(0))
            rest = eqx.filter(found, _is_trained, inverse=True)
            if any(map(_is_shape, jax.tree.leaves(rest))):
                rest = self._with_integers(build)
            self.rest[sizes] = rest
        return self.rest[sizes]

    def _with_integers(self, build: Any) -> Any:
        """The same with the values of its arrays, which must not depend on the key."""
        with jax.ensure_compile_time_eval():
            one, other = (
                eqx.filter(build(jax.random.key(seed)), eqx.is_inexact_array, inverse=True)
                for seed in (0, 1)
            )
            arrays = (eqx.filter(each, eqx.is_array) for each in (one, other))
            is_fixed = bool(eqx.tree_equal(*arrays))
        if not is_fixed:
            raise InputError(
                f"{self.label} has arrays that are drawn by its key and not trained, because they "
                "are not of floating point. Make them floating point (with jax.lax.stop_gradient "
                "where they are used), or draw them by a fixed key."
            )
        return one


class EquinoxRows(eqx.Module):
    """A module that is written for one example, called with a batch."""

    module: Any

    def __call__(self, *inputs: Any, key: Any = None) -> Any:
        """The module on every example; without a key in inference mode."""
        module = eqx.nn.inference_mode(self.module) if key is None else self.module
        if "key" not in parameters(type(module).__call__)[0]:
            return jax.vmap(module)(*inputs)
        if key is None:
            return jax.vmap(partial(module, key=None))(*inputs)
        keys = jax.random.split(key, len(inputs[0]))
        return jax.vmap(lambda key, *row: module(*row, key=key))(keys, *inputs)

    def unwrapped(self) -> Any:
        """The user's module."""
        return self.module


def _state(module: Any) -> list[str]:
    def is_state(leaf: Any) -> bool:
        return isinstance(leaf, eqx.nn.StateIndex)

    found = any(map(is_state, jax.tree.leaves(module, is_leaf=is_state)))
    return ["state between calls"] if found else []


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _is_trained(leaf: Any) -> bool:
    return _is_shape(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)
