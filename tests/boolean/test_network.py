"""Positions, tables, lookup and worst case: each against a slow, obvious reference."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from finetti.boolean import And, TruthTable, compile_rule
from finetti.boolean.compiler.compiler_options import BASES
from finetti.boolean.embeddings import EMBEDDINGS
from finetti.boolean.embeddings.position_geometry import (
    automatic_width,
    draw_basis,
    measure_geometry,
)
from finetti.boolean.embeddings.position_vectors import (
    DensePositions,
    SignPositions,
    SparsePositions,
)
from finetti.boolean.language.rule import all_bits
from finetti.boolean.network.lookup import make_lookup
from finetti.boolean.verify.adversary import feature_ranges

pytestmark = pytest.mark.rounding

RULE = TruthTable((1, 4, 6), [0, 1, 1, 0, 2.5, 0, -1, 1])


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_tables_are_the_textbook_layer(embedding, basis, textbook_features, all_features):
    compiled = compile_rule(RULE, 9, embedding, basis)
    bits = all_bits(9)[::7].astype(int)
    tables = compiled.network.float64
    wanted = textbook_features(compiled, bits)
    np.testing.assert_allclose(tables.features(tables.sums(bits)), wanted, atol=1e-12)
    np.testing.assert_allclose(all_features(compiled)[::7], wanted, atol=1e-12)


def test_attention_that_no_bit_changes_is_kept_once():
    """Sums are those of the two tables that are not written out, whatever positions say of bits."""
    made = compile_rule("(x0 | x3) & ~x5", 9, gates=True)
    noise = 0.3 * np.random.default_rng(0).normal(size=(9, made.network.positions.width))
    disturbed = DensePositions(made.network.positions.dense() + noise)
    tables = replace(made.network, positions=disturbed).float64
    zero, one = (tables.attention * each[:, None] for each in tables.seen)
    assert np.abs(zero + one).max() > 0.01  # other values than 1 and -1
    bits = all_bits(9)[::7]
    parts = np.where(bits[:, :, None] == 1, one, zero)
    wanted = tables.always + parts.sum(axis=1)
    for rows in (bits, sp.csr_array(bits)):
        np.testing.assert_allclose(tables.sums(rows), wanted, atol=1e-14)
    aside = parts[:, [0, 1, 2, 4, 6, 8]].sum(axis=1)
    np.testing.assert_allclose(tables.outside_sums((3, 5, 7), bits), aside, atol=1e-14)
    np.testing.assert_allclose(tables.settings_sums((3, 5, 7), bits[:, [3, 5, 7]]), wanted - aside)


def test_tables_do_not_lose_digits_of_scores_far_apart(textbook_features):
    """Random scores of size 15: some terms are e^30 times others, and are taken away again."""
    rng = np.random.default_rng(0)
    made = compile_rule(RULE, 9)
    shape = made.network.heads.key.shape
    made = made.changed(key=rng.normal(size=shape), query=8 * rng.normal(size=shape))
    bits = all_bits(9)[::5].astype(int)
    found = made.network.float64.features(made.network.float64.sums(bits))
    np.testing.assert_allclose(found, textbook_features(made, bits), atol=1e-9)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("rule", [RULE, And((1, 4, 6))])
def test_the_worst_case_is_the_worst_of_all_inputs(rule, embedding, basis, all_features):
    compiled = compile_rule(rule, 9, embedding, basis)
    bits = all_bits(9)
    settings = all_bits(3)
    low, high, _ = feature_ranges(compiled.network.float64, rule.indices, settings)
    row = bits[:, list(rule.indices)].astype(int) @ [4, 2, 1]
    features = all_features(compiled)
    for k in range(8):
        np.testing.assert_allclose(high[k], features[row == k].max(axis=0), atol=1e-12)
        np.testing.assert_allclose(low[k], features[row == k].min(axis=0), atol=1e-12)


def test_the_worst_case_of_weights_without_any_structure(all_features):
    rng = np.random.default_rng(1)
    made = compile_rule(And((1, 4)), 9, "bag", "random")
    heads = made.network.heads
    key = heads.key + rng.normal(size=heads.key.shape) / 3
    made = made.changed(key=key, value=rng.normal(size=heads.value.shape))
    low, high, _ = feature_ranges(made.network.float64, (1, 4), all_bits(2))
    row = all_bits(9)[:, [1, 4]].astype(int) @ [2, 1]
    features = all_features(made)
    for k in range(4):
        np.testing.assert_allclose(high[k], features[row == k].max(axis=0), atol=1e-12)
        np.testing.assert_allclose(low[k], features[row == k].min(axis=0), atol=1e-12)


def test_positions_of_every_kind_are_one_matrix():
    rng = np.random.default_rng(0)
    signs = SignPositions.draw(rng, 37, 24)
    sparse = SparsePositions(37, (3, 30), rng.normal(size=(2, 24)))
    standard = draw_basis("orthonormal", 37, 44, seed=0)
    for positions in (signs, sparse, standard, DensePositions(rng.normal(size=(37, 24)))):
        matrix = rng.normal(size=(positions.width, 5))
        dense = positions.dense()
        assert dense.shape == (37, positions.width)
        np.testing.assert_allclose(positions.project(matrix), dense @ matrix, atol=1e-12)
        np.testing.assert_array_equal(positions.rows([3, 30, 0]), dense[[3, 30, 0]])
    np.testing.assert_allclose(np.linalg.norm(signs.dense(), axis=1), 1)
    assert not signs.dense()[:, :3].any()


def test_geometry_is_what_its_names_say():
    positions = draw_basis("random", 60, 40, seed=3)
    indices = (5, 17, 41)
    found = measure_geometry(positions, indices)
    vectors = positions.dense()
    gram = vectors @ vectors.T
    np.testing.assert_allclose(found.duals @ found.vectors.T, np.eye(3), atol=1e-12)
    others = [j for j in range(60) if j not in indices]
    off = np.abs(gram[list(indices)] - np.eye(60)[list(indices)])
    assert found.coherence == pytest.approx(off.max())
    joint = vectors @ found.duals.sum(axis=0)
    np.testing.assert_allclose(joint[list(indices)], 1, atol=1e-12)
    assert found.joint_gap == pytest.approx(1 - max(0, joint[others].max()))
    # A priori: gap ≥ (1 − (2s−1)Δ)/(1 − (s−1)Δ) where Δ < 1/(2s−1).
    close = measure_geometry(draw_basis("random", 60, 1200, seed=3), indices)
    delta = close.coherence
    assert delta < 1 / 5
    assert close.joint_gap >= (1 - 5 * delta) / (1 - 2 * delta)


def test_automatic_width_grows_with_log_T():
    widths = [automatic_width(10**k, 3) for k in (2, 4, 6)]
    assert widths[2] - widths[1] == pytest.approx(widths[1] - widths[0], abs=2)


@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_lookup_is_exact_within_the_noise_and_zero_far_away(dimension):
    rng = np.random.default_rng(0)
    points = np.unique(rng.integers(-3, 4, size=(30, dimension)), axis=0) * 1.0
    values = rng.normal(size=len(points))
    lookup = make_lookup(points, values, 0.25)
    for noise in (0.0, 1.0):
        moved = points + noise * 0.25 * rng.choice([-1, 1], size=points.shape)
        np.testing.assert_allclose(lookup(moved), values, atol=1e-12)
    for far in (points + 100, np.full((1, dimension), 10.5)):
        np.testing.assert_allclose(lookup(far), 0, atol=1e-11)
    if dimension > 1:  # shared bumps: at most four units per coordinate value
        assert lookup.inner.shape[1] <= 4 * 7 * dimension
        assert (np.count_nonzero(lookup.inner, axis=0) == 1).all()


def test_the_short_way_through_a_lookup_is_the_lookup(all_features):
    compiled = compile_rule(RULE, 9, "bag")
    lookup = compiled.network.lookup
    assert lookup.selected is not None
    hidden = np.maximum(all_features(compiled) @ lookup.inner + lookup.inner_bias, 0)
    long_way = np.maximum(hidden @ lookup.middle + lookup.middle_bias, 0) @ lookup.outer
    found = lookup(all_features(compiled))
    np.testing.assert_allclose(found, long_way, atol=1e-12)
    plain = replace(lookup)
    plain.__dict__["selected"] = None
    features = all_features(compiled)
    np.testing.assert_allclose(lookup.resolution(features), plain.resolution(features), rtol=1e-12)
    middle = lookup.middle.copy()
    middle[0, 0] += 0.5
    other = replace(lookup, middle=middle)
    assert other.selected is None
    hidden = np.maximum(hidden @ middle + lookup.middle_bias, 0) @ lookup.outer
    np.testing.assert_allclose(other(all_features(compiled)), hidden, atol=1e-12)
