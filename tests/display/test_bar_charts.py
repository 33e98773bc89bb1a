"""Bars that add up: each panel has its own values below its bars, in their order."""

import re

from finetti.display.charts.bar_charts import stacked_bars


def test_each_panel_has_its_own_values_in_ascending_order(tmp_path):
    sizes = {"T = 10": (34, 9, 125), "T = 20": (91, 36, 250)}
    records = [
        {"m": m, "trials": 3, "outcome": "solved", "panel": panel}
        for panel, values in sizes.items()
        for m in values
    ]
    chart = stacked_bars(records, "m", "trials", "outcome", {"solved": "blue"}, "panel")
    drawn = chart.save(tmp_path / "bars.svg").read_text()
    labels = [int(each) for each in re.findall(r"<text[^>]*>(\d+)</text>", drawn)]
    assert labels == [9, 34, 125, 36, 91, 250]
