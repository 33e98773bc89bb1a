"""What the commands share that run trials and end with a page."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from finetti.display import Document

# How a run was made, and not what it found.
NOT_IN_COMMAND = ("workers", "cluster", "dry_run", "as_json", "quiet", "debug", "retry_failed")


def run_document(
    found: Mapping[str, Any], trials: "pd.DataFrame", command: str, interrupted: bool
) -> dict[str, Any]:
    """All that is known, as plain data: what was ``found``, and how it was made."""
    from finetti.core.provenance import software

    machine = {
        name: sorted({str(each) for each in trials[name].dropna()}) if len(trials) else []
        for name in ("device", "commit")
    }
    return {
        **found,
        "interrupted": interrupted,
        "command": command,
        "seconds": round(sum(map(float, trials["seconds"])), 3) if len(trials) else 0.0,
        "finished": trials["finished"].max().isoformat() if len(trials) else None,
        "provenance": {**software(), **machine},
    }


def write_page(page: "Document", document: Mapping[str, Any], out: Path, name: str) -> None:
    """The page, the results, and every figure as SVG."""
    from finetti.core.files import write_file, write_results

    write_results(document, out)
    write_file(page.render().encode(), out / name)
    for figure in (each for section in page.sections for each in section.figures):
        figure.chart.save(out / f"{figure.name}.svg")


def show_findings(findings: Any, people: Any, quiet: bool) -> None:
    """The headline, and without ``quiet`` the tables and notes, on the console ``people``."""
    from finetti.display.terminal import FittedTable

    people.print(findings.headline, style="bold", soft_wrap=True)
    if quiet:
        return
    people.print()
    for table in findings.tables():
        people.print(FittedTable(table))
    for note in findings.notes:
        people.print(note, style="italic", soft_wrap=True)


def command_line(context: typer.Context, name: str, given: Mapping[str, Any]) -> str:
    """What makes this page again, with everything that was left to its default."""
    words = ["finetti", name]
    for parameter in context.command.params:
        value = given.get(parameter.name or "")
        if parameter.name in NOT_IN_COMMAND or value is None or value is False:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0]] if each is True else [parameter.opts[0], str(each)]
    return shlex.join(words)


def last_words(document: Mapping[str, Any], page: Path, store: Path) -> Any:
    """How the run ended, how to go on, and where its files are."""
    from rich.text import Text

    counts = document["trials"]
    text = f"{counts['done']} of {counts['all']} trials done"
    text += f", {counts['failed']} failed" if counts["failed"] else ""
    if document["interrupted"]:
        left = counts["all"] - counts["done"] - counts["failed"]
        stopped = f"with {left} left" if left else "before the search ended"
        text += f". Interrupted {stopped}: rerun the same command to resume"
    text += f". Page: {page} · trials: {store}"
    return Text(text, style="bold green" if counts["done"] == counts["all"] else "bold red")
