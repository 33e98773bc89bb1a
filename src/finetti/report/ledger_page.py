"""The page of a ledger run: reads the plain data of the run and writes it as HTML and figures.

All words and numbers come with the data (`finetti.claims.results`): nothing is computed here.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from finetti.claims.claim import CheckMethod
from finetti.claims.results import run_sentence, time_words, verdict_sign, verdict_words
from finetti.core.errors import InputError
from finetti.core.files import check_directory, write_file
from finetti.display.card import Table
from finetti.display.charts.chart_text import chart_tables
from finetti.display.charts.line_charts import Chart
from finetti.display.pages.page_frame import PageCharts, fill_frame, page_environment, table_parts
from finetti.display.table_text import TableFormat, format_table
from finetti.report.gauge import Gauge
from finetti.report.mathml import to_breakable_html

PAGE = ("finetti.report", "page")
FIGURES = ("svg", "csv", "pdf", "png")
KINDS = ("theorem", "figure", "erratum", "control")
CHANGES = ("flipped", "new", "moved")
Plain = Mapping[str, Any]


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


def render(results: Plain) -> str:
    """The page as text."""
    drawn, changes = PageCharts(), results["changes"]
    changed = _changes_by_claim(changes)
    shown = [_result_context(result, drawn, changed) for result in results["results"]]
    controls = [control for result in shown for control in result["controls"]]
    unnoticed = [(r, c) for r in shown for c in r["controls"] if c["red"] is False]
    title, rest = run_sentence(results)
    good = results["as_expected"] == results["finished"]
    return fill_frame(
        page_environment(PAGE),
        "report.html.jinja",
        drawn,
        results,
        own=(PAGE, "report"),
        run=results,
        results=shown,
        papers=_papers_context(results["papers"], shown),
        errata=[result for result in shown if result["kind"] == "erratum"],
        kinds=KINDS,
        checks={check.value: check.words for check in CheckMethod},
        changes=_changes_context(changes),
        unexpected=[result for result in shown if not result["as_expected"]],
        unnoticed=unnoticed,
        n_controls=len(controls),
        n_ran=sum(control["red"] is not None for control in controls),
        title=title,
        rest=rest,
        all_good=results["complete"] and good and not unnoticed,
        made=_format_timestamp(results["provenance"]),
        took=time_words(results),
    )


def _result_context(result: Plain, drawn: PageCharts, changes: Plain) -> dict[str, Any]:
    """One claim as its template needs it."""
    forms = {
        form: [{**each, "gauge": _gauge(each)} for each in result[form]]
        for form in ("measurements", "derived")
    }
    decisive = result["decisive"]
    ran = {each["name"]: each for each in result["control_results"]}
    return {
        **result,
        **forms,
        "sign": verdict_sign(result),
        "said": verdict_words(result),
        "kinds": [result["kind"], *(["control"] if result["controls"] else [])],
        "changed": changes.get(result["id"], []),
        "formula": _formula(result["formula"]),
        "printed": _formula(result["printed"]),
        "decisive": forms[decisive["form"]][decisive["index"]] if decisive else None,
        "controls": [{"name": name, **ran.get(name, {"red": None})} for name in result["controls"]],
        "charts": [drawn.add(chart, result["title"]) for chart in result["charts"]],
        "tables": [table_parts(Table(**table)) for table in result["tables"]],
    }


def _gauge(measurement: Plain) -> str:
    """The drawing of a measurement against its rule; empty where the rule is no range."""
    if measurement["limits"] is None:
        return ""
    low, high = map(float, measurement["limits"])
    ends = measurement["interval"]
    interval = (float(ends[0]), float(ends[1])) if ends else None
    return Gauge(float(measurement["value"]), low, high, measurement["holds"], interval).svg


def _formula(text: str) -> dict[str, str] | None:
    """A formula as HTML with MathML, or as it is written where it cannot be read."""
    if not text:
        return None
    try:
        return {"source": text, "html": to_breakable_html(text)}
    except InputError:
        return {"source": text, "html": ""}


def _changes_by_claim(changes: Plain | None) -> dict[str, list[str]]:
    """What changed about each claim: flipped, new, moved."""
    found: dict[str, list[str]] = {}
    for name in CHANGES:
        for each in (changes or {}).get(name, ()):
            words = found.setdefault(each if isinstance(each, str) else each["id"], [])
            if name not in words:
                words.append(name)
    return found


def _changes_context(changes: Plain | None) -> dict[str, Any] | None:
    """The comparison with an older run."""
    if changes is None:
        return None
    count = sum(len(changes[name]) for name in (*CHANGES, "removed"))
    return {**changes, "count": count, "made": _format_timestamp(changes["against"])}


def _format_timestamp(provenance: Plain) -> str:
    """When a run was made."""
    return f"{datetime.fromisoformat(provenance['time']):%Y-%m-%d %H:%M} UTC"


def _papers_context(papers: Mapping[str, Plain], results: Iterable[Plain]) -> list[dict[str, Any]]:
    """The papers that have claims in the run, each with them and its row of the matrix."""
    shown = []
    for letter, paper in papers.items():
        own = [result for result in results if result["paper"] == letter]
        if own:
            good = sum(result["as_expected"] for result in own)
            row = {"results": own, "as_expected": good, "cells": _cells(own)}
            shown.append({**paper, "letter": letter, **row})
    return shown


def _cells(results: list[Plain]) -> dict[str, dict[str, int]]:
    """How many claims of each kind there are, how many as expected; controls by what they did."""
    cells = {}
    for kind in KINDS[:-1]:
        own = [result["as_expected"] for result in results if result["kind"] == kind]
        cells[kind] = {"all": len(own), "good": sum(own)}
    red = [control["red"] for result in results for control in result["controls"]]
    ran = [each for each in red if each is not None]
    return {**cells, "control": {"all": len(red), "ran": len(ran), "good": sum(ran)}}
