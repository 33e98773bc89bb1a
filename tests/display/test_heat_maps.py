"""Heat maps and ranked bars: what is drawn, and that it can be drawn."""

import pytest
import vl_convert

from finetti.display import heat_map, ranked_bars


def cells(layers, heads):
    return [
        {"layer": n, "head": h, "norm": 1.0 + n * heads + h}
        for n in range(layers)
        for h in range(heads)
    ]


def test_numbers_are_written_while_they_fit():
    small = heat_map(cells(3, 4), "head", "layer", "norm", title="Norms")
    assert len(small["layer"]) == 2
    assert small["title"] == "Norms"
    svg = vl_convert.vegalite_to_svg(small)
    assert ">12</text>" in svg
    assert ">Norms</text>" in svg
    large = heat_map(cells(40, 40), "head", "layer", "norm")
    assert len(large["layer"]) == 1
    assert large["width"] <= 640


def test_dark_cells_have_white_numbers():
    chart = heat_map(cells(1, 5), "head", "layer", "norm")
    assert [row["dark"] for row in chart["data"]["values"]] == [False, False, False, True, True]
    logs = [{"x": i, "y": 0, "v": 10.0**i} for i in range(5)]
    chart = heat_map(logs, "x", "y", "v", log=True)
    assert [row["dark"] for row in chart["data"]["values"]] == [False, False, False, True, True]
    flat = heat_map([{"x": 0, "y": 0, "v": 1.0}], "x", "y", "v")
    assert not flat["data"]["values"][0]["dark"]


def test_bars_of_powers_of_ten():
    chart = ranked_bars(
        [("theirs", 58.1, "1.2·10⁵⁸", "a"), ("ours", 13.8, "6.7·10¹³", "b")], logarithmic=True
    )
    svg = vl_convert.vegalite_to_svg(chart)
    for words in ("10⁰", "10⁵⁰", "6.7·10¹³", "theirs"):
        assert words in svg
    plain = ranked_bars([("one", 3.0, "3")], x_title="sizes")
    assert ">sizes</text>" in vl_convert.vegalite_to_svg(plain)


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one cell"):
        heat_map([], "x", "y", "v")
    with pytest.raises(ValueError, match="at least one bar"):
        ranked_bars([])
