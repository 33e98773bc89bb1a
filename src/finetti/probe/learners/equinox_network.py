"""Equinox modules as learners: written for one sequence, applied to many by vmap."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.core.errors import InputError
from finetti.probe.learners.given_network import GivenNetwork
from finetti.probe.learners.recipe import parameters


@final
@dataclass(frozen=True, kw_only=True)
class EquinoxNetwork(GivenNetwork):
    """A module that is called with one sequence (T,), and with ``key`` if its signature has it.

    All its floating-point arrays are trained. In evaluation it is in inference mode, without a key.
    """

    rest: dict[int, Any] = field(default_factory=dict, repr=False)  # what is not trained, by T

    def init(self, key: Any, context_length: int) -> Any:
        """The floating-point arrays of a new module."""
        return eqx.filter(self._build(key, context_length), eqx.is_inexact_array)

    def logits(self, params: Any, bits: Array, key: Any) -> Any:
        """The module on every row, each with randomness of its own."""
        module: Any = eqx.combine(params, self._rest(bits.shape[1]))
        if key is None:
            module = eqx.nn.inference_mode(module)
        if "key" not in parameters(type(module).__call__)[0]:
            return jax.vmap(module)(bits)
        if key is None:
            return jax.vmap(lambda row: module(row, key=None))(bits)
        keys = jax.random.split(key, len(bits))
        return jax.vmap(lambda row, key: module(row, key=key))(bits, keys)

    def _build(self, key: Any, context_length: int) -> Any:
        module = self.recipe.build(key=key, context_length=context_length)
        stateful = jax.tree.leaves(module, is_leaf=_is_stateful)
        if any(map(_is_stateful, stateful)):
            raise InputError(
                f"The learner {self.recipe.reference} keeps state between calls (BatchNorm, for "
                "example), so that samples would see each other. Use a stateless layer, such as "
                "LayerNorm."
            )
        return module

    def _rest(self, context_length: int) -> Any:
        """The module without its trained arrays: functions, sizes, and arrays of integers."""
        if context_length not in self.rest:
            build = partial(self._build, context_length=context_length)
            shapes = eqx.filter_eval_shape(build, jax.random.key(0))
            rest = eqx.filter(shapes, _is_trained, inverse=True)
            if any(map(_is_shape, jax.tree.leaves(rest))):
                rest = self._with_integers(build)
            self.rest[context_length] = rest
        return self.rest[context_length]

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
                f"The learner {self.recipe.reference} has arrays that are drawn by its key and not "
                "trained, because they are not of floating point. Make them floating point "
                "(with jax.lax.stop_gradient where they are used), or draw them by a fixed key."
            )
        return one


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _is_trained(leaf: Any) -> bool:
    return _is_shape(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _is_stateful(leaf: Any) -> bool:
    return isinstance(leaf, eqx.nn.StateIndex)
