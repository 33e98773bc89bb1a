import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import altair as alt
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from finetti.core.errors import InputError
from finetti.display import line_chart, side_by_side
from finetti.display.charts.chart_axes import axis_channel

RECORDS = [
    {
        "T": np.int64(size),
        "error": np.float64(c / size),
        "low": 0.0,
        "high": 2 * c / size,
        "of": kind,
    }
    for kind, c in (("softmax", 2.0), ("CME", 1.0))
    for size in (8, 16, 32)
]


def layers(spec):
    return [layer["mark"]["type"] for layer in spec["layer"]]


def rows(spec):
    found = [part["data"]["values"] for part in (spec, *spec["layer"]) if "data" in part]
    return found[0]


def test_the_specification_is_plain_json_with_its_own_data():
    spec = line_chart(RECORDS, "T", "error", color="of", log_x=True, title="t")
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    assert len(rows(spec)) == len(RECORDS)
    assert spec["title"] == "t"


def test_layers_follow_what_is_asked_for():
    assert layers(line_chart(RECORDS, "T", "error")) == ["line", "point"]
    full = line_chart(RECORDS, "T", "error", low="low", high="high", reference=0.1)
    assert layers(full) == ["area", "line", "rule", "point"]
    curve = line_chart(RECORDS, "T", "error", reference="high")
    assert layers(curve) == ["line", "line", "point"]


def test_a_table_is_drawn_as_its_records_are():
    assert line_chart(pd.DataFrame(RECORDS), "T", "error") == line_chart(RECORDS, "T", "error")


def test_repeats_are_their_median_and_range():
    shown = {"x": 1, "of": "a"}
    seeds = [{**shown, "y": y} for y in (5.0, 1.0, 2.0)] + [{"x": 1, "of": "b", "y": 7.0}]
    failed = [{"x": 2, "of": "a", "y": y} for y in (1.0, math.nan)]
    spec = line_chart(seeds + failed, "x", "y", "of", repeats=True)
    assert rows(spec) == [
        {**shown, "y": 2.0, "least y": 1.0, "largest y": 5.0},
        {"x": 1, "of": "b", "y": 7.0, "least y": 7.0, "largest y": 7.0},
        {"x": 2, "of": "a", "y": None, "least y": None, "largest y": None},
    ]
    assert layers(spec) == ["area", "line", "point"]


def test_data_are_dots_and_long_lines_have_no_marks():
    curve = [{"x": x, "y": x**2} for x in range(51)]
    *_, marks, dots = line_chart(curve, "x", "y", data=[{"x": 3.0, "y": 8.0}])["layer"]
    assert marks["mark"]["opacity"] == 0 < dots["mark"]["opacity"]
    assert dots["data"]["values"] == [{"x": 3.0, "y": 8.0}]
    assert line_chart(curve[:50], "x", "y")["layer"][-1]["mark"]["opacity"] == 1


def test_charts_side_by_side_keep_their_layers_and_share_one_look():
    chart = line_chart(RECORDS, "T", "error", color="of")
    both = side_by_side(chart, chart)
    assert [part["layer"] for part in both["hconcat"]] == [chart["layer"]] * 2
    assert all("config" not in part for part in both["hconcat"])
    assert both["config"]["range"] == chart["config"]["range"]
    svg = both._repr_svg_()
    assert svg.count("Symbol legend") == 1
    assert svg.count("Y-axis") == 2


def test_lines_are_told_apart_by_color_and_by_shape():
    points = line_chart(RECORDS, "T", "error", color="of")["layer"][-1]["encoding"]
    assert points["color"]["field"] == points["shape"]["field"] == "of"
    assert points["color"]["scale"]["domain"] == ["softmax", "CME"]


def axes(xs, ys, **options):
    records = [{"x": x, "y": y} for x, y in zip(xs, ys, strict=True)]
    spec = line_chart(records, "x", "y", log_x=True, log_y=True, **options)
    return [spec["layer"][0]["encoding"][name]["axis"] for name in "xy"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([3.1, 0.0042], [0.01, 0.1, 1]),
        ([0.31, 0.29], [0.29, 0.295, 0.3, 0.305, 0.31]),
        ([3, 30], [5, 10, 20]),
        ([0.31], [0.31]),
        ([1, 1e-300, 1e300], [10.0**power for power in range(-300, 301, 75)]),
    ],
)
def test_logarithmic_axes_have_round_ticks(values, ticks):
    assert axes(values, values)[1]["values"] == pytest.approx(ticks)


def test_sizes_that_somebody_chose_are_ticks_while_there_is_room():
    for sizes in ([16, 32, 64, 128], [100, 10000], [0.01, 0.3], [1000, 1500, 2000, 3000]):
        assert axes(sizes, sizes)[0]["values"] == sizes
    assert axes([1, 2, 3, 1000], [1, 2, 3, 4])[0]["values"] == [1, 10, 100, 1000]
    measured = [123.456789, 234.56789, 987.654321]
    assert axes(measured, measured)[0]["values"] == [200, 400, 600, 800]
    # What theory says is on the axis as well.
    assert axes([1, 2], [3.0, 2.0], reference=500.0)[1]["values"][-1] == 500.0


