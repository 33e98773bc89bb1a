"""One description of an object, from which its text and its HTML are both made."""

from dataclasses import dataclass
from typing import Any

from finetti.core.errors import bad_argument


@dataclass(frozen=True)
class Table:
    """Rows under named columns. Cells are text, numbers, truth values, or None (an empty cell)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        for row in self.rows:
            if len(row) != len(self.columns):
                raise bad_argument(
                    "rows", "Table", f"rows of {len(self.columns)} cells", f"{len(row)} cells"
                )


@dataclass(frozen=True)
class Card:
    """What an object says about itself: a title, named fields, tables, and notes."""

    title: str
    fields: tuple[tuple[str, Any], ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple((name, value) for name, value in self.fields))
        object.__setattr__(self, "tables", tuple(self.tables))
        object.__setattr__(self, "notes", tuple(self.notes))
