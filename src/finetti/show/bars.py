"""Bars that add up: what became of the cases of a group."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finetti.show.charts import Chart
from finetti.show.theme import INK, chart_config

MAX_COLUMNS = 3


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
    config = chart_config()
    config["legend"] = {**config["legend"], "orient": "top"}
    config["header"] = {"labelFont": config["font"], "labelFontSize": 12, "labelColor": INK}
    spec = chart.properties(**({"title": title} if title else {})).to_dict()
    return Chart(spec, config=config)
