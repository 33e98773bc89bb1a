"""The functions that fit a sample, against trying every one of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetti.boolean import TruthTable
from finetti.boolean.language.rule import all_bits
from finetti.core.errors import InputError
from finetti.probe import (
    HiddenRule,
    HiddenTask,
    ambiguous_sets,
    best_set,
    consistent_sets,
    exhaustive_success,
    information_bounds,
    make_rule,
    success_bound,
)
from finetti.probe.tasks import consistent_sets as module
from finetti.probe.tasks import parity_sets, set_search


def slow_errors(rule, bits, labels):
    """{a function, as its labels of all inputs: the labels of the sample that it gets wrong}."""
    inputs = all_bits(rule.context_length)
    found = {}
    for indices in itertools.permutations(range(rule.context_length), rule.sparsity):
        task = HiddenTask(rule, indices)
        found[task.labels(inputs).tobytes()] = int((task.labels(bits) != labels).sum())
    return found


def as_functions(rule, indices):
    inputs = all_bits(rule.context_length)
    return [HiddenTask(rule, tuple(row)).labels(inputs).tobytes() for row in indices.tolist()]


def by_all_sets(rule, bits, labels, max_errors=0):
    """The sets of a symmetric rule that fit, one after the other."""
    return [
        indices
        for indices in itertools.combinations(range(rule.context_length), rule.sparsity)
        if (HiddenTask(rule, indices).labels(bits) != labels).sum() <= max_errors
    ]


RULES = [
    *(make_rule(name, 2, 6) for name in ("and", "or", "parity", "exactly:1", "x0 & ~x1")),
    *(make_rule(name, 3, 6) for name in ("and", "majority", "threshold:2", "x0 & (x1 | ~x2)")),
    make_rule("parity", 1, 6),
    make_rule("table:1001", 2, 6),
    make_rule("table:11111110", 3, 6),
    *(make_rule("table", 3, 6, seed=seed) for seed in range(3)),
    make_rule("x0 & x1 | x2 & x3", None, 5),
]


@settings(max_examples=80)
@given(
    rule=st.sampled_from(RULES),
    seed=st.integers(0, 10**6),
    m=st.integers(1, 80),
    p=st.sampled_from([0.5, 0.8]),
    noise=st.sampled_from([0.0, 0.2]),
)
def test_every_function_that_fits_is_found_once(rule, seed, m, p, noise):
    rng = np.random.default_rng(seed)
    rule = HiddenRule(rule.function, rule.context_length, p, noise)
    task = rule.draw(rng)
    bits, labels = task.sample(rng, m)
    errors = slow_errors(rule, bits, labels)
    assert len(errors) == rule.n_hypotheses
    mine = int((task.labels(bits) != labels).sum())
    found = ambiguous_sets(task, bits, labels, limit=10**4)
    assert found.count == len(found.indices) == sum(each <= mine for each in errors.values())
    functions = as_functions(rule, found.indices)
    assert len(set(functions)) == found.count
    assert all(errors[each] <= mine for each in functions)
    assert found.identified == (found.count == 1)
    best = as_functions(rule, np.array([best_set(rule, bits, labels)]))[0]
    assert errors[best] == min(errors.values())


@settings(max_examples=40)
@given(
    name=st.sampled_from(["and", "or", "majority", "parity"]),
    seed=st.integers(0, 10**6),
    m=st.integers(1, 200),
    length=st.integers(3, 20),
    max_errors=st.integers(0, 3),
)
def test_sets_of_symmetric_rules_in_longer_contexts(name, seed, m, length, max_errors):
    rng = np.random.default_rng(seed)
    task = make_rule(name, 3, length).draw(rng)
    bits, labels = task.sample(rng, m)
    found = consistent_sets(task.rule, bits, labels, max_errors=max_errors, limit=10**4)
    assert sorted(map(tuple, found.indices.tolist())) == by_all_sets(
        task.rule, bits, labels, max_errors
    )


def test_small_chunks_give_the_same(monkeypatch):
    task = make_rule("majority", 5, 14).draw(np.random.default_rng(1))
    bits, labels = task.sample(np.random.default_rng(2), 9)
    at_once = consistent_sets(task.rule, bits, labels, limit=10**4)
    monkeypatch.setattr(set_search, "CHUNK", 3)
    in_pieces = consistent_sets(task.rule, bits, labels, limit=10**4)
    expected = by_all_sets(task.rule, bits, labels)
    assert len(expected) > 20
    for found in (at_once, in_pieces):
        assert sorted(map(tuple, found.indices.tolist())) == expected


@pytest.mark.parametrize("name", ["and", "or"])
def test_without_the_telling_label_everything_is_counted(name):
    rule = make_rule(name, 3, 30)
    label = int(name == "or")  # nothing but the common label
    bits = np.random.default_rng(3).integers(0, 2, (4, 30), dtype=np.uint8)
    labels = np.full(4, label)
    assert consistent_sets(rule, bits, labels, limit=0).count == len(
        by_all_sets(rule, bits, labels)
    )


@pytest.mark.parametrize("sparsity", [2, 3, 4, 5])
@pytest.mark.parametrize("m", [3, 8, 70])
@pytest.mark.parametrize("negated", [False, True])
def test_parities_by_two_routes(sparsity, m, negated, monkeypatch):
    table = all_bits(sparsity).sum(axis=1) % 2
    rule = HiddenRule(TruthTable(range(sparsity), table ^ negated), 13)
    task = rule.draw(np.random.default_rng(sparsity))
    bits, labels = task.sample(np.random.default_rng(m), m)
    one_by_one = consistent_sets(rule, bits, labels, limit=10**4)
    monkeypatch.setattr(module, "ENOUGH_FOR_SEARCH", 0)
    halves = consistent_sets(rule, bits, labels, limit=10**4)
    assert sorted(one_by_one.indices.tolist()) == sorted(halves.indices.tolist())
    assert one_by_one.count == halves.count == len(by_all_sets(rule, bits, labels))
    monkeypatch.setattr(parity_sets, "MAX_SUBSETS", 40)
    some = consistent_sets(rule, bits, labels, limit=10**4)
    assert {*map(tuple, some.indices.tolist())} <= {*map(tuple, halves.indices.tolist())}
    if some.reason:
        assert some.count is None
        assert some.identified is (False if len(some.indices) > 1 else None)


def test_parities_too_many_to_try():
    task = make_rule("parity", 4, 400).draw(np.random.default_rng(4))  # 10⁹ sets
    bits, labels = task.sample(np.random.default_rng(5), 60)
    found = ambiguous_sets(task, bits, labels, limit=5)
    assert found.count == 1
    assert found.indices.tolist() == [list(task.indices)]
    few = ambiguous_sets(task, bits[:6], labels[:6])
    assert (few.count, few.identified) == (None, False)  # two were found, and that says enough
    six = make_rule("parity", 6, 400).draw(np.random.default_rng(4))
    bits, labels = six.sample(np.random.default_rng(5), 60)
    many, few = (ambiguous_sets(six, bits[:m], labels[:m]) for m in (60, 15))
    assert many.count is few.count is many.identified is None
    assert few.identified is False


def test_what_is_not_counted_says_why():
    rule = make_rule("majority", 3, 40)
    bits, labels = rule.draw(np.random.default_rng(0)).sample(np.random.default_rng(0), 30)
    found = consistent_sets(rule, bits, labels, max_visits=100)
    assert found.count is None
    assert found.identified is None
    assert "more than 100 visits" in found.reason
    with pytest.raises(InputError, match=r"cannot be searched for.*max_visits"):
        best_set(rule, bits, labels, max_visits=100)
    wide = make_rule("majority", 17, 20)
    sample = wide.draw(np.random.default_rng(0)).sample(np.random.default_rng(0), 5)
    assert "more than 16 bits" in consistent_sets(wide, *sample).reason


def test_listing_ends_at_the_limit_and_counting_does_not():
    rule = make_rule("and", 2, 50)
    bits, labels = rule.draw(np.random.default_rng(0)).sample(np.random.default_rng(0), 3)
    every = consistent_sets(rule, bits, labels, limit=10**4)
    some = consistent_sets(rule, bits, labels, limit=7)
    assert some.count == every.count == len(every.indices) > 7
    assert some.indices.tolist() == every.indices[:7].tolist()


@pytest.mark.parametrize("length", [50, 100, 200, 400])
def test_exhaustive_search_follows_the_entropy_of_the_label(length):
    rule = make_rule("and", 3, length)
    bounds = information_bounds(rule)
    sizes = range(int(0.85 * bounds.first_order), int(1.5 * bounds.first_order))
    rates = exhaustive_success(rule, sizes, 100, np.random.default_rng(length))
    curve, errors = rates.mean(axis=0), rates.std(axis=0) / np.sqrt(len(rates))
    critical = sizes[int(np.argmax(curve >= 0.5))]
    assert curve[0] < 0.5
    assert 0.95 < critical / bounds.first_order < 1.35
    assert critical >= bounds.packing
    limits = np.array([success_bound(rule, m) for m in sizes])
    assert (curve <= limits + 4 * errors).all()


def test_exhaustive_success_is_one_over_the_count():
    rule, sizes = make_rule("or", 2, 30), [5, 9, 20]
    rates = exhaustive_success(rule, sizes, 4, np.random.default_rng(6))
    rng = np.random.default_rng(6)
    for row in rates:
        bits, labels = rule.draw(rng).sample(rng, 20)
        counts = [consistent_sets(rule, bits[:m], labels[:m]).count for m in sizes]
        assert row.tolist() == [1 / count for count in counts]


def test_bad_arguments_are_named():
    rule, rng = make_rule("and", 2, 5), np.random.default_rng(0)
    with pytest.raises(InputError, match="one label per row"):
        consistent_sets(rule, np.zeros((3, 5)), np.zeros(2))
    with pytest.raises(InputError, match=r"\(m, 5\)"):
        consistent_sets(rule, np.zeros((3, 4)), np.zeros(3))
    with pytest.raises(InputError, match="`max_errors`"):
        consistent_sets(rule, np.zeros((3, 5)), np.zeros(3), max_errors=-1)
    with pytest.raises(InputError, match="at least one"):
        best_set(rule, np.zeros((0, 5)), np.zeros(0))
    with pytest.raises(InputError, match="increasing"):
        exhaustive_success(rule, [5, 4], 1, rng)
    with pytest.raises(InputError, match="without label noise"):
        exhaustive_success(make_rule("and", 2, 5, label_noise=0.1), [4], 1, rng)
    with pytest.raises(InputError, match="Begin with more samples"):
        exhaustive_success(make_rule("and", 3, 300), [1], 1, rng)
