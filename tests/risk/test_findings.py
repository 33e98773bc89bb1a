"""What a study of the excess risk says of its numbers."""

import pandas as pd
import pytest

from finetti.risk.experiment import RiskExperiment
from finetti.risk.findings import RiskFindings
from finetti.risk.trial import PARTS


def findings(tmp_path, parts, errors):
    values = {"excess": sum(parts), "excess_error": 0.1}
    for name, value, error in zip(PARTS, parts, errors, strict=True):
        values |= {name: value, f"{name}_error": error}
    row = {"state": "done", "n_samples": 50, "noise": 1.0, "train_risk": 1.0, "failure": None}
    table = pd.DataFrame([{**row, **values, "bound": None, "bound_note": ""}])
    return RiskFindings(RiskExperiment((50,), 1, tmp_path / "trials.sqlite"), table)


@pytest.mark.parametrize(
    ("parts", "errors", "end"),
    [
        ((4.0, 5.71, 3.6), (0.1, 0.1, 0.1), "; largest part: approximation (≤ 5.71)"),
        ((4.0, 2.0, 7.0), (0.1, 0.1, 0.1), "; largest part: optimization (≥ 7)"),
        ((4.0, 2.0, -1.0), (0.1, 0.1, 0.1), "; largest part: generalization (4)"),
        ((5.0, 5.71, 3.6), (0.3, 0.1, 0.1), "with 50 sequences"),  # the two largest overlap
        ((4.0, 5.71, 3.6), (0.1, 0.1, 2.0), "with 50 sequences"),  # the least may be the largest
    ],
)
def test_the_largest_part_is_named_where_intervals_tell(tmp_path, parts, errors, end):
    headline = findings(tmp_path, parts, errors).headline
    assert headline.endswith(end)
    assert "most of it" not in headline
