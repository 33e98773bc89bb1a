"""A card as text, for terminals and logs (Rich)."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from finetti.display.card import Card, Table
from finetti.display.column_widths import fit_columns
from finetti.display.formatting import format_value


def is_number(cell: Any) -> bool:
    """Whether a cell holds a number of any kind."""
    return not isinstance(cell, bool | str) and hasattr(cell, "__float__")


def is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds numbers (and perhaps gaps), and so is aligned at the right."""
    cells = [row[column] for row in table.rows if row[column] is not None]
    return bool(cells) and all(map(is_number, cells))


@final
@dataclass(frozen=True)
class FittedTable:
    """What a Rich console prints for a table. Content is text, never markup: brackets in a title
    stay brackets."""

    table: Table

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = self.table
        texts = [
            (name, *(format_value(row[index]) for row in table.rows))
            for index, name in enumerate(table.columns)
        ]
        title = Text(table.title, style="bold") if table.title else None
        for part in fit_columns(texts, options.max_width):
            shown = RichTable(
                title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
            )
            title = None  # of all parts
            for index, width in part.items():
                justify = "right" if is_numeric(table, index) else "left"
                name = Text(table.columns[index])
                shown.add_column(name, justify=justify, overflow="fold", width=width)
            for row in zip(*(texts[index][1:] for index in part), strict=True):
                shown.add_row(*map(Text, row))
            yield shown


def renderable(card: Card) -> Any:
    """What a Rich console prints for ``card``."""
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    parts: list[Any] = [Text(card.title, style="bold")]
    if card.fields:
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in card.fields:
            grid.add_row(Text(name), Text(format_value(value)))
        parts.append(grid)
    parts += [FittedTable(table) for table in card.tables]
    parts += [Text(note, style="italic") for note in card.notes]
    return Group(*parts)


def to_text(card: Card, width: int | None = None, color: bool = False) -> str:
    """``card`` as text, as wide as the terminal (or ``COLUMNS``) unless ``width`` is given.

    ``color=True`` adds the terminal's color codes, unless ``NO_COLOR`` is set.
    """
    from finetti.display.clean_console import CleanConsole

    console = CleanConsole(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        force_jupyter=False,
    )
    with console.capture() as capture:
        console.print(renderable(card))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
