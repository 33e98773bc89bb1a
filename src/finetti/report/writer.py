"""Writes a run into a directory: ``results.json`` (the data) and ``report.html`` (the page)."""

import json
import tempfile
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from finetti.core.errors import FinettiError
from finetti.core.files import write_file
from finetti.show.card import Table
from finetti.show.document import Drawn, chart_script, page_environment, page_style, table_parts
from finetti.show.numbers import format_interval


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


def render(results: Mapping[str, Any]) -> str:
    """The page as text."""
    from markupsafe import Markup

    environment = page_environment(("finetti.report", "page"))
    environment.filters["measured"] = _measured
    drawn = Drawn()
    shown = []
    for result in results["results"]:
        charts = [drawn.add(chart, result["title"]) for chart in result["charts"]]
        tables = [table_parts(Table(**table)) for table in result["tables"]]
        shown.append({**result, "charts": charts, "tables": tables})
    papers = []
    for letter, paper in results["papers"].items():
        own = [result for result in shown if result["paper"] == letter]
        good = sum(result["as_expected"] for result in own)
        if own:
            papers.append({**paper, "letter": letter, "results": own, "as_expected": good})
    page = files("finetti.report") / "page"
    made = datetime.fromisoformat(results["provenance"]["time"])
    good, finished = results["as_expected"], results["finished"]
    style = page_style() + (page / "report.css").read_text(encoding="utf-8")
    script = (page / "report.js").read_text(encoding="utf-8") + chart_script()
    return environment.get_template("report.html.jinja").render(
        run={**results, "results": shown},
        papers=papers,
        charts=drawn.charts,
        headline=f"{good} of {finished} verdicts as expected",
        all_good=results["complete"] and good == finished,
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        badge=environment.get_template("badge.html.jinja").module.badge,  # pyright: ignore
        style=Markup(style),
        script=Markup(script),
        bundle=Markup(drawn.bundle()),
    )
