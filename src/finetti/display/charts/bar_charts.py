"""Bars: shares of a whole, sizes to compare, and a sum part by part."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finetti.core.errors import bad_argument
from finetti.display.charts.chart_theme import FONT, GRAY, INK, PALETTE
from finetti.display.charts.line_charts import Chart, finish_chart

MAX_COLUMNS = 3
REACH = 2.0  # standard errors on either side


def stacked_bars(
    records: Iterable[Mapping[str, Any]],
    x: str,
    y: str,
    color: str,
    colors: Mapping[str, str],
    panel: str,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
) -> Chart:
    """One bar per ``x``, made of the counts ``y`` of each ``color``, as shares of the whole.

    Args:
        records: one mapping per part of a bar.
        x: field below the bars, ascending; each panel has its own values.
        y: field of the counts.
        color: field that tells the parts apart.
        colors: color of each of its values, from the bottom of a bar to the top.
        panel: field whose values have a small chart each.
        title: of the chart.
        x_title: of the horizontal axes; the field's name by default.
        y_title: of the vertical axes; the field's name by default.
    """
    import altair as alt

    rows = [{**record, "rank": list(colors).index(record[color])} for record in records]
    panels: Sequence[Any] = list(dict.fromkeys(row[panel] for row in rows))
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    bars = (
        alt.Chart(width=190, height=170)
        .mark_bar()
        .encode(
            x=alt.X(
                field=x,
                type="ordinal",
                title=x_title or x,
                sort="ascending",
                axis=alt.Axis(labelAngle=0, labelOverlap=True, labelSeparation=4),
            ),
            y=alt.Y(
                field=y,
                type="quantitative",
                title=y_title or y,
                stack="normalize",
                axis=alt.Axis(format="%"),
            ),
            color=alt.Color(field=color, type="nominal", title=None, scale=scale),
            order=alt.Order(field="rank", type="ordinal"),
            tooltip=[alt.Tooltip(field=field) for field in (panel, x, color, y)],
        )
    )
    chart = bars.facet(
        facet=alt.Facet(field=panel, type="nominal", title=None, sort=list(panels)),
        columns=min(MAX_COLUMNS, len(panels)),
        data=alt.Data(values=rows),
    ).resolve_scale(x="independent")
    header = {"labelFont": FONT, "labelFontSize": 12, "labelColor": INK}
    return finish_chart(chart, title, {"legend": {"orient": "top"}, "header": header})


def ranked_bars(
    rows: Iterable[Sequence[Any]], title: str = "", x_title: str = "", logarithmic: bool = False
) -> Chart:
    """Lying bars with their sizes written beside them.

    Args:
        rows: (label, size, text) or (label, size, text, group), from the top; bars of a group have
            one color.
        title: of the chart.
        x_title: of the axis.
        logarithmic: sizes are powers of ten, and the axis says so.

    >>> chart = ranked_bars([("one", 2.0, "100"), ("other", 3.0, "1000")], logarithmic=True)
    >>> [row["size"] for row in chart["data"]["values"]]
    [2.0, 3.0]
    """
    import altair as alt

    values = [
        dict(zip(("label", "size", "text", "group"), (*row, "")[:4], strict=True)) for row in rows
    ]
    if not values:
        raise bad_argument("rows", "ranked_bars", "at least one bar", "none")
    groups = list(dict.fromkeys(row["group"] for row in values))
    colors = alt.Scale(domain=groups, range=[PALETTE[i % len(PALETTE)] for i in range(len(groups))])
    legend = alt.Legend(title=None, orient="top") if len(groups) > 1 else None
    labels = _powers(max(float(row["size"]) for row in values)) if logarithmic else {}
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y(
            field="label", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=260)
        ),
        x=alt.X(field="size", type="quantitative", title=x_title, axis=alt.Axis(**labels)),
    )
    bars = base.mark_bar().encode(
        color=alt.Color(field="group", type="nominal", scale=colors, legend=legend),
        tooltip=[alt.Tooltip(field="label"), alt.Tooltip(field="text")],
    )
    texts = base.mark_text(align="left", dx=5, fontSize=11, color=INK).encode(
        text=alt.Text(field="text", type="nominal")
    )
    return finish_chart(alt.layer(bars, texts), title, height=30 * len(values), width=420)


def _powers(largest: float) -> dict[str, Any]:
    """An axis of powers of ten, at most about a dozen."""
    step = next(each for each in (1, 2, 5, 10, 20, 50, 100, 10**9) if largest / each <= 12)
    ticks = [step * i for i in range(int(largest / step) + 2)]
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    names = {str(tick): "10" + str(tick).translate(raised) for tick in ticks}
    return {"values": ticks, "labelExpr": f"{json.dumps(names, ensure_ascii=False)}[datum.value]"}


def waterfall(
    parts: Iterable[Sequence],
    total: Sequence,
    title: str = "",
    y_title: str = "",
    reference: float | None = None,
) -> Chart:
    """Bars that lead from 0 to a total; each has an error bar of two standard errors at its end.

    Args:
        parts: (label, value) or (label, value, standard error), in order; a negative value leads
            downward.
        total: the same for the sum, drawn from 0 in gray.
        title: of the chart.
        y_title: of the vertical axis.
        reference: a level to compare with, drawn dashed.

    >>> chart = waterfall([("rent", 3.0), ("discount", -1.0, 0.1)], ("together", 2.0, 0.1))
    >>> [(row["from"], row["to"]) for row in chart["data"]["values"]]
    [(0.0, 3.0), (3.0, 2.0), (0.0, 2.0)]
    """
    import altair as alt

    rows, level = [], 0.0
    given = [*((part, False) for part in parts), (total, True)]
    if len(given) < 2:
        raise bad_argument("parts", "waterfall", "at least one part", "none")
    for part, is_total in given:
        label, value, error = (*part, 0.0)[:3]
        value, error = float(value), float(error)
        if not (math.isfinite(value) and math.isfinite(error) and error >= 0):
            wanted = "finite numbers, with standard errors ≥ 0"
            raise bad_argument("parts", "waterfall", wanted, f"{label}: {value} ± {error}")
        start = 0.0 if is_total else level
        level = start + value
        rows.append(
            {
                "part": str(label),
                "value": value,
                "standard error": error,
                "from": start,
                "to": level,
                "low": level - REACH * error,
                "high": level + REACH * error,
                "kind": "total" if is_total else "adds" if value >= 0 else "takes",
            }
        )
    if len({row["part"] for row in rows}) < len(rows):
        names = ", ".join(row["part"] for row in rows)
        raise bad_argument("parts", "waterfall", "labels that differ", names)
    base = alt.Chart(alt.Data(values=rows))
    below = alt.X(
        field="part",
        type="nominal",
        sort=None,
        title=None,
        axis=alt.Axis(labelAngle=0, labelLimit=180),
    )
    colors = alt.Scale(domain=["adds", "takes", "total"], range=[PALETTE[0], PALETTE[1], GRAY])
    tips = [
        alt.Tooltip(field="part"),
        alt.Tooltip(field="value", format=".4~g"),
        alt.Tooltip(field="standard error", format=".2~g"),
    ]
    up = alt.Y(field="from", type="quantitative", title=y_title, axis=alt.Axis(format=".4~g"))
    layers = [
        base.mark_bar(size=52).encode(
            x=below,
            y=up,
            y2=alt.Y2(field="to"),
            color=alt.Color(field="kind", type="nominal", scale=colors, legend=None),
            tooltip=tips,
        ),
        base.mark_rule(color=INK, strokeWidth=1.5).encode(
            x=below, y=alt.Y(field="low", type="quantitative"), y2=alt.Y2(field="high")
        ),
    ]
    if reference is not None:
        flat = alt.Chart(alt.Data(values=[{"level": float(reference)}]))
        layers.append(
            flat.mark_rule(style="reference").encode(y=alt.Y(field="level", type="quantitative"))
        )
    written = {"text": title} if title else {}
    if title and any(row["standard error"] for row in rows):
        written["subtitle"] = "Lines: two standard errors on either side"
    view = {"discreteWidth": 110 * len(rows)}
    return finish_chart(alt.layer(*layers), written, {"view": view})
