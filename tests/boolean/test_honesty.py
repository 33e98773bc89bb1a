"""No proof of what is false, no counterexample that is none, for weights up to the limits."""

from dataclasses import replace

import numpy as np
import pytest

from finetti.boolean import And, Compiled, Parity, Symmetric, TruthTable, compile_rule, parse
from finetti.boolean.certificate import EXACT_RTOL, MAX_ROUNDING_RTOL
from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.position_geometry import measure_geometry
from finetti.boolean.embeddings.position_vectors import DensePositions
from finetti.boolean.embeddings.token_embedding import HeadMatrices, Relevant
from finetti.boolean.embeddings.weight_range import MAX_SCORE_LEAD
from finetti.boolean.language.rule import all_bits
from finetti.boolean.network.cls_network import ClsNetwork
from finetti.boolean.network.lookup import Lookup, make_lookup
from finetti.boolean.verify import verification
from finetti.boolean.verify.adversary import feature_ranges
from finetti.boolean.verify.interval_bound import output_bounds, proof_fits, proof_work
from finetti.core.errors import InputError

pytestmark = pytest.mark.rounding

RULE = TruthTable((1, 4, 6), [0, 1, 1, 0, 2.5, 0, -1, 1])


def needle(textbook_features, n_loud=11, n_quiet=12, loudness=35.5):
    """A network that is 1 at one input of 2^23, where all scores of e^35 are left out.

    The first bits have a large score if they are 0, the others none; the lookup knows what is read
    when the loud ones are silent.
    """
    length, width = n_loud + n_quiet, 4
    positions = np.zeros((length, width))
    positions[n_loud:, 3] = -1.0
    query, key, value = np.zeros((3, 1, width, 1))
    query[0, 2], key[0, [0, 2, 3], 0] = 1.0, loudness * np.array([1.0, -2.0, 1.0])
    value[0, :2, 0] = 1.0, -1.0
    heads = HeadMatrices(query, key, value, np.ones((1, 1, 1)))
    vectors, embedding = DensePositions(positions), find_embedding("deterministic")
    relevant = Relevant(vectors, measure_geometry(vectors, ()), (), True)
    lookup, rule = make_lookup(np.zeros((1, 1)), np.ones(1), 1.0), Symmetric((), [0.0])
    built = ClsNetwork.build(embedding, rule, relevant, heads, lookup)
    unfinished = Compiled(built, parse("0"), {"basis": "given"})
    special = np.repeat([1, 0], [n_loud, n_quiet])
    other = special.copy()
    other[-1] = 1
    read, beside = textbook_features(unfinished, np.stack([special, other]))[:, 0]
    noise = abs(read - beside) / 2.2
    corners = np.array([2.0, 1.0, -1.0, -2.0])
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    inner, bias = np.full((1, 4), 1 / noise), corners - read / noise
    return unfinished.changed(inner=inner, inner_bias=bias, outer=signs), special


@pytest.mark.parametrize("loudness", [30.0, 35.5, 38.0])
def test_large_terms_that_are_left_out_hide_nothing(loudness, textbook_features):
    made, special = needle(textbook_features, loudness=loudness)
    assert made.predict(special) == pytest.approx(1)
    found = made.verify("0")
    assert not found.proven
    low, high, _ = feature_ranges(made.network.float64, (), np.zeros((1, 0), dtype=np.uint8))
    feature = textbook_features(made, special[None])[0, 0]
    assert np.isnan(low[0, 0]) or low[0, 0] - 1e-9 <= feature <= high[0, 0] + 1e-9


def largest_score(made):
    network, places = made.network, made.network.positions.dense()
    tokens = np.concatenate([*(places + token for token in network.tokens), network.cls[None]])
    score = (network.cls @ network.heads.query)[:, 0]
    return np.abs(np.einsum("td,hdk,hk->th", tokens, network.heads.key, score[:, None])).max()


