"""Train many runs of equal shape, a fixed number at a time; finished runs are replaced."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from finetti.core.errors import FinettiError, InputError, bad_argument
from finetti.training.train_program import (
    Frozen,
    TrainConfig,
    TrainState,
    get_slot,
    on_device,
    run_steps,
    set_slot,
    stack,
)

LossFunction = Callable[[Any, Any, Any], Any]
StreamFunction = Callable[[Any, Any, Any], Any]


class Member(NamedTuple):
    """One run of a cohort.

    Args:
        params: a tree; its arrays of real numbers are trained, all else is left as it is.
        data: a tree of arrays, of equal shapes in all members, or None.
        key: a JAX random key, from which all randomness of the run follows.
        tag: whatever tells ``check`` who this is.
    """

    params: Any
    data: Any
    key: Any
    tag: Any = None


@dataclass(frozen=True)
class CheckResult:
    """What a check found: whether the run is over, and something to remember."""

    done: bool = False
    record: Any = None


CheckFunction = Callable[[Any, Any, int, np.ndarray], CheckResult]


@dataclass(eq=False)
class TrainingRun:
    """A run that has ended.

    Args:
        tag: of the member.
        params: as trained.
        losses: one per step.
        records: of the checks, in order.
        failure: why it ended before its time; None if it did not fail.
    """

    tag: Any
    params: Any = None
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    records: list[Any] = field(default_factory=list)
    failure: str | None = None

    @property
    def steps(self) -> int:
        """How many steps were made."""
        return len(self.losses)


class DivergedError(FinettiError):
    """A loss was not a finite number; ``run`` is what there was until then."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run.failure)
        self.run = run


def train_cohort(
    loss: LossFunction,
    members: Iterable[Member],
    *,
    optimizer: optax.GradientTransformation,
    iterations: int,
    check_every: int = 10,
    slots: int = 1,
    check: CheckFunction | None = None,
    stream: StreamFunction | None = None,
) -> list[TrainingRun]:
    """Train every member, ``slots`` of them at a time in one compiled program.

    The program makes ``check_every`` steps of all slots under ``vmap``; then the members are
    checked, and who is done, has made all ``iterations`` or has a loss that is not finite leaves
    its slot to the next. A member's numbers do not depend on its company: its step t draws from
    ``fold_in(key, t)``. Members are taken one by one, so that they can be made on demand.

    Args:
        loss: ``loss(params, batch, key)``, a number, of one member.
        members: what to train.
        optimizer: of Optax, or :func:`adamw`.
        iterations: steps of a run that no check ends, a multiple of ``check_every``.
        check_every: steps between two checks.
        slots: runs under way at a time. Worth more than 1 where one run leaves the device idle.
        check: ``check(tag, params, step, losses)`` after every ``check_every`` steps, with the
            losses of these steps.
        stream: ``stream(data, key, step)``, the batch of a step; without it, the data as they are.

    Returns the runs, in the order of the members.

    Pass the same ``loss``, ``optimizer`` and ``stream`` objects again and nothing is compiled
    twice.
    """
    for name, value in (("iterations", iterations), ("check_every", check_every), ("slots", slots)):
        if not (isinstance(value, int) and value >= 1):
            raise bad_argument(name, "train_cohort", "a positive whole number", value)
    if iterations % check_every:
        raise bad_argument(
            "iterations", "train_cohort", f"a multiple of `check_every` ({check_every})", iterations
        )
    if not all(callable(getattr(optimizer, name, None)) for name in ("init", "update")):
        requirement = "an Optax optimizer, such as optax.adam(1e-3) or adamw(1e-3)"
        raise bad_argument("optimizer", "train_cohort", requirement, repr(optimizer))
    config = TrainConfig(loss, stream, optimizer.update, check_every)
    waiting = ((TrainingRun(each.tag), *_split(each, optimizer)) for each in members)
    first = list(itertools.islice(waiting, slots))
    if not first:
        return []
    for each in first[1:]:
        _check_alike(first[0][1:], each[1:])
    runs = [run for run, *_ in first]
    running: list[TrainingRun | None] = [*runs]
    frozen, state = stack([each[1] for each in first]), stack([each[2] for each in first])
    example = first[0][1:]
    del first
    while any(running):
        state, losses = run_steps((config, frozen), state)
        for slot, (run, new) in enumerate(zip(running, np.asarray(losses), strict=True)):
            if run is None:
                continue
            run.losses = np.concatenate([run.losses, new])
            if not _is_over(run, new, frozen, state, slot, iterations, check):
                continue
            run.params = _params(frozen, state, slot)
            running[slot] = None
            if (following := next(waiting, None)) is not None:
                _check_alike(example, following[1:])
                runs.append(following[0])
                running[slot] = following[0]
                frozen, state = set_slot((jnp.asarray(slot), following[1:]), (frozen, state))
    return runs


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
    )
    if run.failure is not None:
        raise DivergedError(run)
    return run


def _is_over(
    run: TrainingRun,
    losses: np.ndarray,
    frozen: Frozen,
    state: TrainState,
    slot: int,
    iterations: int,
    check: CheckFunction | None,
) -> bool:
    """Whether the run has ended, by its own loss, by a check, or by its length."""
    wrong = np.flatnonzero(~np.isfinite(losses))
    if wrong.size:
        step = run.steps - len(losses) + int(wrong[0]) + 1
        run.failure = (
            f"The loss of step {step} is {losses[wrong[0]]}, not a finite number. "
            "Lower the learning rate, or clip the gradient."
        )
        return True
    if check is not None:
        found = check(run.tag, _params(frozen, state, slot), run.steps, losses)
        if found.record is not None:
            run.records.append(found.record)
        if found.done:
            return True
    return run.steps >= iterations


def _params(frozen: Frozen, state: TrainState, slot: int) -> Any:
    params, untrained = get_slot((state.params, frozen.untrained), jnp.asarray(slot))
    return eqx.combine(params, untrained)


def _split(member: Member, optimizer: optax.GradientTransformation) -> tuple[Frozen, TrainState]:
    """A member as what training leaves as it is, and what it changes."""
    params, untrained = eqx.partition(on_device(member.params), eqx.is_inexact_array)
    if not jax.tree.leaves(params):
        raise bad_argument("params", "a member", "a tree with arrays of real numbers", "none")
    data, key = on_device(member.data), on_device(member.key)
    optimizer_state = on_device(optimizer.init(params))
    start = TrainState(params, optimizer_state, jnp.zeros((), jnp.int32))
    return Frozen(untrained, data, key), start


def _check_alike(one: Sequence[Any], other: Sequence[Any]) -> None:
    def shape(leaf: Any) -> Any:
        return (leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf

    first, second = (jax.tree.map(shape, tuple(each)) for each in (one, other))
    if not eqx.tree_equal(first, second):
        raise InputError(
            "The members of a cohort must have the same tree and the same shapes, so that one "
            "program serves them all. Pad their data (with weights of zero), or train them apart."
        )
