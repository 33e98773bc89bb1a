"""A page of sections with charts and tables: one HTML file that works offline and prints well."""

from dataclasses import dataclass
from typing import Any

from finetti.display.card import Table
from finetti.display.charts import Chart
from finetti.display.frame import Drawn, fill_frame, page_environment, table_parts


@dataclass(frozen=True)
class Figure:
    """A chart, the sentences below it, and the name of its file where it is written by itself."""

    chart: Chart
    caption: str = ""
    name: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a document, in the order it is shown: paragraphs, figures, tables, small notes."""

    title: str
    text: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """A page.

    Args:
        title: what was found, in one line.
        eyebrow: the line above the title.
        summary: paragraphs below it.
        warnings: what the reader must know first, on colored paper.
        sections: the content.
        command: what makes the page again.
        facts: names and values at the end, as versions and the machine.
    """

    title: str
    eyebrow: str = "Finetti · the statistics of attention"
    summary: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    command: str = ""
    facts: tuple[tuple[str, Any], ...] = ()

    def render(self) -> str:
        """The page as HTML; all texts are escaped."""
        drawn = Drawn()
        sections = [
            {
                "title": each.title,
                "text": each.text,
                "charts": [drawn.add(f.chart, each.title, f.caption) for f in each.figures],
                "tables": [table_parts(table) for table in each.tables],
                "notes": each.notes,
            }
            for each in self.sections
        ]
        return fill_frame(
            page_environment(),
            "document.html.jinja",
            drawn,
            {"charts": drawn.charts},
            document=self,
            sections=sections,
        )
