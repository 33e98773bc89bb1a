"""The compiled part of training: some steps of every slot, and what goes in and out of a slot."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class TrainConfig(NamedTuple):
    """What all runs have in common."""

    loss: Any
    stream: Any
    update: Any  # of the optimizer
    n_steps: int


class Frozen(NamedTuple):
    """What a run has and training leaves as it is: leaves that are not trained, data, a key."""

    untrained: Any
    data: Any
    key: Any


class TrainState(NamedTuple):
    """What training changes."""

    params: Any
    optimizer: Any
    step: Any


def _steps(config: TrainConfig, frozen: Frozen, start: TrainState) -> tuple[TrainState, Any]:
    """``n_steps`` steps of one run. All randomness is that of its key and of the step's number."""

    def objective(params: Any, batch: Any, key: Any) -> Any:
        return config.loss(eqx.combine(params, frozen.untrained), batch, key)

    def step(now: TrainState, _: None) -> tuple[TrainState, Any]:
        key = jax.random.fold_in(frozen.key, now.step)
        batch = frozen.data
        if config.stream is not None:
            key, drawn = jax.random.split(key)
            batch = config.stream(frozen.data, drawn, now.step)
        value, gradient = jax.value_and_grad(objective)(now.params, batch, key)
        with jax.numpy_dtype_promotion("standard"):  # which Optax's own formulas rely on
            updates, optimizer = config.update(gradient, now.optimizer, now.params)
        return TrainState(eqx.apply_updates(now.params, updates), optimizer, now.step + 1), value

    return lax.scan(step, start, length=config.n_steps)


@eqx.filter_jit(donate="all-except-first")
def run_steps(fixed: tuple[TrainConfig, Frozen], state: TrainState) -> tuple[TrainState, Any]:
    """``n_steps`` steps of every slot, and their losses (slots, n_steps).

    Every array of a run has one more axis in front, for the slots.
    """
    config, frozen = fixed
    if len(state.step) > 1:
        return eqx.filter_vmap(_steps, in_axes=(None, eqx.if_array(0), eqx.if_array(0)))(
            config, frozen, state
        )
    # A batch of one is slower than none.
    only = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, (frozen, state))
    return jax.tree.map(lambda leaf: leaf[None], _steps(config, *only))


@eqx.filter_jit
def get_slot(tree: Any, slot: Any) -> Any:
    """What one slot holds."""
    return jax.tree.map(lambda leaf: leaf[slot] if eqx.is_array(leaf) else leaf, tree)


@eqx.filter_jit(donate="all-except-first")
def set_slot(change: tuple[Any, Any], tree: Any) -> Any:
    """The tree with something new in the place of what a slot frozen; ``change`` is (slot, new)."""
    slot, new = change

    def replaced(leaf: Any, each: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        return lax.dynamic_update_index_in_dim(leaf, each, slot, 0)

    return jax.tree.map(replaced, tree, new)


def stack(trees: list[Any]) -> Any:
    """What several runs hold, along a new first axis: always copies, which may be donated."""
    return jax.tree.map(
        lambda leaf, *more: jnp.stack([leaf, *more]) if eqx.is_array(leaf) else leaf, *trees
    )


def on_device(tree: Any) -> Any:
    """The tree with JAX arrays of fixed dtypes: a loop must give back the types that it got."""

    def array(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            return leaf  # random keys
        found = jnp.asarray(leaf)
        return lax.convert_element_type(found, found.dtype)

    return jax.tree.map(array, tree)
