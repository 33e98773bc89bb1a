"""Stored trials as a table, of trials or of means per cell, and the table as a file: CSV, Parquet
and JSON with all digits, LaTeX and Markdown to read."""

import io
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError
from finetti.core.plain_data import json_number
from finetti.display import Table
from finetti.display.table_text import TableFormat, csv_cell, format_table
from finetti.studies.coordinator import StudyPlan
from finetti.studies.store.store_reader import Row, open_store
from finetti.studies.trials import DONE

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
    plan: StudyPlan, rows: Iterable[Row], details: bool = False, summary: bool = False
) -> "pd.DataFrame":
    """Those of ``rows`` that are trials of the plan, in the order of its grid."""
    found = {row.outcome.trial_id: row for row in rows}
    return make_table(
        (found[each] for each in plan.trial_positions if each in found), details, summary
    )


def store_table(path: str | Path, details: bool = False, summary: bool = False) -> "pd.DataFrame":
    """All trials of a store, whatever study they belong to; see ``make_table``."""
    with open_store(path) as reader:
        return make_table(reader.rows(), details, summary)


LAYOUT = 1
ERROR_DIGITS = 2  # that a standard error is shown with


class Format(StrEnum):
    """What a table can be written as."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"
    LATEX = "latex"
    MARKDOWN = "markdown"


def export_table(table: "pd.DataFrame", form: Format) -> bytes:
    """``table`` in the format ``form``; tables to read have no replicates and empty columns."""
    if form is Format.JSON:
        rows = [{name: _word(v) for name, v in row.items()} for row in table.to_dict("records")]
        document = {"format": LAYOUT, "columns": list(table.columns), "rows": rows}
        return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
    table = _written(table)
    if form is Format.PARQUET:
        for name in too_large(table):
            table[name] = [_as_text(value) for value in table[name]]
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        return buffer.getvalue()
    if form is Format.CSV:
        for name in table.columns:
            if table[name].dtype.kind == "O":
                table[name] = table[name].map(csv_cell)
        return table.rename(columns=csv_cell).to_csv(index=False).encode()
    return f"{format_table(_shown(table), TableFormat(form))}\n".encode()


def _shown(table: "pd.DataFrame") -> Table:
    """For people: without replicates and empty columns, errors with two digits."""
    table = table.dropna(axis="columns", how="all") if len(table) else table
    table = table.drop(columns="replicate", errors="ignore")
    columns = []
    for name in map(str, table.columns):
        gaps = zip(table[name].tolist(), table[name].isna(), strict=True)
        values = [None if gap else value for value, gap in gaps]
        if name.endswith(ERROR_SUFFIX):
            values = [each and float(f"{each:.{ERROR_DIGITS}g}") for each in values]
        columns.append(values)
    return Table("", tuple(map(str, table.columns)), tuple(zip(*columns, strict=True)))


def _word(value: Any) -> Any:
    """JSON has no infinity and no NaN: one is a word, the other (a gap in a column) is null."""
    if isinstance(value, dict):
        return {name: _word(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_word(each) for each in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    value = value.item() if hasattr(value, "item") else value
    if value is None or isinstance(value, bool | int | str):
        return value
    return json_number(value) if isinstance(value, float) else None


def _written(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table with lists, and columns of several types, as text: files have one type a column."""
    table = table.copy()
    for name in table.columns:
        present = {type(value) for value in table[name].dropna()}
        if (len(present) > 1 and not present <= {int, float}) or present & {list, dict}:
            table[name] = [_as_text(value) for value in table[name]]
    return table


def _as_text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(_word(value))


def too_large(table: "pd.DataFrame") -> list[str]:
    """The columns with whole numbers of more than 64 bits, which Parquet keeps as text."""
    return [
        str(name)
        for name in table.columns
        if table[name].dtype == object and any(map(is_large, table[name]))
    ]
