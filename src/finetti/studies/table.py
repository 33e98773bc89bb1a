"""Stored trials as a table: parameters, version, replicate, state, metrics; or means per cell."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError
from finetti.studies.outcome import DONE
from finetti.studies.plan import WorkPlan
from finetti.studies.records import Row, open_records

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = ("finetti", "commit", "jax", "device", "host")
OWN = ("version", "replicate", "state", "failure")
OF_CELLS = ("version", "done", "failed")
ERROR_SUFFIX = ".standard_error"
DETAILS: dict[str, Callable[[Row], Any]] = {
    "id": lambda row: row.outcome.trial_id,
    "kind": lambda row: row.cell.kind,
    "fingerprint": lambda row: row.cell.fingerprint,
    "study_seed": lambda row: row.cell.seed,
    "attempts": lambda row: row.attempts,
    "seconds": lambda row: row.outcome.seconds,
    "finished": lambda row: datetime.fromtimestamp(row.outcome.finished, UTC),
    "trace": lambda row: row.outcome.trace,
}


def make_table(rows: Iterable[Row], details: bool = False, summary: bool = False) -> "pd.DataFrame":
    """A data frame with one row per trial, in the order given; with ``summary`` one per cell.

    Without ``details`` it holds nothing that depends on when or where a trial ran, so that tables
    of equal studies are equal. A metric that has the name of a parameter, or of a column of ours,
    is called ``metric.name``, and such a parameter ``parameter.name``; ``attrs["renamed"]`` of the
    frame says which column stands for what.

    A ``summary`` counts the trials of a cell that are done and failed, and has for each metric that
    is a number (truth values are 0 and 1) its mean and standard error, and its count where it has
    gaps.
    """
    import pandas as pd

    if details and summary:
        raise InputError(
            "A summary has no details, which belong to single trials. Ask for one of them."
        )
    rows = list(rows)
    flat = [_flat(row.cell.params) for row in rows]
    params = dict.fromkeys(path for each in flat for path in each)
    metrics = dict.fromkeys(name for row in rows for name in row.outcome.metrics)
    taken: set[str] = set(OF_CELLS if summary else OWN)
    taken |= {*DETAILS, *MADE_BY} if details else set()
    names = {path: _free(".".join(path), "parameter", taken) for path in params}
    measured = {name: _free(name, "metric", taken) for name in metrics}
    columns: dict[str, list[Any]] = {
        **{names[path]: [each.get(path) for each in flat] for path in params},
        "version": [row.cell.code for row in rows],
    }
    values = {measured[name]: [row.outcome.metrics.get(name) for row in rows] for name in metrics}
    if summary:
        columns = _summary(rows, columns, values, taken)
    else:
        columns["replicate"] = [row.replicate for row in rows]
        columns["state"] = [row.outcome.state for row in rows]
        columns |= values
        columns["failure"] = [row.outcome.error for row in rows]
    if details:
        columns |= {name: [told(row) for row in rows] for name, told in DETAILS.items()}
        columns |= {each: [row.outcome.provenance.get(each) for row in rows] for each in MADE_BY}
    table = pd.DataFrame({name: _column(each) for name, each in columns.items()})
    meant = {new: ".".join(path) for path, new in names.items()}
    meant |= {new: name for name, new in measured.items()}
    table.attrs["renamed"] = {new: old for new, old in meant.items() if new != old}
    return table


def _summary(
    rows: list[Row], cells: dict[str, list[Any]], values: dict[str, list[Any]], taken: set[str]
) -> dict[str, list[Any]]:
    places: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        places.setdefault(row.cell.content, []).append(index)
    groups = list(places.values())
    columns = {name: [each[group[0]] for group in groups] for name, each in cells.items()}
    done = [sum(rows[i].outcome.state == DONE for i in group) for group in groups]
    failed = [len(group) - count for group, count in zip(groups, done, strict=True)]
    columns |= {"done": done, "failed": failed}
    for name, measured in values.items():
        if any(isinstance(value, str) for value in measured):
            continue
        found = [[measured[i] for i in group if measured[i] is not None] for group in groups]
        parts: dict[str, list[Any]] = {
            ".mean": list(map(_mean, found)),
            ERROR_SUFFIX: list(map(_error, found)),
        }
        if (counts := list(map(len, found))) != done:
            parts[".count"] = counts
        for part, column in parts.items():
            columns[_free(f"{name}{part}", "metric", taken)] = column
    return columns


def _mean(values: list[Any]) -> float | None:
    """The mean, as exact as floats are; None of nothing, or of infinities of both signs."""
    try:
        return statistics.fmean(values)
    except (OverflowError, ValueError):
        return None


def _error(values: list[Any]) -> float | None:
    """√(Σ(x − x̄)²/(n(n − 1))); None for fewer than two, or infinite ones."""
    mean, n = _mean(values), len(values)
    if mean is None or n < 2 or math.isinf(mean):
        return None
    return math.hypot(*(value - mean for value in values)) / math.sqrt(n * (n - 1))


def _free(name: str, prefix: str, taken: set[str]) -> str:
    """``name``, with as many prefixes as make it unlike those that are taken."""
    while name in taken:
        name = f"{prefix}.{name}"
    taken.add(name)
    return name


def _flat(params: Mapping[str, Any], above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Tables inside of parameters, by the path of each value."""
    flat: dict[tuple[str, ...], Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, (*above, name))
        else:
            flat[(*above, name)] = value
    return flat


def _column(values: list[Any]) -> Any:
    """Whole numbers and truth values stay what they are beside gaps."""
    import pandas as pd

    present = {type(value) for value in values if value is not None}
    if present == {int} and any(map(is_large, values)):
        return pd.array(values, dtype="object")
    if None in values and present in ({int}, {bool}):
        return pd.array(values, dtype="Int64" if present == {int} else "boolean")
    return values


def is_large(value: Any) -> bool:
    """Whether a value is a whole number of more than 64 bits."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def plan_table(
    plan: WorkPlan, rows: Iterable[Row], details: bool = False, summary: bool = False
) -> "pd.DataFrame":
    """Those of ``rows`` that are trials of the plan, in the order of its grid."""
    found = {row.outcome.trial_id: row for row in rows}
    return make_table((found[each] for each in plan.places if each in found), details, summary)


def store_table(path: str | Path, details: bool = False, summary: bool = False) -> "pd.DataFrame":
    """All trials of a store, whatever study they belong to; see ``make_table``."""
    with open_records(path) as records:
        return make_table(records.rows(), details, summary)
