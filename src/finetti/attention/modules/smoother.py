"""Nadaraya–Watson attention and its conditional kernel density."""

from typing import Any

from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.context_batch import arrange
from finetti.attention.modules.attention_module import NormalizedAttention, check_nonnegative
from finetti.core.arguments import check_finite
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.kernels.kernel import Kernel, check_kernel


class KernelSmoother(NormalizedAttention):
    """Nadaraya–Watson attention: softmax attention is the one with the exponential kernel.

    attn(q, K, V) = Σ_ℓ K(k_ℓ, q) v_ℓ / Σ_ℓ K(k_ℓ, q)                       (4.9), zhang2022

    Args:
        kernel: any nonnegative kernel K.

    >>> import jax.numpy as jnp
    >>> from finetti.kernels import RBF
    >>> smoother = KernelSmoother(RBF())
    >>> smoother(jnp.zeros(1), keys=jnp.array([[-1.0], [1.0]]), values=jnp.array([[2.0], [4.0]]))
    Array([3.], dtype=float32)
    """

    # In float32 the logarithms of scores far from a query do not differ where they should, and a
    # weight near 1 has lost the digits that its gradient is made of.
    in_data_precision = False
    kernel: Kernel

    def __init__(self, kernel: Kernel):
        check_nonnegative(kernel, "KernelSmoother", "divides by the sum of")
        self.kernel = kernel

    def density(
        self,
        points: ArrayLike,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        value_kernel: Kernel | None = None,
    ) -> Float[Array, "... P"]:
        """The conditional kernel density p̂(v | q) at ``points`` v.

        p̂(v | q) = Σ_ℓ K(k_ℓ, q) K(v_ℓ, v) / Σ_ℓ K(k_ℓ, q)                 (4.11), zhang2022

        The value kernel is not normalized, as in the paper: on the unit sphere with the exponential
        kernel ∫ p̂ dv = C_0 and ∫ v p̂ dv = C_1·attn (`sphere_constants`; erratum 4).

        Args:
            points: where to evaluate, shape (P, d_v), the same for all queries.
            query, keys, values, mask: as in a call.
            value_kernel: the kernel on values; by default that of the keys.
        """
        owner = "KernelSmoother.density"
        contexts = arrange(owner, query, keys, values, mask)
        points, d_v = as_array(points).astype(contexts.layout.working_dtype), contexts.layout.d_v
        if points.ndim != 2 or points.shape[1] != d_v:
            requirement = f"of shape (P, d_v = {d_v})"
            raise bad_argument("points", owner, requirement, f"shape {points.shape}")
        check_finite(points, "points", owner)
        kernel = self.kernel if value_kernel is None else value_kernel
        check_kernel(kernel, owner, "value_kernel")
        return self.read(contexts, False, _density, kernel, points)

    def log_scores(
        self, query: Float[Array, "Q d_k"], keys: Float[Array, "L d_k"]
    ) -> Float[Array, "Q L"]:
        """log K(k_ℓ, q)."""
        return self.kernel.log_gram(query, keys)

    def on_scaled_tokens(self, scale: Float[Array, ""]) -> "KernelSmoother":
        """With the kernel of scaled tokens."""
        return KernelSmoother(self.kernel.on_scaled_tokens(scale))


def _density(
    module: KernelSmoother,
    query: Array,
    keys: Array,
    values: Array,
    mask: Any,
    bias: Any,
    kernel: Kernel,
    points: Array,
) -> Float[Array, "Q P"]:
    return module.rows(query, keys, mask, bias) @ kernel.gram(values, points)