@example(64.0, 2.220446049250313e-16, 2)  # neighbors among the numbers of float64
@given(st.floats(1e-30, 1e30), st.floats(0, 12), st.integers(2, 12))
def test_ticks_are_within_the_data_and_their_labels_differ(low, decades, count):
    values = [low * 10 ** (decades * i / (count - 1)) for i in range(count)]
    for channel in (alt.X, alt.Y):
        axis = axis_channel(channel, "x", "x", True, values)["axis"]
        ticks, digits = axis["values"], axis["format"].replace("~", "")
        assert min(values) <= min(ticks) <= max(ticks) <= max(values)
        assert len({f"{tick:{digits}}" for tick in ticks}) == len(ticks)
        if max(values) > min(values) * (1 + 1e-12):
            assert 2 <= len(ticks) <= 12


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("sizes", [[6, 7], [6, 7, 8], [6.0, 7.0], [401, 402], [1]])
def test_counts_have_whole_ticks(sizes, log):
    records = [{"tokens": size, "rate": 0.5 + size / 1000} for size in sizes]
    for x, y in (("tokens", "rate"), ("rate", "tokens")):
        spec = line_chart(records, x, y, log_x=log and x == "tokens", log_y=log and y == "tokens")
        svg = ElementTree.fromstring(spec._repr_svg_())
        part = "X-axis" if x == "tokens" else "Y-axis"
        (axis,) = (g for g in svg.iter() if (g.get("aria-label") or "").startswith(part))
        *ticks, title = (text.text for text in axis.iter() if text.tag.endswith("text"))
        assert title == "tokens"
        assert ticks
        assert all(tick.isdigit() for tick in ticks), ticks


def test_rates_of_0_and_1_are_no_counts():
    spec = line_chart([{"x": 3, "y": 0.0}, {"x": 4, "y": 1.0}], "x", "y")
    x, y = (spec["layer"][0]["encoding"][name]["axis"] for name in "xy")
    assert x["values"] == [3, 4]
    assert "values" not in y


def test_what_an_axis_cannot_show_is_a_gap():
    bad = [{"x": 1.0, "y": y} for y in (1.0, math.nan, math.inf, -1.0, 0.0)]
    shown = [row["y"] for row in rows(line_chart(bad, "x", "y", log_y=True))]
    assert shown == [1.0, None, None, None, None]
    assert [row["y"] for row in rows(line_chart(bad, "x", "y"))][3:] == [-1.0, 0.0]


def test_an_interval_down_to_zero_ends_at_the_lowest_mark_of_a_log_axis():
    spec = line_chart(RECORDS, "T", "error", low="low", high="high", log_y=True)
    assert {row["low"] for row in rows(spec)} == {1 / 32}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": []}, "at least one record"),
        ({"y": "loss"}, "'loss'"),
        ({"low": "low"}, "together with high"),
        ({"reference": 0.0, "log_y": True}, "reference"),
        ({"repeats": True, "reference": "high"}, "repeats"),
        ({"records": [{"a.b": 1}], "x": "a.b", "y": "a.b"}, "a.b"),
    ],
)
def test_bad_input_names_the_argument(change, message):
    with pytest.raises(InputError, match=message):
        line_chart(**{"records": RECORDS, "x": "T", "y": "error", **change})


@pytest.mark.parametrize(
    ("suffix", "start"), [("svg", b"<svg"), ("PNG", b"\x89PNG"), ("pdf", b"%PDF"), ("html", b"<!D")]
)
def test_files_by_suffix(tmp_path, suffix, start):
    spec = line_chart(RECORDS, "T", "error", color="of", low="low", high="high", log_y=True)
    content = spec.save(tmp_path / f"chart.{suffix}").read_bytes()
    assert content.lstrip().startswith(start)
    if suffix == "svg":
        text = "".join(ElementTree.fromstring(content).itertext())
        assert "softmax" in text
    if suffix == "html":
        assert b'src="http' not in content  # scripts are inside the file


def test_a_chart_shows_itself_in_a_notebook():
    assert line_chart(RECORDS, "T", "error")._repr_svg_().startswith("<svg")


def test_an_unknown_suffix_says_which_there_are(tmp_path):
    with pytest.raises(InputError, match=r"\.svg, \.png, \.pdf, \.html"):
        line_chart(RECORDS, "T", "error").save(tmp_path / "chart.gif")


def test_a_chart_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        line_chart(RECORDS, "T", "error").save(tmp_path / "missing" / "chart.svg")


def test_altair_is_loaded_only_when_a_chart_is_made():
    code = (
        "import sys; from finetti.display import line_chart, Card, to_text; to_text(Card('a')); "
        "sys.exit(bool({'altair', 'vl_convert', 'jax', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
