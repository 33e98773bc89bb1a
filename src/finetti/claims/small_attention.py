"""An attention network of eight numbers, smooth and bounded by 1, and its stationary points."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from finetti import risk

WIDTH = 2.0  # Θ = [−2, 2]⁸


class SmallAttention(eqx.Module):
    """tanh(w·Σ_ℓ softmax_ℓ(q⟨k, x_ℓ⟩) tanh(⟨v, x_ℓ⟩ + b) + o) with θ = (q, k, v, b, w, o)."""

    theta: Any

    def __call__(self, tokens: Any, mask_token: Any) -> Any:
        """One number per sequence."""
        theta = self.theta
        weights = jax.nn.softmax(theta[0] * (tokens @ theta[1:3]), axis=-1)
        read = jnp.sum(weights * jnp.tanh(tokens @ theta[3:5] + theta[5]), axis=-1)
        return jnp.tanh(theta[6] * read + theta[7])[:, None]


@jax.jit
def _risk(theta: Any, tokens: Any, target: Any) -> Any:
    def mean(theta: Any) -> Any:
        return jnp.mean((target - SmallAttention(theta)(tokens, None)) ** 2)

    return jax.value_and_grad(mean)(theta)


@jax.jit
def outputs(theta: Any, tokens: Any) -> Any:
    """f_θ of every sequence, (n, 1)."""
    return SmallAttention(theta)(tokens, None)


def stationary(tokens: np.ndarray, target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """A stationary point of the empirical risk over Θ, (5.12), by L-BFGS-B."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        found, slope = _risk(theta, tokens, target)
        return float(found), np.asarray(slope)

    bounds = [(-WIDTH, WIDTH)] * len(start)
    for _ in range(4):  # a line search may fail, and is fine again without memory
        start = risk.minimize_smooth(value, start, bounds, iterations=400, ftol=1e-15, gtol=1e-8)
    return start


class Parabola(eqx.Module):
    """1 − θ², which has no derivative at 0."""

    theta: Any

    def __call__(self, tokens: Any, mask_token: Any) -> Any:
        """The same for every sequence."""
        return jnp.broadcast_to(1 - self.theta**2, (len(tokens), 1))
