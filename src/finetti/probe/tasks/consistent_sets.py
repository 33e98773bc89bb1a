"""Does a sample say where the hidden bits are? The hidden functions that fit it, all of them."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import as_rows, binary_array
from finetti.boolean.language.simplify import find_profile
from finetti.core.arguments import as_whole
from finetti.core.errors import InputError, bad_argument
from finetti.probe.tasks.hidden_rule import HiddenRule, HiddenTask
from finetti.probe.tasks.parity_sets import meet_in_the_middle
from finetti.probe.tasks.set_search import (
    Integers,
    NotCountedError,
    PackedSample,
    SearchState,
    search,
)
from finetti.probe.tasks.symmetries import arrangements

MAX_VISITS = 10**8  # partial sets looked at before a count is given up: a minute at most
MAX_TABLE_BITS = 16  # of a symmetric function that is searched for
MAX_ORDERED_BITS = 7  # of another one: its orders are gone through one by one
MAX_LISTED = 10**6  # functions that exhaustive search starts from
ENOUGH_FOR_SEARCH = 10**7  # sets, up to which parities need no method of their own


@dataclass(frozen=True)
class ConsistentSets:
    """The hidden functions that fit a sample.

    For a symmetric rule these are index sets; otherwise index sets with an order of the bits, each
    different function once.

    Attributes:
        count: how many there are; None if they were not counted.
        at_least: how many were found.
        indices: positions in the order of the function's bits, shape (k, s); k ≤ ``limit``.
        reason: why they were not counted.
    """

    count: int | None
    at_least: int
    indices: Integers
    reason: str = ""

    @property
    def identified(self) -> bool | None:
        """Whether only one function fits; None if it is not known."""
        return None if self.count is None and self.at_least < 2 else self.count == 1


def consistent_sets(
    rule: HiddenRule,
    bits: Any,
    labels: Any,
    *,
    max_errors: int = 0,
    limit: int = 1000,
    max_visits: int = MAX_VISITS,
) -> ConsistentSets:
    """All hidden functions of a rule that get at most ``max_errors`` labels wrong.

    Exact. Positions are chosen one by one, 64 samples at a time, and a choice is left as soon as it
    has forced too many errors (AND at T = 400, s = 3: milliseconds). Parities of many sets meet in
    the middle.

    Args:
        rule: the family.
        bits: shape (m, T).
        labels: shape (m,).
        max_errors: labels that may be wrong; 0 for clean labels.
        limit: the most functions that are listed. All are counted.
        max_visits: partial sets looked at before the count is given up (a step over few counts as
            a thousand).

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> rule = make_rule("and", 2, 4)
    >>> found = consistent_sets(rule, [[1, 1, 1, 0], [1, 0, 0, 1]], [1, 0])
    >>> found.count, found.indices.tolist()
    (3, [[0, 1], [0, 2], [1, 2]])
    """
    rows, marks = _as_sample(rule, bits, labels, "consistent_sets")
    for name, value in (("max_errors", max_errors), ("limit", limit)):
        if value < 0:
            raise bad_argument(name, "consistent_sets", "at least 0", value)
    state, reason = SearchState(max_errors, limit, max_visits), ""
    try:
        if not _found_parities(rule, rows, marks, state):
            _search_all_orders(rule, PackedSample.of(rows, marks), state)
    except NotCountedError as error:
        reason = f"not counted: {error}"
    indices = np.concatenate([np.zeros((0, rule.sparsity), np.int64), *state.sets])
    return ConsistentSets(None if reason else state.count, state.count, indices, reason)


def ambiguous_sets(
    task: HiddenTask, bits: Any, labels: Any, *, limit: int = 0, max_visits: int = MAX_VISITS
) -> ConsistentSets:
    """The hidden functions that fit a sample at least as well as the true one does.

    Of clean labels these are the consistent ones. Of noisy labels: those that get no more labels
    wrong than the true one, which itself is wrong where the label was flipped.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> task = make_rule("and", 3, 400).draw(np.random.default_rng(0))
    >>> for m in (40, 60, 100):
    ...     sample = task.sample(np.random.default_rng(1), m)
    ...     print(m, ambiguous_sets(task, *sample).count)
    40 2
    60 1
    100 1
    """
    rows, marks = _as_sample(task.rule, bits, labels, "ambiguous_sets")
    max_errors = int((task.labels(rows) != marks).sum())
    return consistent_sets(
        task.rule, rows, marks, max_errors=max_errors, limit=limit, max_visits=max_visits
    )


def best_set(
    rule: HiddenRule, bits: Any, labels: Any, *, max_visits: int = MAX_VISITS
) -> tuple[int, ...]:
    """The positions, in the order of the function's bits, that get the fewest labels wrong.

    Of several the first one found is returned: since the hidden positions are uniform, that is the
    true one with probability one over their number.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> task = make_rule("and", 3, 400).draw(np.random.default_rng(0))
    >>> best_set(task.rule, *task.sample(np.random.default_rng(1), 100)) == task.indices
    True
    """
    rows, marks = _as_sample(rule, bits, labels, "best_set")

    def found(max_errors: int) -> ConsistentSets:
        return consistent_sets(
            rule, rows, marks, max_errors=max_errors, limit=1, max_visits=max_visits
        )

    def exists(max_errors: int) -> bool:
        fitting = found(max_errors)
        if not len(fitting.indices) and fitting.count != 0:
            reason = fitting.reason or f"{fitting.count} sets fit, too many to look at"
            raise InputError(
                f"The best positions of {rule.name} cannot be searched for: {reason}. "
                "Take a smaller context or fewer hidden bits, or raise `max_visits`."
            )
        return len(fitting.indices) > 0

    high = 0
    while not exists(high):
        high = 2 * high + 1
    low = (high + 1) // 2
    fewest = bisect_left(range(high), True, low, key=exists)
    return tuple(found(fewest).indices[0].tolist())


def exhaustive_success(
    rule: HiddenRule, n_samples: Iterable[int], n_trials: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """How often exhaustive search finds the hidden function: 1/(number of consistent ones), since
    it is as likely to be any of them. Shape (n_trials, len(n_samples)); take the mean over trials.

    Args:
        rule: the family; without label noise.
        n_samples: increasing; samples are added one at a time to those of the smallest, at which
            the consistent functions must be few enough to list.
        n_trials: independent tasks and samples.
        rng: source of randomness.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> rule = make_rule("and", 3, 100)
    >>> exhaustive_success(rule, [30, 60], 50, np.random.default_rng(0)).mean(axis=0).round(1)
    array([0.4, 1. ])
    """
    owner = "exhaustive_success"
    sizes = [as_whole(each, "n_samples", owner) for each in n_samples]
    if not sizes or sizes != sorted(sizes):
        raise bad_argument("n_samples", owner, "increasing numbers of samples", sizes)
    if rule.label_noise:
        raise bad_argument("rule", owner, "without label noise", f"noise {rule.label_noise}")
    return np.array([_trial(rule, sizes, rng) for _ in range(n_trials)])


def _trial(rule: HiddenRule, sizes: list[int], rng: np.random.Generator) -> list[float]:
    bits, labels = rule.draw(rng).sample(rng, sizes[-1])
    found = consistent_sets(rule, bits[: sizes[0]], labels[: sizes[0]], limit=MAX_LISTED)
    if found.count != len(found.indices):
        why = found.reason or f"{found.count} functions fit {sizes[0]} samples, too many to list"
        raise InputError(f"Exhaustive search for {rule.name}: {why}. Begin with more samples.")
    alive, counts = found.indices, [len(found.indices)]
    for row, label in zip(bits[sizes[0] :], labels[sizes[0] :], strict=True):
        if len(alive) > 1:
            alive = alive[rule.function.evaluate(row[alive]) == label]
        counts.append(len(alive))
    return [1 / counts[size - sizes[0]] for size in sizes]


def _search_all_orders(rule: HiddenRule, sample: PackedSample, state: SearchState) -> None:
    symmetric = find_profile(rule.function) is not None
    most = MAX_TABLE_BITS if symmetric else MAX_ORDERED_BITS
    if rule.sparsity > most:
        raise NotCountedError(f"the function has more than {most} bits")
    for order, table in arrangements(rule.function).items():
        search(table, sample, state, order)


def _found_parities(
    rule: HiddenRule, rows: NDArray[np.uint8], marks: NDArray[np.uint8], state: SearchState
) -> bool:
    """Whether the rule is a parity with so many sets that the search of its own was taken."""
    s, profile = rule.sparsity, find_profile(rule.function)
    is_parity = profile is not None and s >= 2 and bool((np.diff(profile) != 0).all())
    if not is_parity or state.max_errors or comb(rule.context_length, s) <= ENOUGH_FOR_SEARCH:
        return False
    assert profile is not None
    marks = marks ^ np.uint8(profile[0])  # a negated parity
    sample = PackedSample.of(rows, marks)
    meet_in_the_middle(sample.columns, sample.labels, s, state)
    return True


def _as_sample(
    rule: HiddenRule, bits: Any, labels: Any, owner: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rows = as_rows(bits, rule.context_length, owner)
    marks = binary_array(labels, owner)
    if rows.ndim != 2 or not len(rows) or marks.shape != rows.shape[:1]:
        requirement = f"one label per row of bits, of which there are {len(rows)}, at least one"
        raise bad_argument("labels", owner, requirement, f"shape {marks.shape}")
    return rows.astype(np.uint8), marks.astype(np.uint8)
