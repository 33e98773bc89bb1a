"""The look of every chart of the house."""

from typing import Any

# Okabe & Ito (2008): told apart under the common color vision deficiencies, and in this order
# also by lightness. Their yellow is left out: it vanishes on white paper.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#5B5B5B")
INK = "#333333"
GRAY = "#7a7a7a"  # seen on white and on black
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"


def chart_config() -> dict[str, Any]:
    """The Vega-Lite ``config`` of the house.

    For charts of your own:
    ``altair.theme.register("finetti", enable=True)(lambda: {"config": chart_config()})``.
    """
    text = {"font": FONT, "color": INK}
    labels = {"labelFont": FONT, "titleFont": FONT, "labelColor": INK, "titleColor": INK}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"continuousWidth": 460, "continuousHeight": 280, "stroke": None},
        "title": {**text, "fontSize": 14, "fontWeight": 600, "anchor": "start", "offset": 12},
        "axis": {
            **labels,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "domainColor": "#888888",
            "tickColor": "#888888",
            "tickSize": 4,
            "gridColor": "#888888",
            "gridOpacity": 0.18,
            "labelFlush": False,
        },
        "legend": {
            **labels,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": 600,
            "symbolSize": 70,
        },
        "mark": {"color": PALETTE[0]},
        "line": {"strokeWidth": 2},
        "point": {"size": 46, "filled": True},
        # What theory says: dashed.
        "style": {
            "reference": {
                "color": GRAY,
                "stroke": GRAY,
                "strokeDash": [6, 4],
                "strokeWidth": 1.5,
            }
        },
        "range": {"category": list(PALETTE)},
    }
