"""Writes a run into a directory: ``results.json``, the page ``report.html``, and its figures."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from finetti.claims.results import time_words
from finetti.core.errors import FinettiError
from finetti.core.files import write_file
from finetti.report.view import (
    KINDS,
    changes_by_claim,
    made,
    sentence,
    shown_changes,
    shown_papers,
    shown_result,
)
from finetti.show.chart_text import chart_tables
from finetti.show.charts import Chart
from finetti.show.frame import Drawn, fill_frame, page_environment
from finetti.show.table_formats import TableFormat, format_table

PAGE = ("finetti.report", "page")
FIGURES = ("svg", "csv", "pdf", "png")


def check_directory(directory: str | Path) -> Path:
    """Make ``directory`` if need be and see that files can be written there, before a long run."""
    directory = Path(directory)
    if os.path.lexists(directory) and not directory.exists():
        raise FinettiError(f"{str(directory)!r} is a link that leads nowhere. Choose a directory.")
    if directory.exists() and not directory.is_dir():
        raise FinettiError(f"{str(directory)!r} is a file. Choose a directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise FinettiError(
            f"Cannot write to {directory}: {error.strerror}. Choose another directory."
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


def write_figures(
    results: Mapping[str, Any], directory: str | Path, formats: Iterable[str] = FIGURES
) -> list[Path]:
    """Write every chart of a run into ``directory``: its picture, and its data as CSV.

    Args:
        results: of ``finetti.claims.results_document``.
        directory: made if need be.
        formats: of ``svg``, ``csv``, ``pdf`` and ``png``.
    """
    directory = check_directory(directory)
    formats = list(formats)
    paths = []
    for result in results["results"]:
        for index, plain in enumerate(result["charts"], 1):
            name = result["id"] + (f"-{index}" if len(result["charts"]) > 1 else "")
            for form in (each for each in FIGURES if each in formats):
                if form != "csv":
                    paths.append(Chart(plain).save(directory / f"{name}.{form}"))
                    continue
                tables = chart_tables(plain)
                for part, table in enumerate(tables, 1):
                    file = f"{name}-data{part}.csv" if len(tables) > 1 else f"{name}.csv"
                    text = format_table(table, TableFormat.CSV) + "\n"
                    paths.append(write_file(text.encode(), directory / file))
    return paths


def render(results: Mapping[str, Any]) -> str:
    """The page as text."""
    environment = page_environment(PAGE)
    drawn = Drawn()
    changes = results.get("changes")
    changed = changes_by_claim(changes)
    shown = [shown_result(result, drawn, changed) for result in results["results"]]
    good, finished = results["as_expected"], results["finished"]
    controls = [control for result in shown for control in result["controls"]]
    unnoticed = [(r, c) for r in shown for c in r["controls"] if c["red"] is False]
    title, rest = sentence(results)
    return fill_frame(
        environment,
        "report.html.jinja",
        drawn,
        results,
        own=(PAGE, "report"),
        run=results,
        results=shown,
        papers=shown_papers(results["papers"], shown),
        errata=[result for result in shown if result["kind"] == "erratum"],
        kinds=KINDS,
        changes=shown_changes(changes),
        unexpected=[result for result in shown if not result["as_expected"]],
        unnoticed=unnoticed,
        n_controls=len(controls),
        n_ran=sum(control["red"] is not None for control in controls),
        title=title,
        rest=rest,
        all_good=results["complete"] and good == finished and not unnoticed,
        made=made(results["provenance"]),
        took=time_words(results),
    )
