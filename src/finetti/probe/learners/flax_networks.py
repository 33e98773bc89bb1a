"""Flax modules as learners, linen and nnx: called with a batch of sequences (m, T)."""

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from finetti.core.errors import InputError
from finetti.probe.learners.given_network import GivenNetwork, check_params
from finetti.probe.learners.recipe import parameters

MODES = {"train": True, "training": True, "is_training": True, "deterministic": False}


def mode_arguments(function: Any, training: bool) -> dict[str, bool]:
    """The arguments by which a module is told whether it is trained, as it calls them.

    >>> mode_arguments(lambda bits, deterministic: bits, training=True)
    {'deterministic': False}
    """
    names = parameters(function)[0]
    return {name: training == value for name, value in MODES.items() if name in names}


def refuse_state(names: list[str], reference: str) -> None:
    """Only parameters: what is kept between calls would tie samples, and steps, together."""
    if names:
        raise InputError(
            f"The learner {reference} keeps {', '.join(names)} beside its parameters (BatchNorm, "
            "for example), so that samples would see each other. Use a stateless layer, such as "
            "LayerNorm."
        )


@final
@dataclass(frozen=True, kw_only=True)
class LinenNetwork(GivenNetwork):
    """A linen module; it draws its randomness from the stream "dropout" or any other."""

    def init(self, key: Any, context_length: int) -> Any:
        """The collection "params"."""
        bits = jnp.zeros((1, context_length), self._dtype)
        module = self.recipe.build(context_length=context_length)
        mode = mode_arguments(type(module).__call__, training=False)
        variables = dict(module.init(key, bits, **mode))
        params = variables.pop("params", {})
        refuse_state(list(variables), self.recipe.reference)
        return check_params(params, self.recipe.reference)

    def logits(self, params: Any, bits: Array, key: Any) -> Any:
        """The module on the batch."""
        module = self.recipe.build(context_length=bits.shape[1])
        mode = mode_arguments(type(module).__call__, training=key is not None)
        rngs = None if key is None else {"params": key}  # all streams fall back on this one
        return module.apply({"params": params}, bits, **mode, rngs=rngs)

    @property
    def _dtype(self) -> Any:
        return jnp.int32 if self.inputs == "integers" else jnp.float32


@final
@dataclass(frozen=True, kw_only=True)
class NnxNetwork(GivenNetwork):
    """An nnx module, whose class or factory takes ``rngs``."""

    def init(self, key: Any, context_length: int) -> Any:
        """The variables of type `nnx.Param`."""
        module = self._build(key, context_length)
        params, state, others = nnx.state(module, nnx.Param, nnx.RngState, ...)
        del state
        kinds = {type(each).__name__ for each in jax.tree.leaves(others, is_leaf=_is_variable)}
        refuse_state(sorted(kinds), self.recipe.reference)
        return check_params(nnx.to_pure_dict(params), self.recipe.reference)

    def logits(self, params: Any, bits: Array, key: Any) -> Any:
        """The module on the batch, with its random streams started by ``key``."""
        # A new one at every trace, whose own weights nobody reads: the compiler drops their draw.
        module = self._build(jax.random.key(0) if key is None else key, bits.shape[1])
        state = nnx.state(module, nnx.Param)
        nnx.replace_by_pure_dict(state, params)
        nnx.update(module, state)
        if key is None:
            module.eval()
        else:
            module.train()
        return module(bits, **mode_arguments(type(module).__call__, key is not None))

    def _build(self, key: Any, context_length: int) -> Any:
        return self.recipe.build(rngs=nnx.Rngs(key), key=key, context_length=context_length)


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)
