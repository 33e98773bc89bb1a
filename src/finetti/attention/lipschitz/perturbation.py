"""Both sides of a perturbation lemma, and what every lemma checks of its arguments."""

from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.networks.weight_arrays import as_weights
from finetti.core.arguments import Form
from finetti.core.errors import bad_argument

Layer = TypeVar("Layer")


class Perturbation(eqx.Module):
    """How far something moved, and how far the lemma lets it move.

    ``measured`` and ``bound`` are numbers, or one number per draw where the lemma was mapped over
    many with `jax.vmap`.

    >>> import jax.numpy as jnp
    >>> moved = Perturbation(jnp.array(1.0), jnp.array(4.0), "Lemma A.14, edelman2022", "derived")
    >>> float(moved.ratio), bool(moved.holds)
    (0.25, True)
    """

    measured: Float[Array, "*draws"]
    bound: Float[Array, "*draws"]
    citation: str = eqx.field(static=True)
    form: Form = eqx.field(static=True)

    @property
    def ratio(self) -> Float[Array, "*draws"]:
        """measured / bound; 0 where nothing moved."""
        still = self.measured == 0
        return jnp.where(still, 0.0, self.measured / jnp.where(still, 1.0, self.bound))

    @property
    def holds(self) -> Bool[Array, "*draws"]:
        """measured ≤ bound, up to rounding in the last digits."""
        return self.ratio <= 1 + 1e-9


def as_tokens(
    tokens: ArrayLike, argument: str, owner: str, shape: tuple[int | None, ...] = (None, None)
) -> Float[Array, "T d"]:
    """One sequence of tokens, of the given shape where there is one to compare with."""
    return as_weights(tokens, argument, owner, "(T, d)", shape)


def layer_pairs(
    layers: tuple[Layer, ...], other: tuple[Layer, ...], owner: str
) -> list[tuple[Layer, Layer]]:
    """Layer by layer, of two networks of equally many."""
    if len(other) != len(layers):
        raise bad_argument("other", owner, f"a network of {len(layers)} layers", len(other))
    return list(zip(layers, other, strict=True))
