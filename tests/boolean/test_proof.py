"""The bound on all inputs: never below what is found on all inputs, and 0 for what is exact."""

from dataclasses import replace

import numpy as np
import pytest

from finetti.boolean import And, Majority, Parity, TruthTable, compile_rule
from finetti.boolean.compiler.compiler_options import BASES
from finetti.boolean.embeddings import EMBEDDINGS
from finetti.boolean.language.rule import all_bits
from finetti.boolean.network.lookup import make_lookup
from finetti.boolean.verify import verification
from finetti.boolean.verify.adversary import feature_ranges
from finetti.boolean.verify.interval_bound import output_bounds

pytestmark = pytest.mark.rounding

RULE = TruthTable((1, 4, 6), [0, 1, 1, 0, 2.5, 0, -1, 1])


@pytest.fixture
def by_settings(monkeypatch):
    """Short contexts, too, are checked by settings and worst cases."""
    monkeypatch.setattr(verification, "MAX_RUN_BITS", 0)
    return lambda network, rule: network.verify(rule)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("rule", [RULE, Majority((1, 4, 6))])
def test_compiled_networks_are_proven(rule, embedding, basis, by_settings):
    compiled = compile_rule(rule, 9, embedding, basis)
    found = by_settings(compiled, rule)
    assert not found.complete
    assert found.proven
    assert found.error_bound < 1e-11  # sums in any order


@pytest.mark.parametrize("count", [40, 100])
def test_what_is_proven_covers_what_is_measured(count):
    """Of many bits the sums of the lookup are large, and their order counts."""
    compiled = compile_rule(Parity(tuple(range(count))), 300)
    found = compiled.check
    assert found.proven
    bits = np.random.default_rng(0).integers(0, 2, size=(2000, 300), dtype=np.uint8)
    measured = np.abs(compiled.predict(bits) - compiled.function(bits)).max()
    assert 0 < max(found.error64, measured) <= found.error_bound <= 1e-9


@pytest.mark.parametrize("rule", [RULE, Majority((1, 4, 6))])
@pytest.mark.parametrize("seed", range(30))
def test_the_bound_is_above_the_error_on_all_inputs(rule, seed, by_settings, all_features):
    """Damage of any kind: what the bound says is never less than what all inputs show."""
    rng = np.random.default_rng(seed)
    compiled = compile_rule(rule, 9, EMBEDDINGS[seed % 3], BASES[seed % 2])
    arrays = compiled.network.heads._asdict() | compiled.network.lookup.arrays
    names = ["inner_bias", "outer", "key", "value"] + ["middle"] * ("middle" in arrays)
    name = names[seed % len(names)]
    array = arrays[name].copy()
    place = tuple(rng.integers(size) for size in array.shape)
    array[place] += rng.normal()
    damaged = compiled.changed(**{name: array})
    outputs = damaged.network.lookup(all_features(damaged))
    truth = np.abs(outputs - rule(all_bits(9))).max()
    found = by_settings(damaged, rule)
    scale = 2.5 if rule is RULE else 1.0  # the largest value; the smallest that is not 0 is 1
    assert found.error_bound * scale >= truth - 1e-9
    assert found.error64 <= truth + 1e-9
    assert found.exact == (truth <= 1e-9)  # the counterexample is found, too
    if truth > 1e-9:
        assert not found.proven


def test_ranges_that_reach_over_a_flank_are_bounded_tightly():
    compiled = compile_rule(Majority((1, 4, 6)), 9)
    low, high, _ = feature_ranges(compiled.network.float64, (1, 4, 6), all_bits(3))
    wide_low, wide_high = low - 0.3, high + 0.3
    least, most = output_bounds(compiled.network.lookup, wide_low, wide_high)
    for k in range(8):
        grid = np.linspace(wide_low[k], wide_high[k], 4001)
        outputs = compiled.network.lookup(grid)
        assert least[k] == pytest.approx(outputs.min(), abs=1e-3)
        assert most[k] == pytest.approx(outputs.max(), abs=1e-3)


def test_wide_symmetric_rules_are_proven_by_counts():
    compiled = compile_rule(And(range(60)), 400, "bag", "random")
    assert compiled.check.proven
    key = compiled.network.heads.key.copy()
    key[0, 3 + 7] += 0.01  # bits weigh differently now: counts do not cover all settings
    found = compiled.changed(key=key).verify()
    assert not found.proven


def test_units_that_see_several_features_are_bounded_too():
    compiled = compile_rule(RULE, 9)
    rng = np.random.default_rng(0)
    lookup = compiled.network.lookup
    mixed = replace(lookup, inner=lookup.inner + 1e-3 * rng.normal(size=lookup.inner.shape))
    low, high, _ = feature_ranges(compiled.network.float64, (1, 4, 6), all_bits(3))
    least, most = output_bounds(mixed, low, high)
    values = mixed((low + rng.random((200, 8, 3)) * (high - low)).reshape(-1, 3)).reshape(200, 8)
    assert (values >= least - 1e-9).all()
    assert (values <= most + 1e-9).all()
    assert (most - least).max() < 0.5
    assert output_bounds(compiled.network.lookup, low * np.nan, high) is None


def test_bumps_by_themselves_and_all_bends_give_the_same_bounds():
    """Two routes: extremes of every bump at its own bends, and of every unit at all bends."""
    rng = np.random.default_rng(0)
    points = np.stack(np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 1.0]), axis=-1).reshape(-1, 2)
    lookup = make_lookup(points, rng.normal(size=6), tolerance=0.25)
    assert lookup.single_bumps is not None
    general = replace(lookup)  # a copy whose form is not recognized
    general.__dict__["single_bumps"] = None
    low = rng.uniform(-2, 2, size=(200, 2))
    high = low + rng.exponential(0.5, size=(200, 2))
    found, wanted = output_bounds(lookup, low, high), output_bounds(general, low, high)
    np.testing.assert_allclose(found, wanted, atol=1e-11)
    inside = low + rng.random((50, 200, 2)) * (high - low)
    values = lookup(inside.reshape(-1, 2)).reshape(50, 200)
    assert (values >= found[0] - 1e-9).all()
    assert (values <= found[1] + 1e-9).all()
