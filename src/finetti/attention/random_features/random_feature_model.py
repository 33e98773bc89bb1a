"""What random-feature models share: a frozen draw, and trained values in which they are linear."""

import abc
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.context_batch import Contexts
from finetti.core.arguments import as_whole, check_finite
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import widest_float


class RandomFeatureModel(eqx.Module):
    """Abstract: f(x) = √M · Φ(x)·v with M frozen draws in Φ and trained values v."""

    values: Float[Array, "M ..."]
    draws: Float[Array, "M ..."]

    @property
    def trainable(self) -> Any:
        """True at the values, False at the frozen leaves: for `equinox.partition`."""
        frozen = jax.tree.map(lambda _: False, self)
        return eqx.tree_at(lambda module: module.values, frozen, True)

    def with_values(self, values: ArrayLike) -> Self:
        """The same draw with these values: one for each feature, or a last axis d_out of them."""
        array, shape = as_array(values), self._values_shape
        fits = array.ndim in (len(shape), len(shape) + 1) and array.shape[: len(shape)] == shape
        owner = f"{type(self).__name__}.with_values"
        if not fits or array.size == 0:
            requirement = f"of shape {shape} or {(*shape, 'd_out')}"
            raise bad_argument("values", owner, requirement, f"shape {array.shape}")
        check_finite(array, "values", owner)
        return eqx.tree_at(lambda module: module.values, self, array.astype(widest_float(array)))

    def __call__(
        self, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """f(query, keys), of shape (\\*batch, \\*queries) or (\\*batch, \\*queries, d_out)."""
        contexts = self._arrange("", query, keys, mask)
        return contexts.restore(_read(self, *parts(contexts)))

    @abc.abstractmethod
    def features(
        self, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """Φ(x)."""

    @property
    @abc.abstractmethod
    def _values_shape(self) -> tuple[int, ...]:
        """The shape of the values for an output that is a number."""

    @abc.abstractmethod
    def _arrange(
        self, method: str, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None
    ) -> Contexts:
        """The arguments, checked."""

    @abc.abstractmethod
    def _read(self, query: Array, keys: Array, mask: Array | None) -> Array:
        """f in the layout of the contexts."""


@jax.jit
def _read(model: RandomFeatureModel, query: Array, keys: Array, mask: Array | None) -> Array:
    return model._read(query, keys, mask)


def parts(contexts: Contexts) -> tuple[Array, Array, Array | None]:
    """Query, keys and mask (B, 1 or Q, N), in float32 at least: sums over keys need the digits."""
    query, keys, _, mask = contexts.arrays
    return query, keys, mask if mask is None or contexts.layout.per_query else mask[:, None, :]


def zero_values(
    shape: tuple[int, ...], output_dimension: int | None, owner: str
) -> Float[Array, "..."]:
    """Values of ``shape`` for a number, with a last axis d_out for a vector.

    They start at zero: the model is linear in them, so there is no symmetry to break.
    """
    if output_dimension is not None:
        shape = (*shape, as_whole(output_dimension, "output_dimension", owner))
    return jnp.zeros(shape)
