"""The marginal likelihood of CME attention's Gaussian process."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.cme import system as linear
from finetti.attention.cme.route import Ridge, masked_rows
from finetti.attention.contexts import ContextArrays
from finetti.core.solves import gaussian_log_density
from finetti.kernels.base import Kernel


def log_likelihood(kernel: Kernel, ridge: Ridge, context: ContextArrays) -> Float[Array, ""]:
    """Σ_j log N(v_j; 0, K + λI) over the unmasked keys of one context."""
    mask = context.mask
    system = linear.build(kernel, context.keys, mask, ridge.of(context))
    values = masked_rows(context.values, mask)
    samples, jacobian = values, 0.0
    if system.log_scale is not None:
        # N(v; 0, DAD) = N(D⁻¹v; 0, A) / |D|
        samples = values * jnp.exp(-system.log_scale)[:, None]
        scales = system.log_scale if mask is None else jnp.where(mask, system.log_scale, 0.0)
        jacobian = jnp.sum(scales)
    dimension = values.shape[1]
    density = gaussian_log_density(system.matrix, samples) - dimension * jacobian
    if mask is not None:
        # A masked key contributed N(0; 0, 1) per coordinate; take it out again.
        extra = jnp.sum(~mask).astype(values.dtype)
        density = density + 0.5 * dimension * extra * jnp.log(2 * jnp.pi).astype(values.dtype)
    return density
