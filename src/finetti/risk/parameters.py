"""All trained numbers of a network as one vector, and back."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument

Network = TypeVar("Network")


def flatten(network: Any) -> np.ndarray:
    """θ: the arrays of real numbers, one after another, in float64.

    >>> flatten({"scale": np.ones(2), "name": "f"})
    array([1., 1.])
    """
    leaves = jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))
    if not leaves:
        raise bad_argument("network", "flatten", "a network with arrays of real numbers", "none")
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves])


def unflatten(flat: Any, network: Network) -> Network:
    """The network with the numbers of ``flat``, also inside ``jit``; dtypes are those of flat."""
    params, rest = eqx.partition(network, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(params)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])
    parts = [
        as_array(flat[end - np.size(leaf) : end]).reshape(np.shape(leaf))
        for leaf, end in zip(leaves, ends.tolist(), strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(tree, parts), rest)


def redraw(network: Network, key: Any) -> Network:
    """Another start of the same kind: every array drawn again, normal with its mean and spread.

    Numbers and constant arrays (a bandwidth, biases at 0) stay as they are.
    """
    params, rest = eqx.partition(network, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        jnp.mean(leaf) + jnp.std(leaf) * jax.random.normal(each, leaf.shape, leaf.dtype)
        for leaf, each in zip(leaves, keys, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(tree, drawn), rest)
