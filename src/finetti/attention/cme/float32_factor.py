"""CME attention by one float32 factorization of blocks: the Gram matrix is evaluated where it is
needed. Where float32 is too coarse (`mixed_precision`), float64 answers."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.cme.gram_products import KeySystem, gram_product, key_noise
from finetti.attention.cme.mixed_precision import MixedPrecisionRoute
from finetti.attention.cme.routes import Call
from finetti.attention.context_batch import ContextArrays
from finetti.core.linalg import block_cholesky, lapack
from finetti.core.linalg.positive_definite import first_that_factors
from finetti.core.linalg.triangular import solve_factored
from finetti.kernels.kernel import Kernel

# Below this length float64 costs next to nothing.
MIN_KEYS = 256


class Float32Factor(MixedPrecisionRoute):
    """One float32 factor of blocks; in float64 one call of LAPACK."""

    name = "mixed"
    # A float32 factorization of hundreds of keys keeps all cores busy by itself.
    max_entries = 1

    def refusal(self, call: Call) -> str:
        """Float64 data would gain nothing."""
        if jnp.finfo(call.dtype).bits > 32:
            return "works in float32, and the data are float64."
        return super().refusal(call)

    def reason(self, call: Call) -> str:
        """Where float32 is faster."""
        if call.length < MIN_KEYS:
            return ""
        return (
            f"One float32 factorization ({call.length} keys), checked; float64 where that is too "
            "coarse."
        )

    def prepare(self, system: KeySystem, gram: Array | None = None) -> block_cholesky.Tree:
        """The factor of K + Λ."""
        return block_cholesky.factor(_entries(system, gram), len(system.keys))

    def solve(self, prepared: block_cholesky.Tree, matvec: Any, right: Array) -> Array:
        """By substitution."""
        return block_cholesky.solve(prepared, right)

    def mean64(
        self, kernel: Kernel, ridge: Float[Array, ""], context: ContextArrays
    ) -> Float[Array, "Q d_v"]:
        """Factored again, the diagonal raised until there is a factor; differentiated implicitly.

        K is evaluated anew at every attempt and never held beside its factor: also where float32
        answers, the memory for this branch is part of every call.
        """
        query, keys, values, mask = context
        system = KeySystem(kernel, keys, key_noise(kernel, ridge, keys), mask)
        fixed, size = jax.lax.stop_gradient(system), len(keys)
        diagonal = fixed.noise + fixed.kernel.diagonal(fixed.keys)

        def factored(shift: Float[Array, ""]) -> Array:
            # Behind a barrier, or K would be held for further attempts.
            shift, tokens = jax.lax.optimization_barrier((shift, fixed.keys))
            raised = fixed._replace(keys=tokens, noise=fixed.noise + shift * diagonal)
            return lapack.cholesky(_entries(raised)(slice(0, size), slice(0, size)))

        factor, _ = first_that_factors(factored, keys.dtype, size)
        coefficients = jax.lax.custom_linear_solve(
            system.apply, values, lambda _, right: solve_factored(factor, right), symmetric=True
        )
        return gram_product(kernel, query, keys, coefficients)


def _entries(system: KeySystem, gram: Array | None = None) -> block_cholesky.Entries:
    """Blocks of K + Λ, cut out of K where it is given."""
    kernel, keys, noise, mask = system

    def entries(rows: slice, columns: slice) -> Array:
        on_diagonal = rows == columns
        if gram is None:
            block = kernel.gram(keys[rows], None if on_diagonal else keys[columns])
        else:
            block = gram[rows, columns]
        if mask is not None:
            block = jnp.where(mask[rows, None] & mask[None, columns], block, 0.0)
        return block + jnp.diag(noise[rows]) if on_diagonal else block

    return entries
