"""The optimizer of most Transformers, from Optax's parts."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from finetti.core.errors import bad_argument


def matrices(params: Any) -> Any:
    """A tree that is True at the leaves with two or more axes: weights, not biases or gains.

    >>> matrices({"weight": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    {'bias': False, 'weight': True}
    """
    return jax.tree.map(lambda leaf: jnp.ndim(leaf) >= 2, params)


def adamw(
    learning_rate: float | optax.Schedule = 1e-3,
    *,
    decay: float = 0.0,
    decayed: Any | Callable[[Any], Any] = matrices,
    clip: float | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay on chosen leaves, after a clip of the whole gradient.

    g ← g·min(1, clip/‖g‖);  w ← w − rate·(Adam(g) + decay·w)

    Args:
        learning_rate: a number, or an Optax schedule.
        decay: multiplies the weights themselves, apart from Adam's scaling.
        decayed: which leaves decay: a tree of truth values, or a function from parameters to one.
        clip: the largest norm of the gradient of all leaves together; None leaves it as it is.
        beta1, beta2, epsilon: Adam's own.

    >>> state = adamw(0.1, clip=1.0).init({"w": jnp.ones(3)})

    Reference: Loshchilov and Hutter, Decoupled weight decay regularization (2019).
    """
    if clip is not None and not clip > 0:
        raise bad_argument("clip", "adamw", "a positive number or None", clip)
    rule = optax.adamw(learning_rate, beta1, beta2, epsilon, weight_decay=decay, mask=decayed)
    return rule if clip is None else optax.chain(optax.clip_by_global_norm(clip), rule)
