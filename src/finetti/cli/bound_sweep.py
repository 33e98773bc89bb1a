"""``finetti bound --sweep``: comparable bounds along one variable, as a table and a chart."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from finetti.cli.console import make_console
from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.bounds.base import Bound

_POINTS = 17
_OF_SAMPLE = {
    "samples": "n_samples",
    "context-length": "context_length",
    "input-norm": "input_norm",
    "loss-lipschitz": "loss_lipschitz",
    "loss-bound": "loss_bound",
    "delta": "delta",
}
_OF_NETWORK = {
    "layers": "n_layers",
    "width": "width",
    "heads": "n_heads",
    "head-dimension": "head_dimension",
    "resolution": "resolution",
}
_WHOLE = ("samples", "context-length", "layers", "width", "heads", "head-dimension")


def parse_sweep(text: str) -> tuple[str, list[float]]:
    """What varies, and its values: WHAT=LOW:HIGH or WHAT=LOW:HIGH:COUNT, evenly in the logarithm.

    >>> parse_sweep("context-length=1e2:1e4:3")
    ('context-length', [100, 1000, 10000])
    """
    advice = "Write it as context-length=1e2:1e6, with 0 < LOW < HIGH."
    what, sign, limits = text.partition("=")
    pieces = limits.split(":")
    if not sign or len(pieces) not in (2, 3):
        raise InputError(f"The sweep {text!r} cannot be read. {advice}")
    try:
        low, high = float(pieces[0]), float(pieces[1])
        count = int(pieces[2]) if len(pieces) == 3 else _POINTS
    except ValueError as error:
        raise InputError(f"The sweep {text!r} cannot be read. {advice}") from error
    if not (0 < low < high < math.inf and count >= 2):
        raise InputError(f"The sweep {text!r} has no values. {advice}")
    what = what.strip().replace("_", "-")
    steps = [i / (count - 1) for i in range(count)]
    values = [math.exp((1 - t) * math.log(low) + t * math.log(high)) for t in steps]
    if what in _WHOLE:
        return what, list(dict.fromkeys(max(1, round(value)) for value in values))
    return what, [low, *values[1:-1], high]


def run_sweep(
    chosen: "list[type[Bound]]",
    network: Mapping[str, Any],
    data: Mapping[str, Any],
    sweep: str,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Evaluate along the sweep; print a table or JSON; draw the chart."""
    from finetti.cli.bound import say_unread
    from finetti.show import Table, save_chart
    from finetti.show.terminal import renderable_table

    quantities = sorted({each.quantity for each in chosen})
    if len(quantities) > 1:
        raise InputError(
            f"Bounds of {quantities[0]} and of {quantities[1]} cannot share a chart. Sweep those "
            "of one quantity, which `finetti bound NAME --explain` shows."
        )
    what, values = parse_sweep(sweep)
    if what == "heads" and _need_divisors(chosen, network):
        values = _divisors(network["width"], values[0], values[-1])
        shown = f"{len(values)} from {values[0]} to {values[-1]}"
        typer.echo(f"Heads divide the width {network['width']}: {shown}.", err=True)
    say_unread(chosen, _at(network, {}, what, values[0])[0])
    records = _records(chosen, network, data, what, values)
    if as_json:
        typer.echo(json.dumps({"sweep": what, "records": records}, indent=1, allow_nan=False))
    else:
        labels = list(dict.fromkeys(record["bound"] for record in records))
        rows = [(value, *(_text(r) for r in records if r[what] == value)) for value in values]
        make_console().print(renderable_table(Table(quantities[0], (what, *labels), tuple(rows))))
    if plot is not None:
        if _huge(records) and any(record["sign"] < 0 for record in records):
            typer.echo("Negative values have no logarithm: they are gaps in the chart.", err=True)
        saved = save_chart(sweep_chart(records, what, quantities[0]), plot)
        make_console(stderr=True).print(f"Chart: {saved}", soft_wrap=True)


def sweep_chart(records: list[dict[str, Any]], what: str, quantity: str) -> dict[str, Any]:
    """The chart: values, or their powers of ten where no float holds them.

    The axis is logarithmic unless some value is not positive, as a printed one may be.
    """
    from finetti.show import line_chart

    huge = _huge(records)
    positive = not huge and all(record["value"] > 0 for record in records)
    return line_chart(
        [
            {**record, "power": _power(record) if record["sign"] > 0 else None} if huge else record
            for record in records
        ],
        x=what,
        y="power" if huge else "value",
        color="bound",
        log_x=True,
        log_y=positive,
        x_title=what.replace("-", " "),
        y_title=f"log₁₀ of the {quantity}" if huge else quantity,
    )


def _huge(records: list[dict[str, Any]]) -> bool:
    return any(record["value"] is None for record in records)


def _need_divisors(chosen: "list[type[Bound]]", network: Mapping[str, Any]) -> bool:
    """Whether a bound divides the width between the heads: then width + 1 heads are refused."""
    from finetti.cli.bound import build

    try:
        build(chosen, {**network, "n_heads": network["width"] + 1})
    except InputError as error:
        return "a divisor of the width" in str(error)
    return False


def _divisors(width: int, low: float, high: float) -> list[float]:
    small = [n for n in range(1, math.isqrt(width) + 1) if width % n == 0]
    every = sorted({*small, *(width // n for n in small)})
    found: list[float] = [n for n in every if low <= n <= high]
    if not found:
        raise InputError(
            f"No number of heads from {low} to {high} divides the width {width}. Give a "
            "--head-dimension, or other limits."
        )
    return found


def _power(record: Mapping[str, Any]) -> float | None:
    return None if record["log_value"] is None else record["log_value"] / math.log(10)


def _text(record: Mapping[str, Any]) -> Any:
    power = _power(record)
    if record["value"] is not None or power is None:
        return record["value"]
    return f"{'-' if record['sign'] < 0 else ''}10^{power:.4g}"


def _at(
    network: Mapping[str, Any], data: Mapping[str, Any], what: str, value: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The network and the sample at one value of the sweep."""
    here, sample = dict(network), dict(data)
    if what in _OF_SAMPLE:
        sample[_OF_SAMPLE[what]] = value
    elif what in _OF_NETWORK:
        here[_OF_NETWORK[what]] = value
    else:
        here["norms"] = {**network["norms"], what.replace("-", "_"): value}
    return here, sample


def _records(
    chosen: "list[type[Bound]]",
    network: Mapping[str, Any],
    data: Mapping[str, Any],
    what: str,
    values: list[float],
) -> list[dict[str, Any]]:
    from finetti.bounds import Sample
    from finetti.cli.bound import build

    records = []
    for value in values:
        here, sample = _at(network, data, what, value)
        for built in build(chosen, here):
            found = built.evaluate(Sample(**sample)).to_dict()
            label = built.name + ("" if built.kind == "upper_bound" else f" ({built.kind})")
            kept = {
                name: found[name] for name in ("value", "log_value", "sign", "kind", "quantity")
            }
            records.append({what: value, "bound": label, "name": built.name, **kept})
    return records
