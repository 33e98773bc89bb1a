"""One run: a cohort of one."""

from collections.abc import Callable
from typing import Any

import optax

from finetti.core.errors import FinettiError
from finetti.display.progress import Progress
from finetti.training.cohort import (
    CheckFunction,
    LossFunction,
    Member,
    StreamFunction,
    TrainingRun,
    train_cohort,
)


class DivergedError(FinettiError):
    """A loss was not a finite number; ``run`` is what there was until then."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run.failure)
        self.run = run


def train(
    loss: LossFunction,
    params: Any,
    data: Any = None,
    *,
    key: Any,
    optimizer: optax.GradientTransformation,
    iterations: int = 1000,
    check_every: int = 10,
    check: CheckFunction | None = None,
    stream: StreamFunction | None = None,
    on_change: Callable[[Progress], None] | None = None,
) -> TrainingRun:
    """Train a network or any other tree of parameters; the arguments are :func:`train_cohort`'s.

    Raises DivergedError if the loss stops being a finite number.

    >>> import jax, jax.numpy as jnp, optax
    >>> def loss(weight, batch, key):
    ...     return jnp.sum((weight - batch) ** 2)
    >>> target = jnp.array([1.0, -2.0])
    >>> options = {"optimizer": optax.sgd(0.25), "iterations": 20}
    >>> train(loss, jnp.zeros(2), target, key=jax.random.key(0), **options).params.round(3)
    Array([ 1., -2.], dtype=float32)
    """
    (run,) = train_cohort(
        loss,
        [Member(params, data, key)],
        optimizer=optimizer,
        iterations=iterations,
        check_every=check_every,
        check=check,
        stream=stream,
        on_change=on_change,
    )
    if run.failure is not None:
        raise DivergedError(run)
    return run
