"""Softmax: how far the weights move with the scores."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from finetti.attention.lipschitz.edelman_constants import softmax_constant
from finetti.attention.lipschitz.result import Perturbation
from finetti.attention.networks.weights import alike, as_weights
from finetti.core.forms import Form


def softmax_perturbation(
    scores: ArrayLike, other: ArrayLike, form: Form = "derived"
) -> Perturbation:
    """‖softmax(θ) − softmax(θ')‖₁ ≤ C‖θ − θ'‖_∞, C = 1, printed 2     Corollary A.7, edelman2022

    Args:
        scores, other: θ and θ', shape (T,).
        form: "derived" or "printed".

    >>> import jax.numpy as jnp
    >>> float(softmax_perturbation(jnp.zeros(2), jnp.array([0.01, -0.01])).ratio) > 0.999
    True
    """
    owner = "softmax_perturbation"
    scores = as_weights(scores, "scores", owner, "(T,)", (None,))
    other = as_weights(other, "other", owner, "(T,)", scores.shape)
    scores, other = alike(scores, other)
    moved = jnp.sum(jnp.abs(jax.nn.softmax(scores) - jax.nn.softmax(other)))
    bound = softmax_constant(form) * jnp.max(jnp.abs(scores - other))
    return Perturbation(moved, bound, "Corollary A.7, edelman2022", form)
