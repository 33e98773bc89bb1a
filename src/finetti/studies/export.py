"""Tables of trials as files: CSV, Parquet and JSON with all digits, LaTeX and Markdown to read."""

import io
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from finetti.core.numbers import json_number
from finetti.show import Table
from finetti.show.table_formats import TableFormat, csv_cell, format_table
from finetti.studies.table import ERROR_SUFFIX, is_large

if TYPE_CHECKING:
    import pandas as pd

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
