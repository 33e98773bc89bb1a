"""Decoding over a finite feature map: D×D and D×d_v numbers, however long the context becomes.

With rows φ̃_i = φ(k_i)/√λ_i and ṽ_i = v_i/√λ_i as in `finetti.attention.cme.feature_space` the
state is A = I + Σ φ̃_iφ̃_iᵀ and b = Σ φ̃_iṽ_iᵀ: a pair is added in O(D²), a query reads φ(q)ᵀA⁻¹b
in O(D³).
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.decoding.decode_state import (
    DecodeState,
    Double,
    as_token,
    batched,
    join,
    split,
)
from finetti.core.linalg.positive_definite import at_least_floor, posdef_solve


class MomentCache(DecodeState):
    """The moments of a context's features, with a kernel of D features; `start_decoding` makes one.

    With the linear kernel this is the state of mesa attention, ridge regression on the keys.
    """

    module: ConditionalMean
    matrix: Double  # (*batch, D, D)
    moment: Double  # (*batch, D, d_v)
    dimension: int = eqx.field(static=True)

    def append(self, key: ArrayLike, value: ArrayLike) -> "MomentCache":
        """The cache with one more key (\\*batch, d_k) and value (\\*batch, d_v)."""
        owner, batch = "MomentCache.append", self.moment.high.shape[:-2]
        dtype, width = self.moment.high.dtype, self.moment.high.shape[-1]
        key = as_token(owner, "key", key, (*batch, self.dimension), dtype)
        value = as_token(owner, "value", value, (*batch, width), dtype)
        run = batched(_add, len(batch), 4, dtype)
        kept = self.matrix, self.moment
        pair = key[..., None, :], value[..., None, :]
        matrix, moment = run(self.module, None, *kept, *pair)
        return MomentCache(self.module, matrix, moment, self.dimension)

    def read(self, query: ArrayLike) -> tuple[Float[Array, "*batch d_v"], Float[Array, "*batch"]]:
        """Posterior mean and variance of the value at ``query`` (\\*batch, d_k)."""
        batch, dtype = self.moment.high.shape[:-2], self.moment.high.dtype
        query = as_token("MomentCache.read", "query", query, (*batch, self.dimension), dtype)
        run = batched(_answer, len(batch), 3, dtype)
        return run(self.module, None, self.matrix, self.moment, query)


def moments_of_prompt(
    module: ConditionalMean,
    keys: Float[Array, "*batch L d_k"],
    values: Float[Array, "*batch L d_v"],
) -> MomentCache:
    """The cache of a prompt."""
    (*batch, length, dimension), width, dtype = keys.shape, values.shape[-1], keys.dtype
    features = module.kernel.feature_dimension(dimension)
    assert features is not None
    zeros = jnp.zeros((*batch, features, features), dtype)
    matrix = Double(jnp.broadcast_to(jnp.eye(features, dtype=dtype), zeros.shape), zeros)
    moment = Double(*(jnp.zeros((*batch, features, width), dtype) for _ in range(2)))
    if length and math.prod(batch):
        run = batched(_add, len(batch), 4, dtype)
        matrix, moment = run(module, None, matrix, moment, keys, values)
    return MomentCache(module, matrix, moment, dimension)


def _add(
    module: ConditionalMean, _: None, matrix: Double, moment: Double, keys: Array, values: Array
) -> Any:
    features = module.kernel.features(keys)
    diagonal = module.kernel.diagonal(keys)
    noise = at_least_floor(module.ridge, diagonal, keys.shape[1], features.shape[1])[:, None]
    return (
        split(join(matrix) + features.T @ (features / noise)),
        split(join(moment) + features.T @ (values / noise)),
    )


def _answer(module: ConditionalMean, _: None, matrix: Double, moment: Double, query: Array) -> Any:
    features = module.kernel.features(query[None])[0]
    solved = posdef_solve(join(matrix), features[:, None])[0][:, 0]
    return solved @ join(moment), jnp.maximum(features @ solved, 0.0)
