"""Many runs of one training in few slots: who ends early makes room for the next."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from finetti.core.errors import InputError, bad_argument
from finetti.display.progress import Progress
from finetti.training.program import Held, Moving, Rules, advance, on_device, put, stack, take

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
    on_change: Callable[[Progress], None] | None = None,
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
        on_change: is told about the progress after every ``check_every`` steps.

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
    rules = Rules(loss, stream, optimizer.update, check_every)
    waiting = ((TrainingRun(each.tag), *_split(each, optimizer)) for each in members)
    first = list(itertools.islice(waiting, slots))
    if not first:
        return []
    for each in first[1:]:
        _check_alike(first[0][1:], each[1:])
    runs = [run for run, *_ in first]
    running: list[TrainingRun | None] = [*runs]
    held, moving = stack([each[1] for each in first]), stack([each[2] for each in first])
    example = first[0][1:]
    del first
    while any(running):
        moving, losses = advance((rules, held), moving)
        for slot, (run, new) in enumerate(zip(running, np.asarray(losses), strict=True)):
            if run is None:
                continue
            run.losses = np.concatenate([run.losses, new])
            if not _is_over(run, new, held, moving, slot, iterations, check):
                continue
            run.params = _params(held, moving, slot)
            running[slot] = None
            if (following := next(waiting, None)) is not None:
                _check_alike(example, following[1:])
                runs.append(following[0])
                running[slot] = following[0]
                held, moving = put((jnp.asarray(slot), following[1:]), (held, moving))
        if on_change is not None:
            on_change(_progress(runs, running, iterations))
    return runs


def _is_over(
    run: TrainingRun,
    losses: np.ndarray,
    held: Held,
    moving: Moving,
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
        found = check(run.tag, _params(held, moving, slot), run.steps, losses)
        if found.record is not None:
            run.records.append(found.record)
        if found.done:
            return True
    return run.steps >= iterations


def _params(held: Held, moving: Moving, slot: int) -> Any:
    params, untrained = take((moving.params, held.untrained), jnp.asarray(slot))
    return eqx.combine(params, untrained)


def _split(member: Member, optimizer: optax.GradientTransformation) -> tuple[Held, Moving]:
    """A member as what training leaves as it is, and what it changes."""
    params, untrained = eqx.partition(on_device(member.params), eqx.is_inexact_array)
    if not jax.tree.leaves(params):
        raise bad_argument("params", "a member", "a tree with arrays of real numbers", "none")
    data, key = on_device(member.data), on_device(member.key)
    state = on_device(optimizer.init(params))
    return Held(untrained, data, key), Moving(params, state, jnp.zeros((), jnp.int32))


def _check_alike(one: Sequence[Any], other: Sequence[Any]) -> None:
    def shape(leaf: Any) -> Any:
        return (leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf

    first, second = (jax.tree.map(shape, tuple(each)) for each in (one, other))
    if not eqx.tree_equal(first, second):
        raise InputError(
            "The members of a cohort must have the same tree and the same shapes, so that one "
            "program serves them all. Pad their data (with weights of zero), or train them apart."
        )


def _progress(
    runs: list[TrainingRun], running: list[TrainingRun | None], iterations: int
) -> Progress:
    steps = [run.steps for run in running if run is not None]
    failed = sum(run.failure is not None for run in runs)
    activity = f"step {max(steps)} of {iterations}" if steps else "done"
    return Progress(len(runs) - len(steps), failed, activity)
