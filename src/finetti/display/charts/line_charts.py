"""Charts as plain Vega-Lite specifications, and their files. Altair is loaded when first used."""

import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError, bad_argument
from finetti.core.files import check_writable, write_file
from finetti.display.charts.chart_axes import axis_channel, color_channels
from finetti.display.charts.chart_text import describe_chart
from finetti.display.charts.chart_theme import GRAY, chart_config

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".svg", ".png", ".pdf", ".html")
MAX_MARKS = 50  # points of a line that are marked: more of them would hide it


def check_chart_file(path: Path) -> None:
    """Refuse a file that cannot hold a chart, or cannot be written, before anything is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"A chart cannot be written to {path.name!r}. End the name with {', '.join(SUFFIXES)}."
        )
    check_writable(path)


class Chart(dict[str, Any]):
    """A Vega-Lite specification that holds its own data: plain, ready for JSON, and shown in
    notebooks."""

    def save(self, path: str | Path) -> Path:
        """Write it as SVG, PNG, PDF, or HTML that works offline, by the suffix of ``path``."""
        path = Path(path)
        check_chart_file(path)
        import vl_convert

        # Files leave the page they were made for, so they carry their own paper.
        chart = {**self, "background": "white"}
        suffix = path.suffix.lower()
        if suffix == ".svg":
            content = vl_convert.vegalite_to_svg(chart).encode()
        elif suffix == ".png":
            content = vl_convert.vegalite_to_png(chart, scale=2)
        elif suffix == ".pdf":
            content = vl_convert.vegalite_to_pdf(chart)
        else:
            content = vl_convert.vegalite_to_html(chart, bundle=True).encode()
        return write_file(content, path)

    def _repr_svg_(self) -> str:
        import vl_convert

        return vl_convert.vegalite_to_svg({**self, "background": "white"})

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In a notebook's text, what is drawn instead of all of its data."""
        printer.text(f"Chart: {describe_chart(self)}")


def finish_chart(
    drawn: Any,
    title: str | Mapping[str, str] = "",
    config: Mapping[str, Mapping[str, Any]] | None = None,
    **sizes: float,
) -> Chart:
    """Return what Altair has drawn as a `Chart` of the house, whose ``config`` changes in parts."""
    spec = drawn.to_dict() | sizes | ({"title": title} if title else {})
    theme = chart_config()
    changed = {part: {**theme.get(part, {}), **values} for part, values in (config or {}).items()}
    return Chart(spec, config=theme | changed)


