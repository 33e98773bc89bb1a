"""Writes a run into a directory: ``results.json`` (the data) and ``report.html`` (the page)."""

import base64
import json
import tempfile
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from finetti.core.errors import FinettiError
from finetti.core.files import write_file
from finetti.show.numbers import format_duration, format_interval, format_value


def check_directory(directory: str | Path) -> Path:
    """Make ``directory`` if need be and see that files can be written there, before a long run."""
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise FinettiError(
            f"Nothing can be written to {directory}: {error.strerror}. "
            "Give a directory of your own with --out."
        ) from error
    return directory


def write_results(results: Mapping[str, Any], directory: str | Path) -> Path:
    """Write ``results.json``."""
    text = json.dumps(results, indent=1, allow_nan=False)
    return write_file(text.encode(), Path(directory) / "results.json")


def write_report(results: Mapping[str, Any], directory: str | Path) -> Path:
    """Write ``report.html``, one file that works offline, from the plain data of a run.

    Reads the results of ``finetti.claims.results_document`` and computes nothing.
    """
    return write_file(render(results).encode(), check_directory(directory) / "report.html")


def _number(value: Any) -> float:
    """Numbers as JSON holds them; NaN and infinity are words there."""
    return value if isinstance(value, int | float) else float(value)


def _measured(measurement: Mapping[str, Any]) -> str:
    interval = measurement["interval"]
    ends = (_number(interval[0]), _number(interval[1])) if interval else None
    return f"{format_interval(_number(measurement['value']), ends)} {measurement['unit']}".rstrip()


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table, and which of its columns hold numbers (and gaps) only."""
    columns = [[row[i] for row in table["rows"]] for i in range(len(table["columns"]))]
    numeric = [
        any(cell is not None for cell in column)
        and all(cell is None or type(cell) in (int, float) for cell in column)
        for column in columns
    ]
    return {**table, "numeric": numeric}


def _title(chart: Mapping[str, Any]) -> str:
    title = chart.get("title", "")
    text = title.get("text", "") if isinstance(title, Mapping) else title
    return " ".join(text) if isinstance(text, list) else str(text)


def _still(chart: Mapping[str, Any]) -> str:
    """The chart as a picture inside the page, for paper and for browsers without scripts."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg({**chart, "background": "white"})
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def render(results: Mapping[str, Any]) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("finetti.report", "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": format_duration,
        "cell": format_value,
        "measured": _measured,
    }
    charts: list[Mapping[str, Any]] = []
    shown = []
    for result in results["results"]:
        stills = []
        for chart in result["charts"]:
            alt = f"Chart: {_title(chart) or result['title']}"
            stills.append({"index": len(charts), "alt": alt, "image": _still(chart)})
            charts.append(chart)
        tables = [_table(table) for table in result["tables"]]
        shown.append({**result, "charts": stills, "tables": tables})
    papers = []
    for letter, paper in results["papers"].items():
        own = [result for result in shown if result["paper"] == letter]
        good = sum(result["as_expected"] for result in own)
        if own:
            papers.append({**paper, "letter": letter, "results": own, "as_expected": good})
    page = files("finetti.report") / "page"
    bundle = ""
    if charts:
        import vl_convert

        # A closing tag inside a string of the library would end the script element.
        bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        bundle = bundle.replace("</script", "<\\/script")
    made = datetime.fromisoformat(results["provenance"]["time"])
    good, finished = results["as_expected"], results["finished"]
    return environment.get_template("report.html.jinja").render(
        run={**results, "results": shown},
        papers=papers,
        charts=charts,
        headline=f"{good} of {finished} verdicts as expected",
        all_good=results["complete"] and good == finished,
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        badge=environment.get_template("badge.html.jinja").module.badge,  # pyright: ignore
        style=Markup((page / "report.css").read_text(encoding="utf-8")),
        script=Markup((page / "report.js").read_text(encoding="utf-8")),
        bundle=Markup(bundle),
    )
