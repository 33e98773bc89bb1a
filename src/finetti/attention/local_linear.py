"""Local linear attention: a weighted line through the pairs near the query."""

from typing import Any

import jax
import jax.numpy as jnp
import wadler_lindig
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.blocks import map_blocks
from finetti.attention.normalized import masked_logits, masked_softmax
from finetti.attention.rows import RowAttention
from finetti.core.arrays import check_positive
from finetti.core.errors import UnsupportedError
from finetti.core.solves import at_least_floor, posdef_solve
from finetti.kernels.base import Kernel, check_kernel
from finetti.kernels.similarity import written_parameter

# Where a kernel underflows the ridge outweighs it by more than this, and the line is level.
_LARGEST_LOG_RATIO = 300.0


class LocalLinear(RowAttention):
    """The intercept a of min_{a,B} Σ_i K(q, k_i)‖v_i − a − B(k_i − q)‖² + λ‖B‖².

    With p_i = K(q, k_i)/Z, Z = Σ_i K(q, k_i), k̄ = Σ_i p_i k_i, C = Σ_i p_i(k_i − k̄)(k_i − k̄)ᵀ the
    weights are

    w_i = p_i(1 + (k_i − k̄)ᵀ(C + (λ/Z)I)⁻¹(q − k̄)):

    those of `KernelSmoother`, moved so that they balance at q instead of k̄. They sum to 1 and may
    be negative. As λ → ∞ this is `KernelSmoother`; as λ → 0 affine functions are read exactly.
    In float64 whatever the precision of the data; one solve of d_k rows per query, in which λ/Z is
    at least `finetti.core.solves.diagonal_floor` times the variance of each coordinate.

    Args:
        kernel: any nonnegative kernel K.
        ridge: λ > 0, against the slope only. Kept as ``log_ridge``.

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
        check_kernel(kernel, "LocalLinear")
        if not kernel.is_positive:
            raise UnsupportedError(
                f"LocalLinear weighs errors by the kernel's values, and {kernel} takes both signs. "
                "Use ConditionalMean, which accepts any positive-definite kernel, or a nonnegative "
                "one such as RBF or Exponential."
            )
        check_positive(ridge, "ridge", "LocalLinear")
        self.kernel = kernel
        self.log_ridge = jnp.log(jnp.asarray(ridge, dtype=float))

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
    ) -> Float[Array, "Q L"]:
        """The weights of the intercept."""
        log_scores = self.kernel.log_gram(query, keys)
        shares = masked_softmax(log_scores, mask)
        total = jax.nn.logsumexp(masked_logits(log_scores, mask), axis=1)
        ratio = jnp.exp(jnp.minimum(self.log_ridge - total, _LARGEST_LOG_RATIO))  # λ/Z

        def row(one: tuple[Array, Array, Array]) -> Array:
            share, ratio, asked = one
            # About the mean of the keys themselves, from their own center: nothing cancels.
            center = jax.lax.stop_gradient(jnp.mean(keys, axis=0))
            mean = share @ (keys - center[None]) + center
            offsets = keys - mean[None]
            covariance = offsets.T @ (share[:, None] * offsets)
            noise = at_least_floor(ratio, jnp.diagonal(covariance), keys.shape[1])
            slope, _, _ = posdef_solve(covariance + jnp.diag(noise), (asked - mean)[:, None])
            return share * (1.0 + (offsets @ slope)[:, 0])

        return map_blocks(row, (shares, ratio, query), keys.size)