def _plain(value: Any, positive: bool) -> Any:
    """A Python value; numbers that the axis cannot show become gaps."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value if math.isfinite(value) and (value > 0 or not positive) else None


def side_by_side(*charts: Chart) -> Chart:
    """Charts in a row, each with its axes; lines of one name have one color, and one legend."""
    parts = [{k: v for k, v in chart.items() if k not in ("$schema", "config")} for chart in charts]
    if not parts:
        raise bad_argument("charts", "side_by_side", "at least one chart", "none")
    config = chart_config()
    config["view"] = {**config["view"], "continuousWidth": 340, "continuousHeight": 260}
    config["legend"] = {**config["legend"], "orient": "top", "title": None}
    return Chart({"$schema": charts[0]["$schema"], "hconcat": parts}, config=config)


def _gather(
    records: Any, x: str, y: str, color: str | None, ends: tuple[str, str]
) -> list[dict[str, Any]]:
    """One record for all with the same x and color: the median of y, and its range as ``ends``."""
    by = (x, color) if color else (x,)
    groups: dict[tuple[Any, ...], list[float]] = {}
    for record in _rows(records, [*by, y], {}):
        # What is not finite, and shown as a gap, must not leave a median of the others.
        value = math.nan if record[y] is None else record[y]
        groups.setdefault(tuple(record[field] for field in by), []).append(value)
    gathered = []
    for group, values in groups.items():
        whole = values if all(map(math.isfinite, values)) else [math.nan]
        spread = {y: statistics.median(whole), ends[0]: min(whole), ends[1]: max(whole)}
        gathered.append({**dict(zip(by, group, strict=True)), **spread})
    return gathered


def _rows(records: Any, fields: list[str], positive: dict[str, bool]) -> list[dict[str, Any]]:
    for field in fields:
        if any(sign in field for sign in ".[]\\'\""):
            # Vega reads these as paths into nested records, and would show an empty chart.
            advice = "Rename the field, and give its name as the title of the axis."
            raise bad_argument(
                "records", "line_chart", "named without . [ ] or quotes", field, advice
            )
    rows = []
    for record in records.to_dict("records") if hasattr(records, "to_dict") else records:
        missing = [field for field in fields if field not in record]
        if missing:
            got = f"a record with {', '.join(record) or 'nothing'}"
            raise bad_argument("records", "line_chart", f"records with {missing[0]!r}", got)
        rows.append({f: _plain(record[f], positive.get(f, False)) for f in fields})
    if not rows:
        raise bad_argument("records", "line_chart", "at least one record", "none")
    return rows


def line_chart(
    records: "Iterable[Mapping[str, Any]] | pd.DataFrame",
    x: str,
    y: str,
    color: str | None = None,
    low: str | None = None,
    high: str | None = None,
    reference: str | float | None = None,
    data: "Iterable[Mapping[str, Any]] | pd.DataFrame | None" = None,
    repeats: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
) -> Chart:
    """Lines with points of ``y`` against ``x``, one per value of ``color``.

    Args:
        records: one mapping per point, or a table with one row per point. NaN, infinity, and what
            a logarithmic axis cannot show, are gaps.
        x: field on the horizontal axis.
        y: field on the vertical axis.
        color: field that tells the lines apart, by color and by shape.
        low: lower end of the interval of each point, drawn as a band with ``high``.
        high: upper end of the interval.
        reference: what theory says, drawn dashed: a number (a horizontal line) or a field.
        data: records of what was observed, drawn as dots: ``x`` and ``y`` only.
        repeats: whether records of one ``x`` and ``color`` are repetitions (seeds): their median
            is drawn, and a band from the least to the largest; a gap where one is not finite.
        log_x: logarithmic horizontal axis.
        log_y: logarithmic vertical axis.
        title: of the chart.
        x_title: of the horizontal axis; the field's name by default.
        y_title: of the vertical axis; the field's name by default.
    """
    import altair as alt

    if (low is None) != (high is None):
        raise bad_argument("low", "line_chart", "given together with high", f"{low}, {high}")
    if repeats:
        if low is not None or isinstance(reference, str):
            requirement = "False with the fields low, high or reference, which belong to one record"
            raise bad_argument("repeats", "line_chart", requirement, repeats)
        low, high = f"least {y}", f"largest {y}"
        records = _gather(records, x, y, color, (low, high))
    curve = reference if isinstance(reference, str) else None
    level = None if reference is None or isinstance(reference, str) else float(reference)
    if level is not None and not (math.isfinite(level) and (level > 0 or not log_y)):
        raise bad_argument("reference", "line_chart", "a number on the vertical axis", level)

    vertical = [field for field in (y, low, high, curve) if field]
    fields = list(dict.fromkeys(field for field in (x, *vertical, color) if field))
    rows = _rows(records, fields, {x: log_x, **dict.fromkeys(vertical, log_y)})
    if low and log_y:
        # An interval that reaches down to zero has no end on this axis: it ends at the lowest mark.
        floor = min((row[f] for row in rows for f in vertical if row[f] is not None), default=None)
        rows = [{**row, low: floor if row[low] is None else row[low]} for row in rows]

    dots = [] if data is None else _rows(data, [x, y], {x: log_x, y: log_y})
    across = [row[x] for row in rows + dots]
    upward = [row[field] for row in rows for field in vertical] + [row[y] for row in dots] + [level]
    x_axis = axis_channel(alt.X, x, x_title or x, log_x, across)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x_axis)

    def drawn(field: str, chart: Any = base) -> Any:
        return chart.encode(y=axis_channel(alt.Y, field, y_title or y, log_y, upward))

    n_lines = len({row[color] for row in rows}) if color else 1
    crowded = len(rows) > MAX_MARKS * n_lines
    channels = color_channels(rows, color, shapes=not crowded) if color else {}
    colored = {name: channel for name, channel in channels.items() if name == "color"}
    layers: list[Any] = []
    if low and high:
        layers.append(drawn(low).mark_area(opacity=0.18).encode(y2=alt.Y2(field=high), **colored))
    layers.append(drawn(y).mark_line().encode(**colored))
    if curve:
        detail = {"detail": alt.Detail(field=color, type="nominal")} if color else {}
        layers.append(drawn(curve).mark_line(style="reference").encode(**detail))
    if level is not None:
        flat = alt.Chart(alt.Data(values=[{"level": level}]))
        layers.append(drawn("level", flat).mark_rule(style="reference"))
    tips = [alt.Tooltip(field=f, format=".4~g" if f in (x, *vertical) else "") for f in fields]
    # Invisible points still tell their numbers to the mouse.
    points = drawn(y).mark_point(filled=True, opacity=0 if crowded else 1)
    layers.append(points.encode(tooltip=tips, **channels))
    if dots:
        seen = alt.Chart(alt.Data(values=dots)).encode(x=x_axis)
        layers.append(drawn(y, seen).mark_point(filled=True, opacity=1, color=GRAY))
    return finish_chart(alt.layer(*layers), title)
