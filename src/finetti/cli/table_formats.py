"""A table as CSV, LaTeX or Markdown, for a file or a paper."""

import csv
import io
from enum import StrEnum

from finetti.show.card import Table
from finetti.show.numbers import format_value


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
    |---|---|
    | 10 |  |
    | 20 | 1\|2 |
    """
    if form is TableFormat.CSV:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([table.columns, *table.rows])
        return stream.getvalue().rstrip("\n")
    rows = [["" if cell is None else format_value(cell) for cell in row] for row in table.rows]
    if form is TableFormat.MARKDOWN:
        lines = [[cell.replace("|", r"\|") for cell in row] for row in (table.columns, *rows)]
        lines.insert(1, [])
        written = [f"| {' | '.join(line)} |" for line in lines]
        written[1] = "|" + "---|" * len(table.columns)
        return "\n".join(written)
    from finetti.studies.export import latex_text

    head, *body = [
        " & ".join(map(latex_text, row)) + r" \\" for row in (list(table.columns), *rows)
    ]
    begin = rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}"
    return "\n".join(
        [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    )
