"""How fields become axes, colors and shapes (Altair's encoding channels)."""

import math
from decimal import Decimal
from itertools import count, pairwise
from typing import Any

from finetti.display.charts.chart_theme import PALETTE

# Ordered values get ordered colors, from cold to warm; few of them, colors that are far apart.
_BLUE, _RED, _GREEN, _, _, _ORANGE, _ = PALETTE
FEW_COLORS = {
    1: (_BLUE,),
    2: (_BLUE, _RED),
    3: (_BLUE, _GREEN, _RED),
    4: (_BLUE, _GREEN, _ORANGE, _RED),
}
MAX_SHAPES = 7  # as many as there are colors; more are told apart by color alone
MAX_SIZES = 8  # of a grid, that are ticks themselves
MIN_GAP = 1 / 12  # of an axis, between two ticks
MIN_TICKS = 3
MAX_STEPS = 10  # between ticks of a linear axis


def axis_channel(channel: Any, field: str, title: str, log: bool, values: list[Any]) -> Any:
    """A quantitative axis. Zero belongs on it only if the data reach it: differences matter.

    Where all values are whole, as of tokens and samples, its ticks are so, too.
    """
    import altair as alt

    scale = {"padding": 10, "nice": False, **({"type": "log"} if log else {"zero": False})}
    axis: dict[str, Any] = {"format": ".6~g"}
    shown = sorted({value for value in values if value is not None})
    whole = bool(shown) and _are_whole(shown)
    if whole and not log:
        axis["values"] = _whole_ticks(shown)
    if log and shown:
        few = channel is alt.X and _are_few_sizes(shown)
        ticks = shown if few else _round_ticks(shown, whole)
        axis["values"] = ticks
        # As many digits as tell them apart; 1e+6 is easier to read than seven of them.
        labels = {digits: {f"{tick:.{digits}g}" for tick in ticks} for digits in range(6, 18)}
        digits = next(each for each, texts in labels.items() if len(texts) == len(ticks))
        axis["format"] = f".{digits}~g"
    return channel(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(**scale),
        axis=alt.Axis(**axis),
    )


def _are_whole(shown: list[float]) -> bool:
    """Whether the values count something; rates that happen to be 0.0 and 1.0 do not."""
    counted = shown[-1] > 1 or all(isinstance(value, int) for value in shown)
    return counted and all(value % 1 == 0 for value in shown)


def _whole_ticks(shown: list[float]) -> list[int]:
    """Even steps of 1, 2 or 5 times a power of ten, as many as there is room for.

    >>> _whole_ticks([6, 8]), _whole_ticks([50, 200])
    ([6, 7, 8], [60, 80, 100, 120, 140, 160, 180, 200])
    """
    low, high = round(shown[0]), round(shown[-1])
    sizes = (step * 10**power for power in count() for step in (1, 2, 5))
    size = next(each for each in sizes if high - low <= MAX_STEPS * each)
    return list(range(-(-low // size) * size, high + 1, size))


def _are_few_sizes(shown: list[float]) -> bool:
    """Whether the values are a grid that somebody chose, and far enough apart to be ticks."""
    chosen = all(value == float(f"{value:.3g}") or value % 1 == 0 for value in shown)
    gaps = [high - low for low, high in pairwise(map(math.log, shown))]
    return chosen and len(shown) <= MAX_SIZES and all(g >= MIN_GAP * sum(gaps) for g in gaps)


def _round_ticks(shown: list[float], whole: bool = False) -> list[float]:
    """Powers of ten; 1, 2 and 5 where these are fewer than three; or even steps, as on a ruler.

    >>> _round_ticks([0.004, 3.1]), _round_ticks([0.26, 0.31])
    ([0.01, 0.1, 1.0], [0.26, 0.27, 0.28, 0.29, 0.3, 0.31])
    >>> _round_ticks([6, 8]), _round_ticks([6, 8], whole=True)
    ([6.0, 6.5, 7.0, 7.5, 8.0], [6.0, 7.0, 8.0])
    """
    low, high = shown[0], shown[-1]
    bottom, top = math.log10(low), math.log10(high)
    first, last = math.floor(bottom), math.ceil(top)
    stride = max(1, round((top - bottom) / MAX_SIZES))
    for apart, steps in ((stride, (1,)), (1, (1, 2, 5))):
        powers = range(first, last + 1, apart)
        ticks = [float(f"{step}e{power}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= MIN_TICKS:
            return ticks
    # Whole multiples of 1, 2 or 5 times a power of ten, the coarsest with enough of them.
    start, end = (Decimal(repr(value)) for value in (low, high))  # 0.3 as it is written
    sizes = (f"{step}e{power}" for power in range(last, first - 16, -1) for step in (5, 2, 1))
    for size in map(Decimal, sizes):
        multiples = range(math.ceil(start / size), math.floor(end / size) + 1)
        if len(multiples) > MIN_TICKS or (whole and size == 1):
            # Values next to each other have fewer numbers between them than multiples.
            return list(dict.fromkeys(float(number * size) for number in multiples))
    return shown[:: max(1, len(shown) - 1)]  # one value, or as good as one


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
        values.sort()
        if len(values) in FEW_COLORS:
            colors["range"] = list(FEW_COLORS[len(values)])
        else:  # without the ends that vanish on black and on white
            colors["scheme"] = {"name": "viridis", "extent": [0.15, 0.85]}
        kind["type"] = "ordinal"
    channels: dict[str, Any] = {"color": alt.Color(scale=alt.Scale.from_dict(colors), **kind)}
    if shapes and len(values) <= MAX_SHAPES:
        # Shapes have no order, and Vega says so on the console of the page.
        unordered = {**kind, "type": "nominal"}
        channels["shape"] = alt.Shape(scale=alt.Scale(domain=values), **unordered)
    return channels