@pytest.mark.parametrize("seed", range(12))
def test_scores_of_any_size_are_run_and_judged_as_the_textbook_does(
    seed, monkeypatch, textbook_features, all_features
):
    rng = np.random.default_rng(seed)
    compiled = compile_rule(RULE, 9, EMBEDDINGS[seed % 3], "random")
    tokens = compiled.network.tokens
    tokens = tokens + (seed % 3 != 2) * rng.normal(size=tokens.shape)
    key = rng.normal(size=compiled.network.heads.key.shape)
    made = replace(compiled, network=replace(compiled.network, tokens=tokens)).changed(key=key)
    size = (1.0, 10.0, 20.0, MAX_SCORE_LEAD / 2)[seed % 4]  # of the largest score
    query = size * made.network.heads.query / largest_score(made)
    made = made.changed(query=query)
    bits = all_bits(9)
    features = textbook_features(made, bits.astype(int))
    wanted = made.network.lookup(features)
    tables = made.network.float64
    np.testing.assert_allclose(tables.features(tables.sums(bits)), features, atol=1e-9)
    np.testing.assert_allclose(made.predict(bits), wanted, atol=1e-7)
    np.testing.assert_allclose(all_features(made), features, atol=1e-9)
    (attention,) = made.explain(bits[77]).attention
    np.testing.assert_allclose(attention.sum(axis=1), 1)
    truth = np.abs(wanted - RULE(bits)).max()
    for all_inputs in (20, 0):
        monkeypatch.setattr(verification, "MAX_RUN_BITS", all_inputs)
        found = made.verify(RULE)
        assert found.proven == (truth <= 1e-9) or not found.proven
        if found.counterexample is not None:
            wrong = found.counterexample
            row = int("".join(map(str, wrong.bits)), 2)
            assert abs(wanted[row] - wrong.value) > 1e-9
            assert wrong.output == pytest.approx(wanted[row], abs=1e-7)


def test_sparse_rows_lose_no_digits_either(textbook_features):
    sparse = pytest.importorskip("scipy.sparse")
    made, special = needle(textbook_features)
    assert made.predict(sparse.csr_matrix(special[None]))[0] == pytest.approx(1)


def test_denominators_too_far_apart_are_not_proven(textbook_features):
    made, _ = needle(
        textbook_features, n_loud=15, n_quiet=12
    )  # more loud bits than are tried together
    found = made.changed(outer=np.zeros(4)).verify("0")
    assert found.exact
    assert not found.proven
    assert "digits" in found.why_not
    low, _, _ = feature_ranges(made.network.float64, (), np.zeros((1, 0), dtype=np.uint8))
    assert np.isnan(low).all()


def test_a_rule_that_leaves_bits_out_is_refuted_by_the_bits_that_move_the_heads():
    text = "x1 & " + " & ".join(f"~x{i}" for i in range(2, 11))
    compiled = compile_rule(text, 1000)
    unsaid = replace(compiled.network, rule=Symmetric((), [0.0]))
    for made in (compiled, replace(compiled, network=unsaid)):  # with and without hints
        found = made.verify("0")
        assert found.counterexample is not None
        assert found.counterexample.ones == (1,)
    wide = compile_rule(And(range(60)), 400, "bag", "random")
    assert wide.verify("0").counterexample.value == 0


@pytest.mark.parametrize("length", [10, 50])
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_small_values_beside_large_ones_count(embedding, length):
    rule = TruthTable((0, 1, 2), [5e5, 0.5, -0.5, 0, 5e5, 0.5, -0.5, 3])
    compiled = compile_rule(rule, length, embedding)
    assert compiled.check.proven
    outer = compiled.network.lookup.outer.copy()
    outer[np.abs(outer) == 0.5] *= 2
    found = compiled.changed(outer=outer).verify()
    assert abs(found.counterexample.value) == 0.5
    assert not found.proven


