"""A table of numbers as colors."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from finetti.core.errors import bad_argument
from finetti.display.charts.chart_theme import INK
from finetti.display.charts.line_charts import Chart, finish_chart

MAX_WRITTEN = 220  # cells that have room for their number
CELL = 34


def heat_map(
    records: Iterable[Mapping[str, Any]],
    x: str,
    y: str,
    value: str,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    number: str = ".3~g",
    log: bool = False,
) -> Chart:
    """One cell per ``x`` and ``y``, the darker the larger; numbers are written while they fit.

    Args:
        records: one mapping per cell, in the order of rows and columns.
        x, y: fields of the column and the row.
        value: field of the number.
        title: of the chart.
        x_title, y_title: of the axes; the fields' names by default.
        number: how numbers are written, as D3 formats them.
        log: colors by the logarithm; what is not positive has none.

    >>> cells = [{"layer": n, "head": h, "norm": n + h} for n in (0, 1) for h in (0, 1, 2)]
    >>> chart = heat_map(cells, x="head", y="layer", value="norm")
    >>> len(chart["layer"]), chart["data"]["values"][5]
    (2, {'head': 2, 'layer': 1, 'norm': 3, 'dark': True})
    """
    import altair as alt

    rows = [{name: record[name] for name in (x, y, value)} for record in records]
    if not rows:
        raise bad_argument("records", "heat_map", "at least one cell", "none")
    shown = [row[value] for row in rows if row[value] is not None and (row[value] > 0 or not log)]
    scaled = [math.log(each) for each in shown] if log else shown
    low, high = (min(scaled), max(scaled)) if scaled else (0.0, 0.0)
    for row in rows:
        there = row[value] is not None and (row[value] > 0 or not log)
        at = (math.log(row[value]) if log else row[value]) if there else low
        row["dark"] = bool(high > low and (at - low) / (high - low) > 0.55)

    def axis(channel: Any, field: str, text: str | None) -> Any:
        ticks = alt.Axis(labelAngle=0, grid=False, domain=False, ticks=False)
        return channel(field=field, type="ordinal", sort=None, title=text or field, axis=ticks)

    scale = alt.Scale(scheme="blues", type="log" if log else "linear", zero=False)
    fill = alt.Color(field=value, type="quantitative", title=None, scale=scale)
    tips = [alt.Tooltip(field=y), alt.Tooltip(field=x), alt.Tooltip(field=value, format=".5~g")]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=axis(alt.X, x, x_title), y=axis(alt.Y, y, y_title)
    )
    layers = [base.mark_rect(stroke="white", strokeWidth=1).encode(color=fill, tooltip=tips)]
    columns, height = (len({str(row[name]) for row in rows}) for name in (x, y))
    if len(rows) <= MAX_WRITTEN:
        text = alt.Text(field=value, type="quantitative", format=number)
        ink = alt.condition("datum.dark", alt.value("white"), alt.value(INK))
        layers.append(base.mark_text(fontSize=10).encode(text=text, color=ink))
    width = max(6, min(CELL + 6, 640 // columns)) * columns
    height = max(5, min(CELL - 8, 560 // height)) * height
    return finish_chart(alt.layer(*layers), title, width=width, height=height)
