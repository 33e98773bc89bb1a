"""Measures against plain NumPy, and enclosures against arithmetic with many digits."""

import math
import tracemalloc
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import checkpoints as make
from finetti.audit import measure_matrix, measure_product
from finetti.audit.measures.certified_norm import certified_spectral, gamma
from finetti.audit.measures.singular_values import singular_values
from finetti.core.linalg import norms


def check_plain(found, matrix):
    values = np.linalg.svd(matrix, compute_uv=False)
    values = values[values > 1e-13 * values[0]]
    shares = values**2 / (values**2).sum()
    expected = {
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "spectral": values[0],
        "frobenius": norms.frobenius(matrix),
        "nuclear": values.sum(),
        "half": (values**0.5).sum() ** 2,
        "quarter": (values**0.25).sum() ** 4,
        "norm_2_inf": norms.max_column_norm(matrix),
        "norm_2_1": norms.norm_pq(matrix, 2, 1),
        "rows_2_inf": norms.max_row_norm(matrix),
        "rows_2_1": norms.norm_pq(matrix.T, 2, 1),
        "entries": np.abs(matrix).sum(),
        "rank": len(values),
        "stable_rank": (values**2).sum() / values[0] ** 2,
        "entropy": -(shares * np.log(shares)).sum(),
    }
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-10, abs=1e-12), name


@pytest.mark.parametrize("block", [2**20, 8])
@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (1, 4), (4, 1)])
def test_matrix_and_product_against_numpy(shape, block, monkeypatch):
    monkeypatch.setattr("finetti.audit.measures.matrix_norms.BLOCK", block)
    rng = np.random.default_rng(sum(shape))
    left, right = rng.normal(size=shape), rng.normal(size=shape)
    check_plain(measure_matrix(left), left)
    check_plain(measure_product(left, right), left.T @ right)


@pytest.mark.parametrize(("decades", "by_gram"), [(1, True), (5, False), (14, False)])
@pytest.mark.parametrize("shape", [(130, 130), (300, 130)])
def test_singular_values_by_the_gram_matrix_where_it_will_do(shape, decades, by_gram, monkeypatch):
    rng = np.random.default_rng(0)
    left, right = (make.orthonormal(rng, each, 130) for each in shape)
    planted = np.logspace(0, -decades, 130)
    matrix = (left * planted) @ right.T
    expected = np.linalg.svd(matrix, compute_uv=False)
    plain, calls = np.linalg.svd, []
    monkeypatch.setattr(np.linalg, "svd", lambda *a, **k: calls.append(1) or plain(*a, **k))
    values = singular_values(matrix, matrix.T @ matrix)
    assert (not calls) == by_gram
    for power in (2, 1, 0.5, 0.25):
        if decades < 14:  # below that the smallest are rounding, however they are computed
            error = (values**power).sum() / (planted**power).sum() - 1
            assert abs(error) < 1e-10 * power
    np.testing.assert_allclose(values, expected, atol=1e-14, rtol=1e-9)


def test_low_rank_is_seen():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 15))
    check_plain(measure_matrix(matrix), matrix)
    assert measure_matrix(matrix).rank == 2
    assert measure_matrix(np.eye(4)).entropy == pytest.approx(math.log(4))


def exact_spectral(matrix):
    """The largest singular value with 40 digits."""
    with mpmath.workdps(40):
        wide = mpmath.matrix(matrix.tolist())
        return mpmath.sqrt(max(mpmath.eigsy(wide.T * wide, eigvals_only=True)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-30, 1e-5, 1.0, 1e30, 1e100]))
def test_the_enclosure_holds_the_true_value(seed, scale):
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 6, 2)
    matrix = scale * rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-6, 1, (rows, 1))
    found = measure_matrix(matrix)
    true = exact_spectral(matrix)
    assert found.spectral_lower <= true <= found.spectral_upper
    assert found.spectral_upper - found.spectral_lower <= 1e-12 * float(true)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_enclosure_of_a_product_holds_the_true_value(seed):
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(2, 5)), rng.normal(size=(2, 4))
    found = measure_product(left, right)
    with mpmath.workdps(40):
        product = mpmath.matrix(left.T.tolist()) * mpmath.matrix(right.tolist())
        true = mpmath.sqrt(max(mpmath.eigsy(product.T * product, eigvals_only=True)))
    assert found.spectral_lower <= true <= found.spectral_upper
    assert found.spectral_upper - found.spectral_lower <= 1e-9 * float(true)


