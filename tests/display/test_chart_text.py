"""Charts in words and as tables."""

from finetti.display import line_chart, side_by_side, waterfall
from finetti.display.charts.bar_charts import stacked_bars
from finetti.display.charts.chart_text import chart_tables, describe_chart

ROWS = [
    {"T": size, "error": factor / size, "of": name}
    for name, factor in (("softmax", 2.0), ("linear", 1.0))
    for size in (8, 32)
]


def chart(**options):
    return line_chart(ROWS, "T", "error", color="of", log_x=True, title="It falls", **options)


def test_lines_are_described_by_axes_ranges_and_names():
    assert describe_chart(chart(x_title="tokens", reference=0.5)) == (
        "It falls. Lines: error (0.03125 to 0.25) against tokens (8 to 32, logarithmic), "
        "for of softmax, linear."
    )


def test_the_table_holds_every_point_and_no_level():
    (table,) = chart_tables(chart(x_title="tokens", reference=0.5))
    assert table.columns == ("tokens", "error", "of")
    assert table.rows == tuple((row["T"], row["error"], row["of"]) for row in ROWS)


def test_panels_are_told_one_by_one():
    both = side_by_side(chart(), line_chart(ROWS[:2], "T", "error", title="alone"))
    text = describe_chart(both)
    assert text.count("Lines: error") == 2
    assert "alone." in text
    assert [len(table.rows) for table in chart_tables(both)] == [4, 2]


def test_bars_and_waterfalls_have_words_and_numbers():
    bars = stacked_bars(
        [{"m": m, "n": 3, "what": "yes", "T": 8} for m in (1, 2)],
        "m",
        "n",
        "what",
        {"yes": "red"},
        "T",
    )
    falls = waterfall([("rent", 3.0), ("discount", -1.0)], ("together", 2.0), title="Sum")
    assert describe_chart(bars).startswith("Bars: n (3 to 3) against m (1 to 2)")
    assert describe_chart(falls).startswith("Sum. Bars:")
    assert len(chart_tables(bars)[0].rows) == 2
    assert len(chart_tables(falls)[0].rows) == 3
