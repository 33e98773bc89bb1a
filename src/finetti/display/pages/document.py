"""A page of sections with charts and tables: one HTML file that works offline and prints well."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finetti.display.card import Table
from finetti.display.charts.line_charts import Chart
from finetti.display.formatting import format_duration
from finetti.display.pages.page_frame import PageCharts, fill_frame, page_environment, table_parts

VERSIONS = {"Finetti": "finetti", "JAX": "jax", "NumPy": "numpy", "Python": "python"}


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
        drawn = PageCharts()
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


def run_facts(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and values for `Document.facts`, from the plain data of a run.

    Args:
        document: with ``trials`` (all, done), ``seconds``, ``finished`` and ``provenance``.
    """
    counts, made_by = document["trials"], document["provenance"]
    return (
        ("Trials", f"{counts['done']} of {counts['all']}"),
        ("Computing time", format_duration(document["seconds"])),
        ("Finished", (document["finished"] or "–")[:16].replace("T", " ") + " UTC"),
        ("Commit", ", ".join(made_by["commit"]) or "–"),
        *software_facts(made_by),
    )


def software_facts(made_by: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Versions and machine for `Document.facts`, from ``provenance.software``."""
    versions = ", ".join(f"{name} {made_by[key]}" for name, key in VERSIONS.items())
    machine = ", ".join([*made_by.get("device", ()), made_by["platform"]])
    return (("Versions", versions), ("Machine", machine))