def test_what_underflows_is_still_enclosed():
    found = measure_product(np.full((1, 2), 1e-200), np.full((1, 2), 1e-200))
    assert found.spectral_lower == 0 < found.spectral_upper < 1e-300
    found = measure_matrix([[3e-320, 1e-320]])  # its norm is no float64
    assert found.spectral_lower < np.hypot(3e-320, 1e-320) < found.spectral_upper


def test_equal_singular_values_are_certified():
    # The leading vector is not unique, and t²I − MᵀM is nearly zero as a whole.
    found = measure_matrix(np.eye(30))
    assert found.spectral_lower <= 1 <= found.spectral_upper <= 1 + 1e-11


def test_what_is_too_large_or_no_matrix_is_refused():
    with pytest.raises(ValueError, match="too large for float64"):
        measure_product(np.full((1, 2), 1e200), np.full((1, 2), 1e200))
    with pytest.raises(ValueError, match="a matrix with entries"):
        measure_matrix(np.zeros((0, 3)))
    with pytest.raises(ValueError, match="finite"):
        measure_matrix([[np.nan]])
    with pytest.raises(ValueError, match="2 rows, as left"):
        measure_product(np.ones((2, 3)), np.ones((1, 3)))


def test_zero_has_zero_norms():
    found = measure_matrix(np.zeros((2, 3)))
    assert (found.spectral_upper, found.quarter, found.rank, found.entropy) == (0, 0, 0, 0)


def test_memory_is_three_times_the_largest_pair(tmp_path):
    rng = np.random.default_rng(0)
    width, hidden, layers = 256, 1024, 2
    arrays = {}
    for number in range(layers):
        start = f"layers.{number}."
        arrays[f"{start}self_attn.in_proj_weight"] = rng.normal(size=(3 * width, width))
        arrays[f"{start}self_attn.out_proj.weight"] = rng.normal(size=(width, width))
        arrays[f"{start}linear1.weight"] = rng.normal(size=(hidden, width))
        arrays[f"{start}linear2.weight"] = rng.normal(size=(width, hidden))
    path = make.write(tmp_path / "base", arrays)
    tuned = make.write(tmp_path / "tuned", {name: 1.01 * a for name, a in arrays.items()})
    pair = 2 * 8 * width * hidden
    del arrays
    make.measured(path, heads=4)  # what is imported and compiled once
    for measure in (make.measured, partial(make.compared, base=path)):
        tracemalloc.start()
        measure(tuned, heads=4)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 3 * pair


def test_the_upper_bound_has_room_for_the_rounding_of_the_gram_matrix():
    # Sums of n squares may come out too small by γ_n of themselves, whatever the machine does.
    n = 10_000
    tall = np.ones((n, 1))
    gram = np.array([[n * (1 - gamma(n))]])
    lower, upper = certified_spectral(tall, gram, math.sqrt(gram[0, 0]))
    assert lower <= math.sqrt(n) <= upper <= math.sqrt(n) * (1 + 1e-11)


@pytest.mark.parametrize("kv_heads", [make.HEADS, 2])
def test_the_bias_of_attention_by_hand(kv_heads):
    # Weights of attention add up to 1: b_V passes through W_O, once for every head that shares it.
    rng = np.random.default_rng(1)
    arrays = make.synthetic("llama", layers=1, kv_heads=kv_heads)[0]
    start = "model.layers.0.self_attn."
    value = rng.normal(size=kv_heads * make.HEAD_WIDTH)
    shared = np.repeat(value.reshape(kv_heads, -1), make.HEADS // kv_heads, axis=0)
    passed = arrays[f"{start}o_proj.weight"].astype(float) @ shared.ravel()
    arrays |= {f"{start}v_proj.bias": value}
    for output in (np.zeros(make.WIDTH), rng.normal(size=make.WIDTH)):
        given = arrays | ({f"{start}o_proj.bias": output} if output.any() else {})
        (layer,) = make.measured(given, heads=make.HEADS, kv_heads=kv_heads).layers
        assert layer.attention_bias == pytest.approx(np.linalg.norm(passed + output), rel=1e-12)
