"""A sum, part by part: each bar starts where the one before it ended."""

import math
from collections.abc import Iterable, Sequence

from finetti.core.errors import bad_argument
from finetti.display.charts import Chart
from finetti.display.theme import GRAY, INK, PALETTE, chart_config

REACH = 2.0  # standard errors on either side


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
    spec = alt.layer(*layers).to_dict()
    if title:
        spec["title"] = {"text": title}
        if any(row["standard error"] for row in rows):
            spec["title"]["subtitle"] = "Lines: two standard errors on either side"
    config = chart_config()
    config["view"] = {**config["view"], "discreteWidth": 110 * len(rows)}
    return Chart(spec, config=config)
