"""Tables of trials: what they must hold, and the success of their cells."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from finetti.core.errors import InputError, bad_argument
from finetti.core.statistics.intervals import wilson_interval

Frame = Any  # a pandas DataFrame, whose declared types refuse half of what it can do
SIZES = ("context_length", "n_samples")
# Other columns that make another problem or another learner: averaging over them means nothing.
SETTINGS = (
    "function", "sparsity", "bit_probability", "label_noise", "learner", "iterations", "online",
    "batch_size", "n_validation", "success_accuracy", "ambiguous", "version", "learner_code",
)  # fmt: skip
OF_LEARNERS = ("options", "settings")  # and all columns that begin so


def read_trials(table: Frame, by: Sequence[str], owner: str) -> tuple[Frame, tuple[str, ...]]:
    """The trials that count, with ``success`` 0 or 1, and what a reader should know of the rest.

    A trial without an outcome (it crashed, or ran out of time) is left out, and said.
    """
    absent = [name for name in (*by, *SIZES, "success") if name not in table]
    if absent:
        wanted = f"one row per trial, with a column {absent[0]}"
        raise bad_argument("table", owner, wanted, f"the columns {', '.join(map(str, table))}")
    lost = table["success"].isna()
    notes = []
    if lost.any():
        notes.append(f"{lost.sum()} of {len(table)} trials have no outcome and are left out.")
    trials = table[~lost]
    outcomes: Frame = pd.to_numeric(trials["success"])
    trials = trials.assign(success=outcomes.astype(float))
    if trials.empty:
        raise bad_argument("table", owner, "at least one trial with an outcome", "none")
    if not trials["success"].isin((0.0, 1.0)).all():
        got = trials["success"][~trials["success"].isin((0.0, 1.0))].iloc[0]
        raise bad_argument("table", owner, "a table whose success is 0 or 1 in every trial", got)
    if trials["n_samples"].isna().any():
        advice = "Trials online have none: see `transition_times`."
        wanted = "a table with n_samples in every trial"
        raise bad_argument("table", owner, wanted, "trials without", advice)
    for name in SIZES:
        if not (trials[name] >= 1).all():
            raise bad_argument("table", owner, f"{name} of at least 1", trials[name].min())
    _refuse_mixtures(trials, by, owner)
    return trials, tuple(notes)


def _refuse_mixtures(trials: Frame, by: Sequence[str], owner: str) -> None:
    for name in map(str, trials.columns):
        if name in by or not (name in SETTINGS or name.startswith(OF_LEARNERS)):
            continue
        texts = trials[name].map(repr)
        counts = texts.groupby([trials[each] for each in by]).nunique() if by else texts.nunique()
        if (counts > 1).any() if by else counts > 1:
            values = ", ".join(sorted(texts.unique())[:4])
            raise InputError(
                f"The table of {owner} mixes trials of different {name}: {values}. Select one of "
                f"them, or give by=({', '.join(repr(each) for each in (*by, name))})."
            )


def iterate_groups(trials: Frame, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Frame]]:
    """The values of ``by`` and their trials; one group, (), if ``by`` is empty."""
    if not by:
        yield (), trials
        return
    for key, group in trials.groupby(list(by), sort=True, dropna=False):
        yield (key if isinstance(key, tuple) else (key,)), group


def count_cells(trials: Frame, by: Sequence[str], confidence: float = 0.95) -> Frame:
    """Trials, successes and rate of every cell, with Wilson's interval.

    >>> table = {"context_length": [10] * 4, "n_samples": [5, 5, 9, 9], "success": [0, 1, 1, 1]}
    >>> count_cells(pd.DataFrame(table), ()).round(2).to_dict("records")[0]
    {'context_length': 10, 'n_samples': 5, 'trials': 2, 'successes': 1, 'rate': 0.5, 'low': 0.09, \
'high': 0.91}
    """
    groups = trials.groupby([*by, *SIZES], sort=True, dropna=False)["success"]
    cells = groups.agg(trials="count", successes="sum").reset_index()
    cells = cells.astype(dict.fromkeys((*SIZES, "trials", "successes"), int))
    cells["rate"] = cells["successes"] / cells["trials"]
    interval = wilson_interval(cells["successes"], cells["trials"], confidence)
    return cells.assign(low=interval.low, high=interval.high)
