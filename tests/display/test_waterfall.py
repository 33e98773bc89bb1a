"""A sum, part by part."""

import pytest

from finetti.core import InputError
from finetti.display import waterfall


def test_every_bar_starts_where_the_last_one_ended(tmp_path):
    chart = waterfall([("a", 2.0, 0.1), ("b", -0.5)], ("all", 1.5, 0.2), title="Sum", reference=3.0)
    rows = chart["layer"][0]["data"]["values"]
    assert [(row["from"], row["to"]) for row in rows] == [(0, 2), (2, 1.5), (0, 1.5)]
    assert [row["kind"] for row in rows] == ["adds", "takes", "total"]
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx((1.8, 2.2))  # two standard errors
    assert rows[1]["low"] == rows[1]["high"]
    assert chart["title"] == {
        "text": "Sum",
        "subtitle": "Lines: two standard errors on either side",
    }
    assert waterfall([("a", 2.0)], ("all", 2.0), title="Sum")["title"] == {"text": "Sum"}
    assert chart.save(tmp_path / "sum.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one part"),
        ([("a", float("nan"))], "finite"),
        ([("a", 1.0, -1.0)], "standard errors"),
        ([("a", 1.0), ("a", 2.0)], "differ"),
    ],
)
def test_what_cannot_be_drawn_is_refused(parts, message):
    with pytest.raises(InputError, match=message):
        waterfall(parts, ("all", 1.0))
