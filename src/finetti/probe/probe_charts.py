"""The figures of a probe: success against m, critical sizes against T, training curves."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from finetti.core.errors import bad_argument
from finetti.display import Chart, side_by_side
from finetti.display.charts.chart_axes import axis_channel, color_channels
from finetti.display.charts.chart_theme import FONT, GRAY, INK, PALETTE, chart_config
from finetti.probe.analysis.probe_analysis import Analysis, Key
from finetti.probe.analysis.scaling_laws import FORMULAS, ScalingLaws
from finetti.probe.analysis.trial_tables import Frame

CURVE_POINTS = 120
MAX_SIDE = 0.03  # of the axis, for all points of one size
HEADROOM = 1.5  # of the highest size, law or bound: where wider bands are cut off
MAX_CHECKS = 400  # of a run that are drawn
LAW_POINTS = 80
# Just beyond the end of the bar, upside down below.
OPEN_ENDS: dict[str, Any] = {
    "high": {"shape": "triangle-up", "yOffset": -4},
    "low": {"shape": "triangle-down", "yOffset": 4},
}
TITLES = {"loss": "training loss", "accuracy": "validation accuracy"}
LETTERS = {"n_samples": "m", "context_length": "T"}
Bounds = Mapping[str, Callable[[int], float | None] | Mapping[int, float]]


def success_chart(analysis: Analysis, log_x: bool = False) -> Chart:
    """Success rate against m: cells with Wilson's intervals, and the fitted curves (Figure 4).

    One panel per learner; the dashed line is the level of the critical sizes.

    Args:
        analysis: of a table of trials.
        log_x: logarithmic axis of m, as a search chooses them.
    """
    return _row([_success_panel(analysis, group, log_x) for group in analysis.laws])


def _success_panel(analysis: Analysis, group: Key, log_x: bool) -> Chart:
    import altair as alt

    cells = analysis.success
    lengths = sorted(cells["context_length"].unique().tolist())
    for name, value in zip(analysis.by, group, strict=True):
        cells = cells[cells[name] == value]
    names = {"context_length": "T", "n_samples": "m"}
    points = cells.rename(columns=names)[["T", "m", "trials", "rate", "low", "high"]]
    points = points.to_dict("records")
    _beside(points, lengths, log_x)
    between = np.geomspace if log_x else np.linspace
    grid = between(cells["n_samples"].min(), cells["n_samples"].max(), CURVE_POINTS)
    lines = [
        {"T": key[-1], "m": float(m), "rate": float(p)}
        for key, curve in analysis.curves.items()
        if key[:-1] == group
        for m, p in zip(grid, curve.probability(grid), strict=True)
    ]
    channels = color_channels(points, "T")
    colored = {"color": channels["color"]}

    def across(field: str) -> Any:
        return axis_channel(alt.X, field, "samples m", log_x, [each["m"] for each in points])

    def upward(field: str) -> Any:
        scale = alt.Scale(domain=[0, 1], padding=6, nice=False)
        axis = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2~g")
        return alt.Y(field=field, type="quantitative", title="success rate", scale=scale, axis=axis)

    seen = alt.Chart(alt.Data(values=points)).encode(x=across("at"))
    level = alt.Chart(alt.Data(values=[{"rate": analysis.level}])).encode(y=upward("rate"))
    tips = [
        alt.Tooltip(field=f, format=".3~g") for f in ("T", "m", "trials", "rate", "low", "high")
    ]
    layers = [level.mark_rule(style="reference")]
    bars = seen.encode(y=upward("low"), y2=alt.Y2(field="high"), **colored)
    layers.append(bars.mark_rule(strokeWidth=1.2, opacity=0.45))
    if lines:
        drawn = alt.Chart(alt.Data(values=lines)).encode(x=across("m"), y=upward("rate"), **colored)
        layers.append(drawn.mark_line())
    layers.append(seen.encode(y=upward("rate"), tooltip=tips, **channels).mark_point(opacity=1))
    return _finish(layers, " · ".join(map(str, group)))


def _beside(points: list[dict[str, Any]], lengths: list[int], log: bool = False) -> None:
    """Put points of one m side by side, ``at`` a little less or more: none hides another."""
    places = np.array([each["m"] for each in points], dtype=float)
    places = np.log(places) if log else places
    sizes = np.unique(places)
    room = min(np.diff(sizes).min() / 2, MAX_SIDE * np.ptp(sizes)) if len(sizes) > 1 else 0.0
    apart = room / len(lengths)
    for each, place in zip(points, places, strict=True):
        at = float(place + apart * (lengths.index(each["T"]) - (len(lengths) - 1) / 2))
        each["at"] = math.exp(at) if log else at


def critical_chart(
    analysis: Analysis,
    bounds: Bounds | None = None,
    extrapolate_to: float | None = None,
) -> Chart:
    """Critical sample size against T, with both laws and their intervals (Figure 2, left).

    A triangle marks a size that is censored: above the largest (▲) or below the smallest size tried
    (▼). A small triangle at the end of a bar says that the interval goes on there, beyond the sizes
    tried. Bands are the intervals of the laws, carried through from the trials.

    Args:
        analysis: of a table of trials.
        bounds: name → m as a function of T, or T → m: what no learner can do better than.
        extrapolate_to: largest T of the laws; that of the trials by default.
    """
    import altair as alt

    lengths = sorted({key[-1] for key in analysis.sizes})
    last = max(extrapolate_to or 0, lengths[-1])
    many = len(analysis.laws) > 1
    points = [_size_record(key, size) for key, size in analysis.sizes.items()]
    lines = [
        each
        for group, laws in analysis.laws.items()
        for each in _law_records(group, laws, lengths[0], last)
    ]
    if not many:  # learners have colors; of a single one, laws have
        for each in points:
            each["line"] = "trials"
        for each in lines:
            each["line"] = each["law"]
    domain = list(dict.fromkeys(each["line"] for each in (*points, *lines)))
    palette = PALETTE if many else (INK, *PALETTE)
    colors = [palette[i % len(palette)] for i in range(len(domain))]
    color = alt.Color(
        field="line",
        type="nominal",
        scale=alt.Scale(domain=domain, range=colors),
        legend=alt.Legend(title=None, symbolOpacity=1),
    )
    dash = alt.StrokeDash(
        field="law",
        type="nominal",
        scale=alt.Scale(domain=list(FORMULAS.values()), range=[[1, 0], [3, 3]]),
        legend=alt.Legend(title=None) if many and lines else None,
    )
    floor = _bound_records(bounds or {}, lengths[0], last)
    across = axis_channel(alt.X, "T", "context length T", True, sorted({*lengths, last}))

    low, high = _vertical_range(points, lines, floor)

    def upward(field: str) -> Any:
        scale = alt.Scale(domain=[low, high], nice=True)
        return alt.Y(field=field, type="quantitative", title="critical samples m", scale=scale)

    layers = []
    if lines:
        drawn = alt.Chart(alt.Data(values=lines)).encode(x=across, color=color)
        band = drawn.encode(
            y=upward("low"), y2=alt.Y2(field="high"), detail=alt.Detail(field="law")
        )
        layers.append(band.mark_area(opacity=0.14, clip=True))
        layers.append(drawn.encode(y=upward("m"), strokeDash=dash).mark_line(clip=True))
    if floor:
        drawn = alt.Chart(alt.Data(values=floor)).encode(x=across, y=upward("m"))
        layers.append(drawn.encode(detail=alt.Detail(field="bound")).mark_line(style="reference"))
        # Below its left end: there the bands are narrow, and above it.
        firsts = {each["bound"]: each for each in reversed(floor)}
        ends = alt.Chart(alt.Data(values=[*firsts.values()]))
        ends = ends.encode(x=across, y=upward("m"), text=alt.Text(field="bound"))
        layers.append(ends.mark_text(align="left", dy=12, dx=4, color=GRAY, font=FONT, fontSize=11))
    seen = alt.Chart(alt.Data(values=points)).encode(x=across, color=color)
    layers.append(seen.encode(y=upward("low"), y2=alt.Y2(field="high")).mark_rule(strokeWidth=1.6))
    for end, where in OPEN_ENDS.items():
        opened = [{**each, "open": end} for each in points if each[f"open_{end}"]]
        if opened:
            arrows = alt.Chart(alt.Data(values=opened)).encode(x=across, y=upward(end), color=color)
            layers.append(arrows.mark_point(filled=True, size=45, opacity=1, **where))
    shape = alt.Shape(
        field="censored",
        type="nominal",
        scale=alt.Scale(
            domain=["", "right", "left"], range=["circle", "triangle-up", "triangle-down"]
        ),
        legend=None,
    )
    tips = [alt.Tooltip(field=f) for f in ("line", "T", "interval", "reason")]
    layers.append(seen.encode(y=upward("m"), shape=shape, tooltip=tips).mark_point(opacity=1))
    return _finish(layers, f"Samples needed for success {analysis.level:g}")


def _vertical_range(
    points: list[dict[str, Any]], lines: list[dict[str, Any]], floor: list[dict[str, Any]]
) -> tuple[float, float]:
    """Return the vertical range: all sizes, laws and bounds, and as much of the bands as fits."""
    ends = [each[f] for each in points for f in ("low", "high", "m") if each[f] is not None]
    values = [*ends, *(each["m"] for each in (*lines, *floor))] or [1.0]
    low = min([*values, *(each["low"] for each in lines)])
    high = max([*values, *(each["high"] for each in lines)])
    low = 0.0 if floor else max(low, min(values) / HEADROOM)
    return low, min(high, HEADROOM * max(values))


def _size_record(key: Key, size: Any) -> dict[str, Any]:
    low, high = float(size.interval.low), float(size.interval.high)
    edge = {"right": size.m_max, "left": size.m_min}.get(size.censored)
    value = size.value if size.value is not None else edge
    return {
        "T": key[-1],
        "line": " · ".join(map(str, key[:-1])) or "trials",
        "m": value,
        # An open end is drawn as far as sizes were tried, and marked.
        "low": max(low, size.m_min) if value is not None else None,
        "high": min(high, size.m_max) if value is not None else None,
        # The triangle of a censored size stands at that end, and says the same.
        "open_low": value is not None and low < size.m_min and size.censored != "left",
        "open_high": value is not None and high > size.m_max and size.censored != "right",
        "censored": size.censored,
        "interval": size.text,
        "reason": size.reason,
    }


def _law_records(group: Key, laws: ScalingLaws, first: float, last: float) -> list[dict[str, Any]]:
    records = []
    for name, law in laws.laws.items():
        for length in np.geomspace(first, last, LAW_POINTS):
            value, interval = law.predict(float(length))
            records.append(
                {
                    "T": float(length),
                    "line": " · ".join(map(str, group)) or "trials",
                    "law": FORMULAS[name],
                    "m": value,
                    "low": interval.low,
                    "high": interval.high,
                }
            )
    return records


def _bound_records(bounds: Bounds, first: float, last: float) -> list[dict[str, Any]]:
    records = []
    for name, bound in bounds.items():
        if isinstance(bound, Mapping):
            pairs = sorted(bound.items())
        else:
            lengths = dict.fromkeys(round(t) for t in np.geomspace(first, last, LAW_POINTS))
            pairs = [(length, bound(length)) for length in lengths]
        kept = [(t, m) for t, m in pairs if m is not None and math.isfinite(m)]
        records += [{"T": t, "m": float(m), "bound": name} for t, m in kept]
    return records


def training_chart(
    table: Frame,
    color: str = "n_samples",
    measures: Sequence[str] = ("loss", "accuracy"),
) -> Chart:
    """What the trials traced, against the training step: every run is a line (Figures 2 right, 3).

    Args:
        table: one row per run with ``trace``: ``study.table(details=True)`` of trials that trace.
        color: column that tells runs apart: n_samples, context_length or learner.
        measures: traced lists to draw, one panel each; losses on a logarithmic axis.
    """
    owner = "training_chart"
    for name in (color, "trace"):
        if name not in table:
            got = f"the columns {', '.join(map(str, table))}"
            raise bad_argument("table", owner, f"a table with a column {name}", got)
    values = table[color].tolist()
    panels = []
    for measure in measures:
        records = [
            {color: value, "run": run, "step": step, measure: each}
            for run, (value, trace) in enumerate(zip(values, table["trace"], strict=True))
            if trace and measure in trace
            for step, each in _thinned(trace["step"], trace[measure])
        ]
        if not records:
            advice = f'Run the trials with trace = ["{measure}"].'
            raise bad_argument("table", owner, f"traces of {measure}", "none", advice)
        panels.append(_training_panel(records, color, measure))
    return _row(panels)


def _thinned(steps: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
    """Every check, or evenly some of them and the last one."""
    pairs = list(zip(steps, values, strict=True))
    stride = math.ceil(len(pairs) / MAX_CHECKS)
    return pairs[::stride] if (len(pairs) - 1) % stride == 0 else [*pairs[::stride], pairs[-1]]


def _training_panel(records: list[dict[str, Any]], color: str, measure: str) -> Chart:
    import altair as alt

    letter = LETTERS.get(color, color)
    for each in records:
        each[letter] = each.pop(color)
    log_y = "loss" in measure
    values = [each[measure] for each in records if not log_y or each[measure] > 0]
    steps = [each["step"] for each in records]
    base = alt.Chart(alt.Data(values=records)).encode(
        x=axis_channel(alt.X, "step", "training step", False, steps),
        y=axis_channel(alt.Y, measure, TITLES.get(measure, measure), log_y, values),
        detail=alt.Detail(field="run"),
        **color_channels(records, letter, shapes=False),
    )
    n_runs = len({each["run"] for each in records})
    opacity = max(0.35, min(1.0, 4 / n_runs))
    return _finish([base.mark_line(strokeWidth=1.4, opacity=opacity, clip=True)], "")


def _row(panels: list[Chart]) -> Chart:
    if len(panels) == 1:
        return panels[0]
    chart = side_by_side(*panels)
    del chart["config"]["legend"]["title"]  # 100 alone would not say that it is a T
    return chart


def _finish(layers: list[Any], title: str) -> Chart:
    import altair as alt

    spec = alt.layer(*layers, **({"title": title} if title else {})).to_dict()
    return Chart(spec, config=chart_config())
