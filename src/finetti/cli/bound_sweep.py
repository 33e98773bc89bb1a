"""``finetti bound --sweep``: what varies, read from text; its table and chart, written."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from finetti.cli.console import make_console, say
from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.bounds import Sweep, SweepVariable
    from finetti.display.table_text import TableFormat

_ADVICE = "Write it as context-length=1e2:1e6, with 0 < LOW < HIGH."


def parse_sweep(text: str) -> "tuple[SweepVariable, list[float]]":
    """What varies, and its values: WHAT=LOW:HIGH or WHAT=LOW:HIGH:COUNT, evenly in the logarithm.

    >>> variable, values = parse_sweep("T=1e2:1e4:3")
    >>> variable.option, values
    ('context-length', [100, 1000, 10000])
    """
    from finetti.bounds.sweep import N_POINTS, SweepVariable

    what, _, limits = text.partition("=")
    pieces = limits.split(":")
    try:
        low, high = map(float, pieces[:2])
        (count,) = map(int, pieces[2:] or [N_POINTS])
    except ValueError as error:
        raise InputError(f"The sweep {text!r} cannot be read. {_ADVICE}") from error
    if not (what.strip() and 0 < low < high < math.inf and count >= 2):
        raise InputError(f"The sweep {text!r} has no values. {_ADVICE}")
    variable = SweepVariable.named(what.strip())
    return variable, variable.grid(low, high, count)


def write_sweep(
    found: "Sweep", plot: Path | None, table_format: "TableFormat | None", as_json: bool
) -> None:
    """Print the table, or JSON; draw the chart."""
    from finetti.display.table_text import format_table

    option = found.variable.option
    if as_json:
        document = {"sweep": option, "records": found.records(), "notes": found.notes()}
        say(json.dumps(document, indent=1, allow_nan=False))
    elif table_format is None:
        make_console().print(found)
    else:
        say(format_table(found.table(), table_format))
        for note in found.notes():
            say(note, err=True)
    if plot is not None:
        records = found.records()
        if any(each["value"] is None for each in records) and any(
            each["sign"] == -1 for each in records
        ):
            say("Negative values have no logarithm: they are gaps in the chart.", err=True)
        saved = found.chart().save(plot)
        make_console(stderr=True).print(f"Chart: {saved}", soft_wrap=True)
