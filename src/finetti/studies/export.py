"""Tables of trials as files: CSV, Parquet, JSON, LaTeX."""

import io
import json
import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from finetti.studies.table import is_large

if TYPE_CHECKING:
    import pandas as pd

LAYOUT = 1
LATEX = str.maketrans(
    {
        **{each: f"\\{each}" for each in "&%$#_{}"},
        **{each: f"{{{each}}}" for each in "[*"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
    }
)


class Format(StrEnum):
    """What a table can be written as."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"
    LATEX = "latex"


def export_table(table: "pd.DataFrame", form: Format) -> bytes:
    """``table`` in the format ``form``; LaTeX without replicates and empty columns."""
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
    if form is Format.LATEX:
        table = table.dropna(axis="columns", how="all") if len(table) else table
        table = table.drop(columns="replicate", errors="ignore")
        for name in table.select_dtypes(exclude="number"):
            pairs = zip(table[name], table[name].isna(), strict=True)
            table[name] = ["" if gap else latex_text(str(value)) for value, gap in pairs]
        table.columns = [latex_text(name) for name in table.columns]
        shown = {"na_rep": "", "float_format": "{:.6g}".format}
        return table.to_latex(index=False, escape=False, **shown).encode()
    return table.to_csv(index=False).encode()


def latex_text(text: str) -> str:
    r"""``text`` as LaTeX prints it: on one line, without commands, whatever it begins with.

    A row that begins with ``[`` would be an option of the ``\midrule`` or the row before it.

    >>> print(latex_text("[a_b] 50 %\n<x>"))
    {[}a\_b] 50 \% \textless{}x\textgreater{}
    """
    printable = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(printable.split()).translate(LATEX)


def _word(value: Any) -> Any:
    """JSON has no infinity and no NaN: one is a word, the other (a gap in a column) is null."""
    if isinstance(value, dict):
        return {name: _word(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_word(each) for each in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and not math.isnan(value) else None


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
