"""Linear attention: one gradient step of least squares."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.context_batch import ContextArrays, over_queries
from finetti.attention.fast_weights.chunked_scan import CHUNK_LENGTH, UpdateRule
from finetti.attention.fast_weights.state_attention import FastWeights
from finetti.core.arguments import as_whole
from finetti.core.errors import UnsupportedError
from finetti.kernels.kernel import Kernel, check_kernel
from finetti.kernels.linear import Linear


class LinearAttention(FastWeights):
    """One gradient step on Σ½‖v_i − Sφ(k_i)‖² from S = 0, of size 1, evaluated at the query.

    attn(q, K, V) = S φ(q),  S = Σ_i v_i φ(k_i)ᵀ: the weights are φ(k_i)·φ(q) = K(k_i, q).

    Not normalized: the weights divided by their sum are `KernelSmoother`.

    Args:
        kernel: one with a finite feature map φ, `Linear` by default, φ(k) = k.
        chunk_length: keys that one step of a causal call takes; it does not change the answer.

    >>> import jax.numpy as jnp
    >>> keys, values = jnp.eye(2), jnp.array([[1.0], [3.0]])
    >>> LinearAttention()(jnp.array([1.0, 2.0]), keys, values)
    Array([7.], dtype=float32)

    Reference: Katharopoulos et al., arXiv 2006.16236.
    """

    kernel: Kernel
    chunk_length: int = eqx.field(static=True)

    def __init__(self, kernel: Kernel | None = None, *, chunk_length: int = CHUNK_LENGTH):
        self.kernel = Linear() if kernel is None else kernel
        check_kernel(self.kernel, "LinearAttention")
        if self.kernel.feature_dimension(1) is None:
            raise UnsupportedError(
                f"LinearAttention keeps a matrix over the kernel's features, and {self.kernel} has "
                "no finite feature map. Use Linear, Polynomial, their sums or products, or "
                "KernelSmoother, which reads any nonnegative kernel."
            )
        self.chunk_length = as_whole(chunk_length, "chunk_length", "LinearAttention")

    def rule(self, dtype: object) -> UpdateRule:
        """S ← S + vφ(k)ᵀ."""
        return UpdateRule()

    def features(self, tokens: Float[Array, "N d_k"]) -> Float[Array, "N D"]:
        """φ of the kernel."""
        return self.kernel.features(tokens)

    def pairs(
        self, keys: Float[Array, "L d_k"], values: Float[Array, "L d_v"]
    ) -> tuple[Float[Array, "L D"], Float[Array, "L d_v"]]:
        """φ(k) and v."""
        return self.features(keys), values

    def read_own_masks(
        self, arrays: ContextArrays, shared: UpdateRule, own: UpdateRule
    ) -> Float[Array, "B Q d_v"]:
        """Sums over the keys of each query's own mask: no state, but the weights themselves."""

        def rows(query: Array, keys: Array, values: Array, mask: Array | None, _: None) -> Array:
            weights = self.features(query) @ self.features(keys).T
            return (weights if mask is None else jnp.where(mask, weights, 0)) @ values

        return over_queries(rows, arrays)

    def on_scaled_tokens(self, scale: Float[Array, ""]) -> "LinearAttention":
        """With the kernel of scaled tokens."""
        return eqx.tree_at(lambda m: m.kernel, self, self.kernel.on_scaled_tokens(scale))
