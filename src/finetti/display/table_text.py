"""A table as CSV, LaTeX or Markdown, for a file or a paper."""

import csv
import html
import io
from enum import StrEnum
from typing import Any

from finetti.display.card import Table
from finetti.display.formatting import format_value
from finetti.display.terminal import is_number, is_numeric

FORMULA = ("=", "+", "-", "@")  # what a formula begins with
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
        "∞": r"$\infty$",
    }
)


class TableFormat(StrEnum):
    """How a table is written."""

    CSV = "csv"
    LATEX = "latex"
    MARKDOWN = "markdown"


def format_table(table: Table, form: TableFormat) -> str:
    r"""``table`` without its title; CSV keeps all digits, and empty cells stay empty.

    >>> table = Table("", ("n", "S_1"), ((10, None), (20, "1|2")))
    >>> print(format_table(table, TableFormat.MARKDOWN))
    | n | S_1 |
    |--:|---|
    | 10 |  |
    | 20 | 1\|2 |
    """
    if form is TableFormat.CSV:
        stream = io.StringIO()
        rows = ([csv_cell(each) for each in row] for row in (table.columns, *table.rows))
        csv.writer(stream, lineterminator="\n").writerows(rows)
        return stream.getvalue().rstrip("\n")
    rows = (table.columns, *table.rows)
    right = [is_numeric(table, index) for index in range(len(table.columns))]
    if form is TableFormat.MARKDOWN:
        head, *body = [f"| {' | '.join(map(_markdown_cell, row))} |" for row in rows]
        return "\n".join([head, f"|{''.join('--:|' if r else '---|' for r in right)}", *body])
    head, *body = [rf"{' & '.join(map(_latex_cell, row))} \\" for row in rows]
    begin = rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in right)}}}"
    return "\n".join(
        [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    )


def csv_cell(value: Any) -> Any:
    """Return ``value``, with a quote before text that spreadsheets would run as a formula.

    >>> [csv_cell(each) for each in ("=1+2", "-x", "-1.5", -1.5, "a=b")]
    ["'=1+2", "'-x", '-1.5', -1.5, 'a=b']
    """
    if not (isinstance(value, str) and value.lstrip().startswith(FORMULA)):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def latex_text(text: str) -> str:
    r"""``text`` as LaTeX prints it: on one line, without commands, whatever it begins with.

    A row that begins with ``[`` would be an option of the ``\midrule`` or the row before it.

    >>> print(latex_text("[a_b] 50 %\n<x>"))
    {[}a\_b] 50 \% \textless{}x\textgreater{}
    """
    return _one_line(text).translate(LATEX)


def _latex_cell(value: Any) -> str:
    """Numbers as mathematics: a minus is no hyphen, and 2e-9 is 2·10⁻⁹."""
    text = "" if value is None else format_value(value)
    if not (is_number(value) and (text.startswith("-") or "e" in text)):
        return latex_text(text)
    mantissa, _, exponent = text.replace("∞", r"\infty").partition("e")
    power = rf" \cdot 10^{{{exponent}}}" if exponent else ""
    return f"${mantissa}{power}$"


def _markdown_cell(value: Any) -> str:
    text = _one_line("" if value is None else format_value(value))
    # No HTML, no link and no picture stands in a name; a list stays a list.
    return html.escape(text, quote=False).replace("](", r"]\(").replace("|", r"\|")


def _one_line(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
