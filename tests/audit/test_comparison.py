"""Checkpoints side by side, and norms against gaps."""

import json

import numpy as np
import pytest

import checkpoints as make
from finetti.audit import (
    compare_audits,
    correlate_gaps,
    measure_capacity,
    read_gaps,
)
from finetti.audit.compare.gap_correlation import match_gaps, rank_correlation
from finetti.core.errors import InputError

NAME = "bert.encoder.layer.1.intermediate.dense.weight"


def audited(scale=1.0, **options):
    arrays = make.synthetic("bert", **options)[0]
    return make.measured(arrays | {NAME: scale * arrays[NAME]}, heads=4)


@pytest.fixture(scope="module")
def series():
    """Nine checkpoints in which one matrix grows."""
    return compare_audits(
        [audited(1 + 0.1 * step) for step in range(9)], names=[f"run/step-{n}" for n in range(9)]
    )


def test_where_checkpoints_differ(series):
    first = series.spreads[0]
    assert (first.layer, first.kind) == ("1", "feed_in")
    assert first.spread == pytest.approx(0.8 / 1.8)
    assert all(each.spread == 0 for each in series.spreads[1:])
    assert "Where they differ most" in str(series)
    json.dumps(series.to_dict(), allow_nan=False)
    product = series.measures["log10_product_spectral"]
    assert product[8] - product[0] == pytest.approx(np.log10(1.8))


def test_checkpoints_of_two_shapes_have_one_table():
    one, other = audited(), audited(layers=3)
    found = compare_audits([one, other], names=["one", "other"])
    assert found.spreads == ()
    assert "Not of one shape" in str(found)
    with pytest.raises(ValueError, match="at least two"):
        compare_audits([one])
    with pytest.raises(ValueError, match="one for each audit"):
        compare_audits([one, other], names=["one"])


def test_capacities_are_compared():
    audits = [audited(scale) for scale in (1.0, 4.0)]
    found = compare_audits(audits, [measure_capacity(each) for each in audits])
    sizes = [values for name, values in found.measures.items() if name.startswith("log10_log_n.")]
    assert sizes
    assert all(low <= high for low, high in sizes)
    assert "log₁₀ log N" in str(found)


def test_a_measure_that_follows_the_gap(series):
    gaps = [0.1, 0.2, 0.3, 0.5, 0.4, 0.6, 0.7, 0.8, 0.9]
    found = correlate_gaps(series, gaps)
    row = found.row("log10_product_spectral")
    assert row.value == pytest.approx(1 - 6 * 2 / (9 * 80))
    assert (row.verdict, found.rows[0].value) == ("rises with the gap", row.value)
    assert found.row("feed_in.mean_stable_rank").verdict == "inconclusive"
    assert found.row("output.frobenius").value is None  # it never changes
    falling = correlate_gaps(series, [-gap for gap in gaps])
    assert falling.row("feed_in.frobenius").verdict == "falls with the gap"
    assert "independent draws" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_fewer_than_eight_checkpoints_are_inconclusive():
    few = compare_audits([audited(1 + n) for n in range(7)], names=[str(n) for n in range(7)])
    found = correlate_gaps(few, range(7))
    assert found.rows[0].value == pytest.approx(1)
    assert {row.verdict for row in found.rows} == {"inconclusive"}
    assert all(row.interval is None for row in found.rows)
    assert "say nothing" in str(found)


def test_rank_correlation_is_spearmans_and_its_interval_covers():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    tied = rng.integers(0, 4, (2, 20))
    assert rank_correlation(*tied)[0] == pytest.approx(spearmanr(*tied).statistic, rel=1e-12)
    draws, count, share = 2000, 12, 0.6
    true = 6 / np.pi * np.arcsin(share / 2)  # of normal pairs
    hits = 0
    for _ in range(draws):
        x = rng.normal(size=count)
        y = share * x + np.sqrt(1 - share**2) * rng.normal(size=count)
        hits += true in rank_correlation(x, y)[1]
    # The formula is an approximation: allow 2 % beside four standard errors.
    assert abs(hits / draws - 0.95) < 0.02 + 4 * np.sqrt(0.95 * 0.05 / draws)
    value, interval = rank_correlation(range(8), range(8))
    assert value == interval.high == 1 > interval.low > 0.8
    assert rank_correlation(range(8), range(8, 0, -1))[1].low == -1
    assert rank_correlation([1, 2], [5, 3]) == (-1.0, None)
    assert rank_correlation([1], [1]) == rank_correlation([1, 2], [3, 3]) == (None, None)


def test_gaps_are_read_by_name(series, tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text("checkpoint,gap\n" + "".join(f"step-{n},{n / 10}\n" for n in range(9)))
    assert correlate_gaps(series, read_gaps(path)).rows[0].value == pytest.approx(1)
    for text, words in (
        ("", "cannot be read as CSV"),
        ("checkpoint,gap\n", "holds no gaps"),
        ("a,b\n1,2\n", "gaps.csv has no columns checkpoint and gap"),
        ("checkpoint,gap\nx,1\nx,2\n", "has x twice"),
        ("checkpoint,gap\nx,much\n", "'much'; expected a name and a finite number"),
        ("checkpoint,gap\nx,nan\n", "'nan'; expected a name and a finite number"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_gaps(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_gaps(path)
    path.write_text("checkpoint,gap\nother,1\n")
    with pytest.raises(InputError, match="no gap for run/step-0"):
        correlate_gaps(series, read_gaps(path))
    # The longest end of a path that is named counts; no row serves two.
    gaps = {"step-0": 0.1, "b/step-0": 0.3}
    assert match_gaps(["/x/a/step-0", "/x/b/step-0"], gaps) == [0.1, 0.3]
    with pytest.raises(InputError, match=r"/x/a/step-0 and /x/c/step-0 have the same gap"):
        match_gaps(["/x/a/step-0", "/x/c/step-0"], gaps)
    with pytest.raises(ValueError, match="one a checkpoint"):
        correlate_gaps(series, [1.0])
