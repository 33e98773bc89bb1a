"""The information bounds against high precision, against each other, and against the best learner
there is, found by enumeration at tiny size."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.boolean import TruthTable, parse
from finetti.boolean.language.rule import all_bits
from finetti.core.errors import InputError
from finetti.probe import (
    HiddenRule,
    HiddenTask,
    binary_entropy,
    information_bounds,
    information_per_sample,
    make_rule,
    success_bound,
)
from finetti.probe.tasks.information import best_success
from finetti.probe.tasks.symmetries import arrangements, n_symmetries


def slow_symmetries(function):
    cube = function.table().reshape((2,) * function.sparsity)
    orders = itertools.permutations(range(function.sparsity))
    return sum(np.array_equal(cube.transpose(order), cube) for order in orders)


def hidden_functions(rule):
    """Every different hidden function, as its labels of all 2^T inputs."""
    inputs, length = all_bits(rule.context_length), rule.context_length
    orders = itertools.permutations(range(length), rule.sparsity)
    return np.unique([HiddenTask(rule, order).labels(inputs) for order in orders], axis=0)


def best_success_one_by_one(rule, m):
    """Every sample of inputs and labels, and the function that is most likely to have made it."""
    inputs, functions = all_bits(rule.context_length), hidden_functions(rule)
    p, noise, total = rule.bit_probability, rule.label_noise, 0.0
    for rows in itertools.product(range(len(inputs)), repeat=m):
        ones = inputs[list(rows)].sum()
        of_inputs = p**ones * (1 - p) ** (inputs[list(rows)].size - ones)
        for labels in itertools.product((0, 1), repeat=m):
            wrong = (functions[:, rows] != np.array(labels)).sum(axis=1)
            total += of_inputs * (noise**wrong * (1 - noise) ** (m - wrong)).max()
    return total / len(functions)


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.125, 0.3, 0.5, 1 - 1e-12, 1.0])
def test_entropy_against_high_precision(p):
    with mpmath.workdps(40):
        x = mpmath.mpf(p)
        terms = [-v * mpmath.log(v, 2) for v in (x, 1 - x) if v]
        assert binary_entropy(p) == pytest.approx(float(sum(terms)), rel=1e-12, abs=0)


@given(st.lists(st.integers(0, 1), min_size=16, max_size=16))
def test_symmetries_are_those_of_all_permutations(table):
    function = TruthTable(range(4), table)
    assert n_symmetries(function) == slow_symmetries(function)
    assert len(arrangements(function)) == math.factorial(4) // n_symmetries(function)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x0 & x1 | x2 & x3", 8),
        ("x0 & x1 | x2 & x3 | x4 & x5", 48),
        ("x0 & ~x1", 1),
        ("maj(x0, x1, x2)", 6),
    ],
)
def test_symmetries_that_are_not_made_of_exchanges_of_two_bits(text, count):
    assert n_symmetries(parse(text)) == slow_symmetries(parse(text)) == count


@pytest.mark.parametrize("name", ["and", "parity", "x0 & (x1 | ~x2)", "x0 & (x1 | x2)", "x0 & ~x1"])
def test_the_number_of_hidden_functions(name):
    rule = make_rule(name, None if "x" in name else 3, 5)
    assert rule.n_hypotheses == len(hidden_functions(rule))


CASES = [
    (name, p, noise)
    for name in ("and", "parity", "x0 & ~x1")
    for p, noise in ((0.5, 0.0), (0.7, 0.0), (0.5, 0.1), (0.6, 0.3))
]


@pytest.mark.parametrize(("name", "p", "noise"), CASES)
def test_no_learner_does_better_at_tiny_size(name, p, noise):
    rule = make_rule(name, 2, 4, bit_probability=p, label_noise=noise)
    assert success_bound(rule, 0) == pytest.approx(1 / rule.n_hypotheses, rel=1e-12)
    for m in (1, 2, 3):
        best = best_success(rule, m)
        assert 1 / rule.n_hypotheses < best <= success_bound(rule, m) * (1 + 1e-12)
        # One label can only double the chance, and both forms of the bound know it.
        simple = (2 * (1 - noise)) ** m / rule.n_hypotheses
        assert success_bound(rule, m) <= min(1, simple) * (1 + 1e-12)


@pytest.mark.parametrize(("name", "p", "noise"), CASES)
def test_the_best_learner_one_sample_at_a_time(name, p, noise):
    rule = make_rule(name, 2, 3, bit_probability=p, label_noise=noise)
    assert best_success(rule, 2) == pytest.approx(best_success_one_by_one(rule, 2), rel=1e-12)


def test_where_one_function_is_possible_all_is_found():
    rule = make_rule("parity", 1, 1)
    assert success_bound(rule, 3) == pytest.approx(best_success(rule, 3)) == 1.0


@pytest.mark.parametrize("m", [5, 30, 60])
def test_success_bound_against_high_precision(m):
    rule = make_rule("and", 3, 200)
    with mpmath.workdps(40):
        p, count = mpmath.mpf(1) / 8, mpmath.binomial(200, 3)
        exact = sum(
            min(mpmath.binomial(m, k) * p**k * (1 - p) ** (m - k), mpmath.binomial(m, k) / count)
            for k in range(m + 1)
        )
        assert success_bound(rule, m) == pytest.approx(float(exact), rel=1e-11)


def test_noisy_success_bound_against_the_sum_written_out():
    rule = make_rule("or", 2, 30, bit_probability=0.4, label_noise=0.2)
    m, p, noise, count = 12, rule.label_probability, 0.2, rule.n_hypotheses
    joint = np.zeros((m + 1, m + 1))  # by ones and flips
    joint[0, 0] = 1
    for _ in range(m):
        grown = np.zeros_like(joint)
        grown += joint * (1 - p) * (1 - noise)
        grown[1:] += joint[:-1] * p * (1 - noise)
        grown[:, 1:] += joint[:, :-1] * p * noise
        grown[1:, 1:] += joint[:-1, :-1] * (1 - p) * noise
        joint = grown
    total = 0.0
    for k in range(m + 1):
        left = math.comb(m, k)
        for j in range(m + 1):
            worth = noise**j * (1 - noise) ** (m - j) / count
            used = min(joint[k, j] / worth, left)
            left, total = left - used, total + used * worth
    assert 0.01 < total < 0.9
    assert success_bound(rule, m) == pytest.approx(total, rel=1e-10)


def test_counting_and_first_order_are_section_6():
    for length in (50, 100, 400, 800):
        bounds = information_bounds(make_rule("and", 3, length))
        log2_sets = math.log2(math.comb(length, 3))
        assert bounds.counting == pytest.approx(log2_sets - 1, rel=1e-14)
        assert bounds.first_order == pytest.approx(log2_sets / binary_entropy(1 / 8), rel=1e-14)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("name", ["and", "parity"])
def test_packing_is_the_sharpest_and_follows_its_first_order(name, noise):
    previous = 0.0
    for length in (50, 10**6):
        rule = make_rule(name, 3, length, label_noise=noise)
        bounds = information_bounds(rule)
        log2_count, level = math.log2(rule.n_hypotheses), bounds.level
        # Fano: the uncertainty left is at most h(level) + (1 − level) log2 M.
        fano = (level * log2_count - binary_entropy(level)) / information_per_sample(rule)
        assert bounds.packing >= max(bounds.counting, fano)
        assert (
            success_bound(rule, bounds.packing - 1) < level <= success_bound(rule, bounds.packing)
        )
        ratio = bounds.packing / bounds.first_order
        assert previous - 0.02 < ratio < 1.1
        previous = ratio
    assert previous > 0.9


def test_success_bound_grows_with_samples_and_with_less_noise():
    values = np.array(
        [
            [success_bound(make_rule("and", 3, 60, label_noise=noise), m) for m in range(0, 90, 6)]
            for noise in (0.2, 0.1, 0.0)
        ]
    )
    assert (np.diff(values, axis=1) >= -1e-12).all()
    assert (np.diff(values, axis=0) >= -1e-12).all()
    assert values[-1, -1] > 0.999


def test_levels_and_trivial_cases():
    rule = make_rule("and", 3, 100)
    samples = [information_bounds(rule, level).packing for level in (0.1, 0.5, 0.9, 1.0)]
    assert samples == sorted(samples)
    assert samples[0] < samples[-1] < 1000
    alone = information_bounds(make_rule("and", 3, 3))
    assert (alone.counting, alone.packing, alone.first_order) == (0.0, 0, 0.0)
    assert information_bounds(make_rule("parity", 3, 400, label_noise=0.49)).packing is None
    assert information_bounds(make_rule("and", 30, 100)).packing is None
    shown = str(information_bounds(rule))
    assert shown.count("lower bound") == 2
    assert "upper" not in shown
    assert "scaling" in shown


def test_bad_arguments_are_named():
    rule = HiddenRule(parse("x0 & x1"), 9)
    with pytest.raises(InputError, match="`level`"):
        information_bounds(rule, 0)
    with pytest.raises(InputError, match="`n_samples`"):
        success_bound(rule, -1)
    with pytest.raises(InputError, match="4000 for noisy labels"):
        success_bound(make_rule("and", 2, 9, label_noise=0.1), 5000)
    with pytest.raises(InputError, match=r"at most 2\^24 terms"):
        best_success(rule, 3)
    with pytest.raises(InputError, match="`probability`"):
        binary_entropy(1.5)