def test_rounding_is_no_error_and_nothing_else_is_rounding():
    """Ramps of a line of bumps cancel, in sums of at most n = 801 terms of size 1e6·4s: rounding is
    n·u·4s of the largest value. And 1 + 1e-2 beside 1e6 is wrong."""
    compiled = compile_rule(Symmetric(range(200), np.r_[1e6 * (np.arange(200) % 2), 1.0]), 300)
    assert compiled.check.proven
    assert compiled.check.error64 <= 801 * 2**-53 * 800 < compiled.check.tolerance == EXACT_RTOL
    outer = compiled.network.lookup.outer.copy()
    outer[np.abs(outer) == 1.0] *= 1.01
    assert not compiled.changed(outer=outer).verify().exact


def test_float32_that_fails_is_said(monkeypatch):
    import jax.numpy as jnp

    from finetti.boolean.network import boolean_transformer as module

    # Ramps of size 4s·1e6 beside a value of 1: float32 errs by about 4s·1e6·2^-24 = 48.
    compiled = compile_rule(Symmetric(range(200), np.r_[1e6 * (np.arange(200) % 2), 1.0]), 300)
    assert compiled.check.error32 > 1
    assert not compiled.check.usable32
    assert compiled.certificate.holds  # which is about float64
    document = compiled.certificate.to_dict()
    assert document["check"]["float32_usable"] is False
    assert "NOT usable" in str(compiled)
    assert "NOT usable" not in str(compile_rule("x0 & x1", 10))
    compiled.module()  # float64 is the default in these tests
    zeros = jnp.zeros
    monkeypatch.setattr(module.jnp, "zeros", lambda shape: zeros(shape, jnp.float32))
    with pytest.warns(UserWarning, match="not usable in float32"):
        module.warn_of_single(None, compiled.check)
    module.warn_of_single(None, compile_rule("x0 & x1", 10).check)
    module.warn_of_single(jnp.float64, compiled.check)


def test_wide_rules_take_little_memory_and_are_proven():
    compiled = compile_rule(Parity(range(900)), 1200, "trained")
    assert proof_work(compiled.network.lookup, 901) < 10**8
    assert compiled.check.proven
    with pytest.raises(InputError, match=r"20000 relevant bits .* GiB"):
        compile_rule(Parity(range(20000)), 10**5)


def test_lookups_too_large_to_follow_are_left_unproven():
    n = 20000  # one layer over two features: n² numbers a setting
    inner = np.zeros((2, n))
    inner[0, : n // 2], inner[1, n // 2 :] = 1.0, 1.0
    lookup = Lookup(inner, np.linspace(-1, 1, n), None, None, np.zeros(n))
    assert not proof_fits(lookup)
    assert output_bounds(lookup, np.zeros((1, 2)), np.ones((1, 2))) is None


@pytest.mark.parametrize("by_settings", [False, True])
def test_large_weights_behind_units_that_are_off_but_for_rounding_are_not_proven(
    by_settings, monkeypatch
):
    if by_settings:
        monkeypatch.setattr(verification, "MAX_RUN_BITS", 0)
    compiled = compile_rule(TruthTable((2, 5), [-1.57, 0.41, -0.09, 1.2]), 9)
    lookup = compiled.network.lookup
    middle, bias, outer = lookup.middle.copy(), lookup.middle_bias.copy(), lookup.outer.copy()
    # Cuts what is above a bump's height: 0 in exact arithmetic, about 1e-16·1e6·1e6 here.
    middle[:, 5], bias[5], outer[5] = 1e5 * middle[:, 5], 1e5 * bias[5], -1e6
    damaged = compiled.changed(middle=middle, middle_bias=bias, outer=outer).verify()
    assert not damaged.proven
    assert damaged.exact
    assert damaged.rounding > MAX_ROUNDING_RTOL
    assert "rounding" in damaged.why_not
    assert compiled.verify().proven
    assert compiled.verify().rounding < 1e-9
