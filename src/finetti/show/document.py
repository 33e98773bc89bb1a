"""A page of sections with charts and tables: one HTML file that works offline and prints well."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from finetti.show.card import Table
from finetti.show.charts import Chart
from finetti.show.numbers import format_duration, format_value
from finetti.show.terminal import is_numeric

if TYPE_CHECKING:
    from jinja2 import Environment


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
        from markupsafe import Markup

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
        return (
            page_environment()
            .get_template("document.html.jinja")
            .render(
                document=self,
                sections=sections,
                charts=drawn.charts,
                bundle=Markup(drawn.bundle()),
                style=Markup(page_style()),
                script=Markup(chart_script()),
            )
        )


class Drawn:
    """The charts of a page in their order; each has a still picture beside the live one."""

    def __init__(self) -> None:
        self.charts: list[Mapping[str, Any]] = []

    def add(self, chart: Mapping[str, Any], title: str, caption: str = "") -> dict[str, Any]:
        """What the template needs of ``chart``; ``title`` describes one that has none."""
        import vl_convert

        # For paper, and for browsers without scripts.
        svg = vl_convert.vegalite_to_svg({**chart, "background": "white"})
        image = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
        alt = f"Chart: {_title(chart) or title}"
        self.charts.append(chart)
        return {"index": len(self.charts) - 1, "alt": alt, "image": image, "caption": caption}

    def bundle(self) -> str:
        """The script library that draws them; empty if there are none."""
        if not self.charts:
            return ""
        import vl_convert

        # A closing tag inside a string of the library would end the script element.
        bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        return bundle.replace("</script", "<\\/script")


def _title(chart: Mapping[str, Any]) -> str:
    title = chart.get("title", "")
    text = title.get("text", "") if isinstance(title, Mapping) else title
    return " ".join(text) if isinstance(text, list) else str(text)


def table_parts(table: Table) -> dict[str, Any]:
    """What the template needs of a table: also which of its columns hold numbers (and gaps)."""
    numeric = [is_numeric(table, index) for index in range(len(table.columns))]
    return {"title": table.title, "columns": table.columns, "rows": table.rows, "numeric": numeric}


def page_environment(*packages: tuple[str, str]) -> "Environment":
    """Jinja with the templates of the house, and those of (package, folder) before them."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader

    places: Iterable[tuple[str, str]] = (*packages, ("finetti.show", "html"))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(*place) for place in places]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": format_duration, "cell": format_value}
    return environment


def page_style() -> str:
    """The style sheet of every page."""
    return (files("finetti.show") / "html" / "page.css").read_text(encoding="utf-8")


def chart_script() -> str:
    """The script that draws the charts of a page."""
    return (files("finetti.show") / "html" / "charts.js").read_text(encoding="utf-8")
