"""The deep network of paper S: attention layers between projections onto the unit ball."""

from functools import partial
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.attention.modules.softmax import Softmax
from finetti.attention.networks.activations import Activation, as_activation
from finetti.attention.networks.weight_arrays import (
    as_projections,
    as_sequence,
    draw_projections,
    promote,
)
from finetti.core.arguments import check_positive, check_rank
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import widest_float


def project_ball(rows: ArrayLike, radius: float = 1.0) -> Float[Array, "*lead d"]:
    """Π_norm: each row shortened to length ``radius`` if it is longer (A.9, edelman2022).

    1-Lipschitz, as every projection onto a convex set; dividing by the length, the projection onto
    the sphere, is not (S-lemma-A.9-sphere).

    >>> import jax.numpy as jnp
    >>> project_ball(jnp.array([[3.0, 4.0], [0.0, 0.5]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.5]]
    """
    rows = as_array(rows)
    check_rank(rows, 1, "(..., d)", "rows", "project_ball")
    check_positive(radius, "radius", "project_ball")
    return _project(rows.astype(widest_float(rows)), float(radius))


@partial(jax.jit, static_argnums=1)
def _project(rows: Float[Array, "*lead d"], radius: float) -> Float[Array, "*lead d"]:
    # Measured in units of the largest entry, so that squares neither overflow nor vanish.
    top = jnp.max(jnp.abs(rows), axis=-1, keepdims=True)
    unit = jax.lax.stop_gradient(jnp.maximum(top, radius))
    squares = jnp.sum((rows / unit) ** 2, axis=-1, keepdims=True)
    limit = (radius / unit) ** 2
    # Below the limit the quotient is 1, also for its gradient.
    outside = squares > limit
    length = jnp.sqrt(jnp.where(outside, squares, limit)) * unit
    return jnp.where(outside, rows * (radius / length), rows)


class ProjectedLayer(eqx.Module):
    """g ↦ Π(σ(Π(f(g; W)))W_C), f(Z; W) = RowSoftmax(ZW_Q(ZW_K)ᵀ)ZW_V   (4.3), edelman2022

    Args:
        query_weights, key_weights: W_Q and W_K, shape (d, k).
        value_weights: W_V, shape (d, v).
        output_weights: W_C, shape (v, d_out).
        activation: σ, with σ(0) = 0.
    """

    query_weights: Float[Array, "d k"]
    key_weights: Float[Array, "d k"]
    value_weights: Float[Array, "d v"]
    output_weights: Float[Array, "v d_out"]
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        query_weights: ArrayLike,
        key_weights: ArrayLike,
        value_weights: ArrayLike,
        output_weights: ArrayLike,
        activation: str | Activation = "relu",
    ):
        owner = "ProjectedLayer"
        weights = query_weights, key_weights, value_weights, output_weights
        weights = as_projections(owner, ("(d, k)", "(d, v)", "(v, d_out)"), *weights)
        self.query_weights, self.key_weights, self.value_weights, self.output_weights = weights
        self.activation = as_activation(activation, owner)

    @property
    def score_matrix(self) -> Float[Array, "d d"]:
        """M = W_QW_Kᵀ."""
        query_weights, key_weights = promote(self.query_weights, self.key_weights)
        return query_weights @ key_weights.T

    def attend(
        self, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch T v"]:
        """f(Z; W), before the projections."""
        dimension = self.query_weights.shape[0]
        tokens = as_sequence(tokens, "tokens", "ProjectedLayer", dimension, mask)
        tokens, *weights = promote(tokens, self.query_weights, self.key_weights, self.value_weights)
        queries, keys, values = (tokens @ weight for weight in weights)
        return Softmax()(queries, keys, values, mask)

    def inside(
        self, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch T v"]:
        """σ(Π(f(Z; W))), what W_C multiplies."""
        return self.activation(project_ball(self.attend(tokens, mask)))

    def __call__(
        self, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch T d_out"]:
        """The layer's tokens, all inside the unit ball."""
        inside, output_weights = promote(self.inside(tokens, mask), self.output_weights)
        return project_ball(inside @ output_weights)


class ProjectedTransformer(eqx.Module):
    """g^{(1)} = X, g^{(i+1)} = Π(σ(Π(f(g^{(i)}; W^{(i)})))W_C^{(i)})        (4.3), edelman2022

    Its scalar output is ``TokenReadout(w)(network(tokens))``.

    Args:
        layers: one `ProjectedLayer` per layer.

    >>> import jax
    >>> network = ProjectedTransformer.init(jax.random.key(0), 3, dimension=8, head_dimension=4)
    >>> out = network(jax.random.normal(jax.random.key(1), (10, 8)))
    >>> out.shape, bool((out**2).sum(axis=1).max() <= 1 + 1e-6)
    ((10, 8), True)
    """

    layers: tuple[ProjectedLayer, ...]

    def __init__(self, layers: tuple[ProjectedLayer, ...] | list[ProjectedLayer]):
        layers = tuple(layers)
        if not layers:
            raise bad_argument("layers", "ProjectedTransformer", "at least one layer", "none")
        for before, after in pairwise(layers):
            given, wanted = before.output_weights.shape[1], after.query_weights.shape[0]
            if given != wanted:
                requirement = f"layers that fit: one asks for tokens of dimension {wanted}"
                raise bad_argument("layers", "ProjectedTransformer", requirement, given)
        self.layers = layers

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        n_layers: int,
        dimension: int,
        head_dimension: int,
        activation: str | Activation = "relu",
    ) -> "ProjectedTransformer":
        """Independent N(0, 1/fan-in) weights."""
        weights = (
            draw_projections(layer_key, dimension, head_dimension)
            for layer_key in jax.random.split(key, n_layers)
        )
        return cls([ProjectedLayer(*each, activation) for each in weights])

    def states(
        self, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> tuple[Float[Array, "*batch T d"], ...]:
        """g^{(1)}, …, g^{(L+1)}."""
        dimension = self.layers[0].query_weights.shape[0]
        states = [as_sequence(tokens, "tokens", "ProjectedTransformer", dimension, mask)]
        for layer in self.layers:
            states.append(layer(states[-1], mask))
        return tuple(states)

    def __call__(
        self, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch T d"]:
        """g^{(L+1)}."""
        return self.states(tokens, mask)[-1]
