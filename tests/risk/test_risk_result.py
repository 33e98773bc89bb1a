"""What a study of the excess risk says of its numbers."""

import pandas as pd
import pytest

from finetti.risk.risk_experiment import RiskExperiment
from finetti.risk.risk_page import RiskResult
from finetti.risk.risk_trial import RISK_PARTS


def findings(tmp_path, parts, errors, baseline=(100.0, 0.1)):
    values = {"excess": sum(parts), "excess_error": 0.1}
    values |= {"baseline": baseline[0], "baseline_error": baseline[1]}
    for name, value, error in zip(RISK_PARTS, parts, errors, strict=True):
        values |= {name: value, f"{name}_error": error}
    row = {"state": "done", "n_samples": 50, "noise": 1.0, "train_risk": 1.0, "failure": None}
    table = pd.DataFrame([{**row, **values, "bound": None, "bound_note": ""}])
    return RiskResult(RiskExperiment((50,), 1, tmp_path / "trials.sqlite"), table)


@pytest.mark.parametrize(
    ("parts", "errors", "end"),
    [
        ((4.0, 5.71, 3.6), (0.1, 0.1, 0.1), "; largest part: approximation (≤ 5.71)"),
        ((4.0, 2.0, 7.0), (0.1, 0.1, 0.1), "; largest part: optimization (≥ 7)"),
        ((4.0, 2.0, -1.0), (0.1, 0.1, 0.1), "; largest part: generalization (4)"),
        (
            (5.0, 5.71, 3.6),
            (0.3, 0.1, 0.1),
            "the mean answer has 100 ± 0.1",
        ),  # the two largest overlap
        (
            (4.0, 5.71, 3.6),
            (0.1, 0.1, 2.0),
            "the mean answer has 100 ± 0.1",
        ),  # the least may be the largest
    ],
)
def test_the_largest_part_is_named_where_intervals_tell(tmp_path, parts, errors, end):
    headline = findings(tmp_path, parts, errors).headline
    assert headline.endswith(end)
    assert "most of it" not in headline


@pytest.mark.parametrize(
    ("baseline", "word", "end"),
    [
        ((10.6, 0.2), "worse", "the mean answer has 10.6 ± 0.2: the network is worse than nothing"),
        ((36.3, 0.2), "unclear", "has 36.3 ± 0.2: the network is not clearly better"),
        ((35.7, 0.2), "unclear", "has 35.7 ± 0.2: the network is not clearly better"),
        ((40.0, 0.2), "better", "with 50 sequences; the mean answer has 40 ± 0.2"),
    ],
)
def test_a_network_that_is_worse_than_nothing_is_said_to_be(tmp_path, baseline, word, end):
    found = findings(tmp_path, (12.0, 12.0, 12.0), (0.1, 0.1, 0.1), baseline)
    assert found.headline.endswith(end)
    (point,) = found.to_dict()["points"]
    assert point["against_baseline"] == word
    assert point["baseline"] == {"value": baseline[0], "standard_error": baseline[1]}
    assert any(note.startswith("Worse than nothing at n = 50") for note in found.notes) == (
        word == "worse"
    )
    (table,) = found.tables()
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["mean answer"], row["noise"]) == (f"{baseline[0]:g} ± {baseline[1]}", 1.0)
