"""The frame of every page of the house: one HTML file that asks the network for nothing."""

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from finetti.core.files import from_cache
from finetti.display.card import Table
from finetti.display.charts.chart_text import chart_tables, chart_title, describe_chart
from finetti.display.formatting import format_duration, format_value
from finetti.display.terminal import is_numeric

if TYPE_CHECKING:
    from jinja2 import Environment

Place = tuple[str, str]  # a package and a folder in it
TEMPLATES: Place = ("finetti.display.pages", "templates")
LONG = 24  # letters of a word that may be broken


class PageCharts:
    """The charts of a page in their order; each has a still picture beside the live one."""

    def __init__(self) -> None:
        self.charts: list[Mapping[str, Any]] = []

    def add(self, chart: Mapping[str, Any], title: str, caption: str = "") -> dict[str, Any]:
        """What the template needs of ``chart``; ``title`` describes one that has none."""
        import vl_convert

        # For paper, and for browsers without scripts.
        svg = vl_convert.vegalite_to_svg({**chart, "background": "white"})
        self.charts.append(chart)
        text = describe_chart(chart)
        return {
            "index": len(self.charts) - 1,
            "alt": f"Chart: {text if chart_title(chart) else f'{title}. {text}'}",
            "image": "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode(),
            "caption": caption,
            "tables": [table_parts(table) for table in chart_tables(chart)],
        }

    def bundle(self) -> str:
        """The script library that draws them; empty if there are none."""
        return _library() if self.charts else ""


@functools.cache
def _library() -> str:
    """Vega with all that it needs. Putting it together takes seconds, which only the first page
    of a version waits for."""

    def make() -> bytes:
        import vl_convert

        return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode()

    bundle = from_cache(f"vega-{metadata.version('vl-convert-python')}", make).decode()
    # A closing tag inside a string of the library would end the script element, and the function
    # around it keeps the library's hundreds of short names to itself.
    return f"(() => {{ {bundle} }})();".replace("</script", "<\\/script")


def table_parts(table: Table) -> dict[str, Any]:
    """What the template needs of a table: also the class of every column, by what it holds."""
    classes = [_column_class(table, index) for index in range(len(table.columns))]
    return {"title": table.title, "columns": table.columns, "rows": table.rows, "classes": classes}


def _column_class(table: Table, column: int) -> str:
    """Numbers (and gaps), words too long for a phone, such as paths, or other text."""
    if is_numeric(table, column):
        return "number"
    texts = (row[column] for row in table.rows if isinstance(row[column], str))
    return "long" if any(len(word) > LONG for text in texts for word in text.split()) else ""


def page_environment(*places: Place) -> "Environment":
    """Jinja with the templates of the house, and those of ``places`` before them."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(*place) for place in (*places, TEMPLATES)]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": format_duration, "cell": format_value}
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return environment


def fill_frame(
    environment: "Environment",
    template: str,
    drawn: PageCharts,
    data: Any,
    own: tuple[Place, str] | None = None,
    **values: Any,
) -> str:
    """A page made from ``template``, which extends ``base.html.jinja``.

    The page runs the scripts that are written here and no other: its content policy names them by
    their hashes, and they evaluate no text as code.

    Args:
        environment: of the templates.
        template: the name of the file.
        drawn: the charts of the page.
        data: plain data, put into the page as JSON; ``charts.js`` finds the charts in it.
        own: place and name of a style sheet and a script beside those of the house.
        **values: what the template reads.
    """
    from markupsafe import Markup

    scripts = [drawn.bundle(), _read(TEMPLATES, "page.js"), _read(TEMPLATES, "charts.js")]
    styles = [_read(TEMPLATES, "page.css")]
    if own is not None:
        place, name = own
        styles.append(_read(place, f"{name}.css"))
        scripts.append(_read(place, f"{name}.js"))
    # As a browser reads them: it hashes the text after it has made all ends of lines alike.
    written = [script.replace("\r\n", "\n").replace("\r", "\n") for script in scripts if script]
    return environment.get_template(template).render(
        data=data,
        styles=Markup("".join(styles)),
        scripts=[Markup(script) for script in written],
        script_sources=Markup(" ".join(map(_source, written))),
        **values,
    )


def _read(place: Place, name: str) -> str:
    package, folder = place
    return (files(package) / folder / name).read_text(encoding="utf-8")


def _source(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
