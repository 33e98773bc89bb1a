"""How fields become axes, colors and shapes (Altair's encoding channels)."""

import math
from typing import Any

MAX_SHAPES = 7  # as many as there are colors; more are told apart by color alone


def axis_channel(channel: Any, field: str, title: str, log: bool, values: list[Any]) -> Any:
    """A quantitative axis. Zero belongs on it only if the data reach it: differences matter."""
    import altair as alt

    scale = {"padding": 10, "nice": False, **({"type": "log"} if log else {"zero": False})}
    axis: dict[str, Any] = {"format": ".6~g"}
    shown = sorted({value for value in values if value is not None})
    if log and shown:
        axis["values"] = _log_ticks(shown)
    return channel(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(**scale),
        axis=alt.Axis(**axis),
    )


def _log_ticks(shown: list[float]) -> list[float]:
    """The values themselves if they are few (a grid of sizes), else 1, 2, 5 or powers of ten."""
    decades = math.log10(shown[-1] / shown[0])
    if len(shown) <= 8 and decades / len(shown) > 0.1:
        return shown
    steps = (1, 2, 5) if decades < 2.5 else (1,)
    stride = max(1, round(decades / 6))
    first, last = math.floor(math.log10(shown[0])), math.ceil(math.log10(shown[-1]))
    return [step * 10.0**power for power in range(first, last + 1, stride) for step in steps]


def color_channels(rows: list[dict[str, Any]], color: str, shapes: bool = True) -> dict[str, Any]:
    """Color, and shape as well for those who do not see color, while there are enough shapes."""
    import altair as alt

    values = list(dict.fromkeys(row[color] for row in rows))
    # The same explicit domain on both channels and all layers makes Vega merge their legends;
    # without the opacity, its symbols would be as pale as the band.
    legend = alt.Legend(symbolOpacity=1)
    colors: dict[str, Any] = {"domain": values}
    kind: dict[str, Any] = {"field": color, "type": "nominal", "legend": legend}
    if all(isinstance(value, int | float) for value in values):
        # Ordered values get ordered colors, without the ends that vanish on black and on white.
        values.sort()
        colors["scheme"] = {"name": "viridis", "extent": [0.15, 0.85]}
        kind["type"] = "ordinal"
    channels: dict[str, Any] = {"color": alt.Color(scale=alt.Scale.from_dict(colors), **kind)}
    if shapes and len(values) <= MAX_SHAPES:
        channels["shape"] = alt.Shape(scale=alt.Scale(domain=values), **kind)
    return channels
