"""Stored trials as a table: parameters, replicate, state, metrics."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.studies.records import Row, open_records

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = ("finetti", "commit", "jax", "device", "host")
OWN = ("replicate", "state", "failure")
DETAILS = ("id", "kind", "version", "study_seed", "attempts", "seconds", "finished", "trace")


def make_table(rows: Iterable[Row], details: bool = False) -> "pd.DataFrame":
    """A data frame with one row per trial, in the order given.

    Without ``details`` it holds nothing that depends on when or where a trial ran, so that tables
    of equal studies are equal. A metric that has the name of a parameter, or of a column of ours,
    is called ``metric.name``, and such a parameter ``parameter.name``; ``attrs["renamed"]`` of the
    frame says which column stands for what.
    """
    import pandas as pd

    params: dict[tuple[str, ...], None] = {}
    metrics: dict[str, None] = {}
    content = []
    for row in rows:
        flat = _flat(row.cell.params)
        params.update(dict.fromkeys(flat))
        metrics.update(dict.fromkeys(row.outcome.metrics))
        content.append((row, flat))
    taken = {*OWN, *(DETAILS + MADE_BY if details else ())}
    names = {path: _free(".".join(path), "parameter", taken) for path in params}
    measured = {name: _free(name, "metric", taken) for name in metrics}
    columns: dict[str, list[Any]] = {
        **{names[path]: [flat.get(path) for _, flat in content] for path in params},
        "replicate": [row.replicate for row, _ in content],
        "state": [row.outcome.state for row, _ in content],
        **{
            measured[name]: [row.outcome.metrics.get(name) for row, _ in content]
            for name in metrics
        },
        "failure": [row.outcome.error for row, _ in content],
    }
    if details:
        described = [_details(row) for row, _ in content]
        columns |= {name: [each[name] for each in described] for name in DETAILS + MADE_BY}
    table = pd.DataFrame({name: _column(values) for name, values in columns.items()})
    meant = [(names[path], ".".join(path)) for path in params]
    meant += [(measured[name], name) for name in metrics]
    table.attrs["renamed"] = {new: old for new, old in meant if new != old}
    return table


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


def _details(row: Row) -> dict[str, Any]:
    outcome, cell = row.outcome, row.cell
    return {
        "id": outcome.trial_id,
        "kind": cell.kind,
        "version": cell.version,
        "study_seed": cell.seed,
        "attempts": row.attempts,
        "seconds": outcome.seconds,
        "finished": datetime.fromtimestamp(outcome.finished, UTC),
        "trace": outcome.trace,
        **{name: outcome.provenance.get(name) for name in MADE_BY},
    }


def _column(values: list[Any]) -> Any:
    """Whole numbers and truth values stay what they are beside gaps."""
    import pandas as pd

    present = {type(value) for value in values if value is not None}
    if None in values and present == {int}:
        return pd.array(values, dtype="Int64" if _fits(values) else "object")
    if None in values and present == {bool}:
        return pd.array(values, dtype="boolean")
    if present <= {int} and not _fits(values):
        return pd.array(values, dtype="object")
    return values


def _fits(values: list[Any]) -> bool:
    return all(value is None or -(2**63) <= value < 2**63 for value in values)


def store_table(path: str | Path, details: bool = False) -> "pd.DataFrame":
    """All trials of a store, whatever study they belong to."""
    with open_records(path) as records:
        return make_table(records.rows(), details)
