"""The random-feature network that random-feature attention is compared with."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.attention.context_batch import Contexts, arrange, map_blocks
from finetti.attention.random_features.infinite_mlp import InfiniteMLPKernel, check_positions
from finetti.attention.random_features.random_feature_model import (
    RandomFeatureModel,
    parts,
    zero_values,
)
from finetti.core.arguments import as_whole
from finetti.core.arrays import as_array


class RandomFeatureMLP(RandomFeatureModel):
    """M random ReLU neurons on all tokens at once, with trained values (RFMLP).

    f(x₀, x_{1:N}) = Σ_m σ(⟨w_m, vec⟩) v_m,   vec = [x₀; x₁; …; x_N; 1],   w_m ∼ N(0, I/(N + 2))

    It sees the order of the keys, and takes exactly N of them without a mask. Everything else is
    as in `RandomFeatureAttention`: shapes, frozen draw, values that start at zero.

    Args:
        key: the randomness of the draw.
        n_neurons: M.
        dimension: d of query and keys; on the unit sphere ⟨w_m, vec⟩ ∼ N(0, 1).
        context_length: N.
        output_dimension: d_out of a vector output; None for a number.

    >>> import jax, jax.numpy as jnp
    >>> network = RandomFeatureMLP(jax.random.key(0), 100, dimension=2, context_length=3)
    >>> network.features(jnp.ones(2), jnp.ones((3, 2))).shape
    (100,)

    Reference: the comparison model of fu2023, stated from knowledge of the paper.
    """

    dimension: int = eqx.field(static=True)
    context_length: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        n_neurons: int,
        dimension: int,
        context_length: int,
        output_dimension: int | None = None,
    ):
        owner = type(self).__name__
        n_neurons = as_whole(n_neurons, "n_neurons", owner)
        self.dimension = as_whole(dimension, "dimension", owner)
        self.context_length = as_whole(context_length, "context_length", owner)
        width = self.dimension * (self.context_length + 1) + 1
        self.draws = jax.random.normal(key, (n_neurons, width)) * (self.context_length + 2) ** -0.5
        self.values = zero_values((n_neurons,), output_dimension, owner)

    @property
    def n_neurons(self) -> int:
        """M."""
        return self.draws.shape[0]

    @property
    def _values_shape(self) -> tuple[int, ...]:
        return (self.n_neurons,)

    def features(
        self, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "... M"]:
        """Φ(x) = M^(−1/2) [σ(⟨w_m, vec⟩)]_m, so that f(x) = √M · Φ(x)·v."""
        contexts = self._arrange(".features", query, keys, mask)
        tokens, others, _ = parts(contexts)
        return contexts.restore(self._neurons(tokens, others) * self.n_neurons**-0.5)

    def infinite_kernel(self) -> InfiniteMLPKernel:
        """The exact limit of Φ(x)·Φ(x') as M → ∞."""
        return InfiniteMLPKernel(self.dimension, self.context_length)

    def _arrange(
        self, method: str, query: ArrayLike, keys: ArrayLike, mask: ArrayLike | None
    ) -> Contexts:
        owner = type(self).__name__ + method
        contexts = arrange(owner, query, keys, None, None)
        check_positions(owner, "", as_array(keys), mask, self.dimension, self.context_length)
        return contexts

    def _read(self, query: Array, keys: Array, mask: Array | None) -> Array:
        values = self.values.astype(query.dtype)

        def one_context(context: tuple[Array, Array]) -> Array:
            tokens, others = context
            return self._neurons(tokens[None], others[None])[0] @ values

        return map_blocks(one_context, (query, keys), query.shape[1] * self.n_neurons)

    @jax.jit
    def _neurons(
        self, query: Float[Array, "B Q d"], keys: Float[Array, "B N d"]
    ) -> Float[Array, "B Q M"]:
        """σ(⟨w_m, vec⟩); the part of the keys is shared by their queries."""
        draws = jax.lax.stop_gradient(self.draws).astype(query.dtype)
        of_query, of_keys, of_one = jnp.split(draws, [self.dimension, draws.shape[1] - 1], axis=1)
        shared = keys.reshape(len(keys), -1) @ of_keys.T + of_one.T
        return jax.nn.relu(query @ of_query.T + shared[:, None, :])
