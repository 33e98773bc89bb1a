"""CME attention for long contexts: preconditioned block conjugate gradients that never hold
the Gram matrix.

The kernel matrix is evaluated block by block inside every product, so memory is linear in L. The
work is L²·(d_k + d_v) per iteration, in float32 where that is enough (`mixed_precision`), else in
float64; an iteration that does not converge there either answers NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.cme.gram_products import KeySystem, gram_product, key_noise
from finetti.attention.cme.mixed_precision import MixedPrecisionRoute
from finetti.attention.cme.routes import Call
from finetti.attention.context_batch import ContextArrays
from finetti.core.linalg import lapack
from finetti.core.linalg.block_cg import Operator, conjugate_gradients
from finetti.kernels.kernel import Kernel

# Above this length a factor takes gigabytes.
MIN_KEYS = 16_385
# Ranks of the preconditioner: float64 answers where the ridge is small, and twice the rank then
# saves more iterations than it costs.
RANK, RANK_64 = 1024, 2048
# Bounds on the relative error of a solution: what is aimed at, and up to what a float64 solution
# is an answer (what float32 gives is judged by `mixed_precision`).
RTOL, RTOL_64, MAX_ERROR_64 = 1e-5, 1e-10, 1e-6


class Nystrom(NamedTuple):
    """(RRᵀ + Λ)⁻¹ with RRᵀ ≈ K, by Woodbury's identity: Λ, Λ⁻¹ᐟ²R, H⁻¹ with HHᵀ = I + RᵀΛ⁻¹R."""

    noise: Float[Array, "L"]
    root: Float[Array, "L rank"]
    half: Float[Array, "rank rank"]
    usable: Bool[Array, ""]

    def apply(self, residual: Float[Array, "L k"]) -> Float[Array, "L k"]:
        """About (K + Λ)⁻¹r."""
        unit = jnp.sqrt(self.noise)[:, None]
        scaled = residual / unit
        correction = self.root @ (self.half.T @ (self.half @ (self.root.T @ scaled)))
        # Where rounding spoils a factor, no preconditioner is better than a wrong one.
        return jnp.where(self.usable, scaled - correction, scaled) / unit


class ConjugateGradients(MixedPrecisionRoute):
    """Products with the kernel instead of a factor."""

    name = "conjugate_gradients"

    def reason(self, call: Call) -> str:
        """Long contexts."""
        if call.length < MIN_KEYS:
            return ""
        return (
            f"More than {MIN_KEYS - 1} keys: products with the kernel instead of a factorization."
        )

    def prepare(self, system: KeySystem, gram: Array | None = None) -> Nystrom:
        """The preconditioner."""
        return nystrom(system, RANK)

    def solve(self, prepared: Nystrom, matvec: Operator, right: Array) -> Array:
        """As far as float32 goes; whether that is enough is judged by `mixed_precision`."""
        # Without a preconditioner many iterations would lead nowhere: NaN at once.
        right = jnp.where(prepared.usable, right, jnp.nan)
        least = jnp.min(prepared.noise)
        solution, _ = conjugate_gradients(matvec, right, prepared.apply, least, RTOL)
        return solution

    def mean64(
        self, kernel: Kernel, ridge: Float[Array, ""], context: ContextArrays
    ) -> Float[Array, "Q d_v"]:
        """NaN in the columns of the values, or of a gradient, that did not converge."""
        query, keys, values, mask = context
        system = KeySystem(kernel, keys, key_noise(kernel, ridge, keys), mask)
        prepared = nystrom(jax.lax.stop_gradient(system), RANK_64)
        least = jnp.min(prepared.noise)
        # Rounding leaves residuals of up to u‖A‖‖x‖, ‖A‖ ≤ L·max K(k, k): less is not to be had.
        attainable = keys.shape[0] * jnp.finfo(keys.dtype).eps * jnp.max(kernel.diagonal(keys))
        rtol = jax.lax.stop_gradient(jnp.clip(attainable / least, RTOL_64, 0.1 * MAX_ERROR_64))

        def solve(matvec: Operator, right: Array) -> Array:
            solution, bound = conjugate_gradients(matvec, right, prepared.apply, least, rtol)
            return jnp.where(bound.relative_error <= MAX_ERROR_64, solution, jnp.nan)

        coefficients = jax.lax.custom_linear_solve(system.apply, values, solve, symmetric=True)
        # Those of masked keys are zero. Saying so keeps their part of a gradient, K(k, q)ȳ/λ, out
        # of the solution that errors are relative to.
        return gram_product(kernel, query, keys, system.kept[:, None] * coefficients)


def nystrom(system: KeySystem, rank: int) -> Nystrom:
    """R = K(K, C)G⁻ᵀ, GGᵀ = K(C, C) + nugget, for ``rank`` keys C over the context: RRᵀ ≈ K.

    Reference: Williams and Seeger (2001); Frangella, Tropp and Udell (2023) as a preconditioner.
    """
    kernel, keys, noise, _ = system
    rank, kept = min(rank, len(keys)), system.kept
    chosen = jnp.arange(rank) * len(keys) // rank
    centers, kept_centers = keys[chosen], kept[chosen]
    cross = kept[:, None] * kernel.gram(keys, centers) * kept_centers[None, :]
    gram = kept_centers[:, None] * kernel.gram(centers) * kept_centers[None, :]
    # What lies a hundred times below the ridge need not be resolved; what keeps the small factor
    # numerically positive definite must be there.
    least = 10 * rank * jnp.finfo(keys.dtype).eps * jnp.max(kernel.diagonal(keys))
    gram = gram + jnp.diag(jnp.maximum(0.01 * noise[chosen], least) + (1 - kept_centers))
    identity = jnp.eye(rank, dtype=keys.dtype)
    # An inverse costs little beside the product with it, which runs on all threads.
    inverse = lapack.solve_lower(lapack.cholesky(gram), identity)
    root = cross @ inverse.T / jnp.sqrt(noise)[:, None]
    half = lapack.solve_lower(lapack.cholesky(root.T @ root + identity), identity)
    # Without a first factor there is no second one.
    usable = jnp.all(jnp.isfinite(half)) & (jnp.min(noise) >= least)
    return Nystrom(noise, root, half, usable)
