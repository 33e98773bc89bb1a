"""Local linear attention: a weighted line through the pairs near the query."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import wadler_lindig
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import map_blocks
from finetti.attention.modules.attention_module import (
    RowAttention,
    check_nonnegative,
    masked_softmax,
    with_bias,
)
from finetti.core.linalg.positive_definite import at_least_floor, posdef_solve
from finetti.kernels.kernel import Kernel, written_parameter
from finetti.kernels.token_geometry import log_parameter


class LocalLinear(RowAttention):
    """The intercept a of min_{a,B} Σ_i p_i‖v_i − a − B(k_i − q)‖² + λ‖B‖².

    With p_i = K(q, k_i)/Σ_j K(q, k_j), k̄ = Σ_i p_i k_i and C = Σ_i p_i(k_i − k̄)(k_i − k̄)ᵀ the
    weights are

    w_i = p_i(1 + (k_i − k̄)ᵀ(C + λI)⁻¹(q − k̄)):

    those of `KernelSmoother`, moved so that they balance at q instead of k̄. They sum to 1 and may
    be negative. As λ → ∞ this is `KernelSmoother`; as λ → 0 affine functions are read exactly.
    The weights p_i are normalized: a factor of K changes nothing, and where one key has all of
    the weight, C = 0, the line is level and the answer is the value of that key.
    Computed in float64 whatever the precision of the data; one solve of d_k rows per query, in
    which λ is at least `diagonal_floor` times the variance of each coordinate.

    Args:
        kernel: any nonnegative kernel K.
        ridge: λ > 0, against the slope only, in units of a squared distance of keys. Kept as
            ``log_ridge``.

    >>> import jax.numpy as jnp
    >>> from finetti.kernels import RBF
    >>> keys = jnp.array([[0.0], [1.0], [2.0]])
    >>> line = LocalLinear(RBF(), ridge=1e-6)(jnp.array([3.0]), keys, values=2 * keys)
    >>> round(float(line[0]), 3)                            # a smoother would stay below 4
    6.0

    Reference: Fan and Gijbels, Local Polynomial Modelling (1996).
    """

    in_data_precision = False
    kernel: Kernel
    log_ridge: Float[Array, ""]

    def __init__(self, kernel: Kernel, ridge: ArrayLike = 0.1):
        check_nonnegative(kernel, "LocalLinear", "weighs errors by")
        self.kernel = kernel
        self.log_ridge = log_parameter(ridge, "ridge", "LocalLinear", dtype=float)

    def __repr__(self) -> str:
        return f"LocalLinear({self.kernel!r}, {written_parameter('log_ridge', self.log_ridge)})"

    def __pdoc__(self, **_: Any) -> wadler_lindig.AbstractDoc:
        return wadler_lindig.TextDoc(repr(self))

    @property
    def ridge(self) -> Float[Array, ""]:
        """λ."""
        return jnp.exp(self.log_ridge)

    def rows(
        self,
        query: Float[Array, "Q d_k"],
        keys: Float[Array, "L d_k"],
        mask: Bool[Array, "#Q L"] | None,
        bias: Float[Array, "#Q L"] | None = None,
    ) -> Float[Array, "Q L"]:
        """The weights of the intercept."""
        log_scores = with_bias(self.kernel.log_gram(query, keys), bias)
        shares = masked_softmax(log_scores, mask)
        readable = log_scores if mask is None else jnp.where(mask, log_scores, -jnp.inf)
        reads = jnp.max(readable, axis=1) > -jnp.inf

        def row(one: tuple[Array, Array, Array]) -> Array:
            share, reads, asked = one
            # The mean is taken from a point near it: the offset of a key that has all the weight
            # is then 0, where rounding would leave what a small ridge magnifies. Fewer digits of
            # the point will do, and stay one number whatever a compiler contracts (FMA).
            near = jax.lax.stop_gradient(share @ keys)
            near = jax.lax.reduce_precision(near, exponent_bits=11, mantissa_bits=26)
            rest = share @ (keys - near[None])
            offsets, mean = keys - near[None] - rest[None], near + rest
            covariance = offsets.T @ (share[:, None] * offsets)
            noise = at_least_floor(self.ridge, jnp.diagonal(covariance), keys.shape[1])
            slope, _, _ = posdef_solve(covariance + jnp.diag(noise), (asked - mean)[:, None])
            # A query that may read nothing averages all values: a level line.
            return share * (1.0 + jnp.where(reads, (offsets @ slope)[:, 0], 0.0))

        return map_blocks(row, (shares, reads, query), keys.size)

    def on_scaled_tokens(self, scale: Float[Array, ""]) -> "LocalLinear":
        """With the kernel of scaled tokens; a slope in √s·k is one in k over √s: λ becomes λ/s."""
        parts = (
            self.kernel.on_scaled_tokens(scale),
            self.log_ridge - jnp.log(scale).astype(self.log_ridge.dtype),
        )
        return eqx.tree_at(lambda module: (module.kernel, module.log_ridge), self, parts)
