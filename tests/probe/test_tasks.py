"""Hidden rules: what is drawn, how it is labeled, and what is refused."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.boolean import And, Parity, Symmetric, TruthTable, compile_rule, parse
from finetti.boolean.language.rule import all_bits
from finetti.core.errors import InputError
from finetti.probe import HiddenRule, HiddenTask, make_rule

NAMES = ["and", "or", "parity", "majority", "threshold:2", "exactly:1", "table", "x0 & (x1 | ~x2)"]


def rng(seed=0):
    return np.random.default_rng(seed)


def slow_labels(task, bits):
    """Row by row, by the definition: the k-th bit of the function is at the k-th position."""
    function = task.rule.function
    return [int(function.evaluate(row[list(task.indices)][None])[0]) for row in bits]


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_labeled_by_the_hidden_bits(name):
    task = make_rule(name, 3, 70).draw(rng(3))
    bits, labels = task.sample(rng(4), 300)
    assert bits.dtype == labels.dtype == np.uint8
    assert labels.tolist() == slow_labels(task, bits) == task.labels(bits).tolist()
    assert task.function(bits).tolist() == labels.tolist()
    assert 0 < labels.sum() < 300


@pytest.mark.parametrize("name", [*NAMES, "table:01101000", "profile:0110"])
def test_a_name_gives_the_same_rule_again(name):
    rule = make_rule(name, 3, 10)
    again = make_rule(rule.name, 3, 10)
    assert again.name == rule.name
    assert again.function.table().tolist() == rule.function.table().tolist()


def test_expressions_are_moved_in_the_order_of_their_indices():
    rule = make_rule("x7 & ~x2", None, 6)  # x2 is the first bit, x7 the second
    task = HiddenTask(rule, (4, 1))
    assert (
        task.labels(all_bits(6)).tolist() == ((1 - all_bits(6)[:, 4]) & all_bits(6)[:, 1]).tolist()
    )


def test_the_hidden_function_compiles():
    task = make_rule("and", 2, 5).draw(rng())
    compiled = compile_rule(task.function, 5)
    assert (compiled.predict(all_bits(5)) == task.labels(all_bits(5))).all()


@pytest.mark.parametrize(("name", "n_outcomes"), [("and", 10), ("x0 & ~x1", 20)])
def test_index_sets_are_uniform(name, n_outcomes):
    rule, source, n_draws = make_rule(name, 2, 5), rng(5), 4000
    drawn = [rule.draw(source).indices for _ in range(n_draws)]
    counts = np.array(list(Counter(drawn).values()))
    assert len(counts) == n_outcomes
    chi_square = ((counts - n_draws / n_outcomes) ** 2).sum() / (n_draws / n_outcomes)
    freedom = n_outcomes - 1
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("p", [0.5, 0.25, 0.3, 0.999])
def test_bits_are_independent_with_their_probability(p):
    n, length = 4000, 67
    bits, _ = make_rule("or", 2, length, bit_probability=p).draw(rng()).sample(rng(6), n)
    standard = (bits - p) / np.sqrt(p * (1 - p))
    fourth = 1 / (p * (1 - p)) - 3  # E of a standardized bit's fourth power
    z = standard.sum(axis=0) / np.sqrt(n)
    assert np.abs(z).max() < 5
    assert abs((z**2).mean() - 1) < 5 * np.sqrt((2 + fourth / n) / length)
    correlations = (standard.T @ standard)[np.triu_indices(length, 1)] / np.sqrt(n)
    error = np.sqrt((2 + fourth**2 / n) / correlations.size)
    assert abs((correlations**2).mean() - 1) < 5 * error


@given(
    p=st.floats(0.01, 0.99),
    table=st.lists(st.integers(0, 1), min_size=8, max_size=8),
)
def test_label_probability_is_the_weighted_table(p, table):
    try:
        rule = HiddenRule(TruthTable(range(3), table), 5, bit_probability=p)
    except InputError:  # constant, or a bit that does not matter: refused, as tested below
        return
    weights = np.where(all_bits(3), p, 1 - p).prod(axis=1)
    assert rule.label_probability == pytest.approx(weights @ table, abs=1e-14)


def test_label_probability_of_many_bits_needs_no_table():
    assert HiddenRule(Parity(range(60)), 100, bit_probability=0.5).label_probability == (
        pytest.approx(0.5, abs=1e-12)
    )
    assert make_rule("and", 40, 50).label_probability == 2.0**-40


def test_noise_flips_that_share_of_the_training_labels_only():
    noise, n = 0.2, 20_000
    task = make_rule("parity", 3, 20, label_noise=noise).draw(rng())
    bits, labels = task.sample(rng(7), n)
    flipped = labels != task.labels(bits)
    assert abs(flipped.mean() - noise) < 5 * np.sqrt(noise * (1 - noise) / n)
    assert abs(flipped[labels == 1].mean() - noise) < 5 * np.sqrt(noise / (n / 2))
    same_bits, clean = task.sample(rng(7), n, noisy=False)
    assert (same_bits == bits).all()
    assert (clean == task.labels(bits)).all()


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_a_smaller_sample_is_the_beginning_of_a_larger_one(p):
    task = make_rule("and", 3, 130, bit_probability=p, label_noise=0.1).draw(rng())
    small, large = task.sample(rng(9), 10), task.sample(rng(9), 25)
    assert (small[0] == large[0][:10]).all()
    assert (small[1] == large[1][:10]).all()


def test_symmetric_rules_of_many_bits_have_a_name_without_a_table():
    rule = HiddenRule(Symmetric(range(40), [0, 1] * 20 + [0]), 50)
    assert rule.name == "profile:" + "01" * 20 + "0"
    assert make_rule(rule.name, None, 50).label_probability == pytest.approx(0.5)


def test_random_tables_differ_by_seed_and_use_all_bits():
    tables = {make_rule("table", 3, 10, seed=seed).name for seed in range(20)}
    assert len(tables) > 10
    assert make_rule("table", 3, 10, seed=1).name == make_rule("table", 3, 10, seed=1).name


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_rule("and", 5, 4), "`context_length`.*at least 5"),
        (lambda: make_rule("and", 0, 4), "`sparsity`"),
        (lambda: make_rule("x0 & x1", 3, 4), "`sparsity`.*must be 2"),
        (lambda: make_rule("nand", 3, 9), "one of and, or, parity, majority, threshold:K"),
        (lambda: make_rule("threshold:two", 3, 9), "one of and"),
        (lambda: make_rule("table:011", 3, 9), r"2\^s digits"),
        (lambda: make_rule("profile:012", 2, 9), "one of and"),
        (lambda: make_rule("x0 & & x1", 2, 9), "cannot be read"),
        (lambda: make_rule("table", 17, 90), "at most 16"),
        (lambda: make_rule("threshold:0", 3, 9), "constant"),
        (lambda: make_rule("x0 | ~x0", None, 9), "constant"),
        (lambda: make_rule("x0 & (x1 | ~x1)", 2, 9), "does not depend on x1"),
        (lambda: make_rule("and", 2, 9, label_noise=0.5), r"`label_noise`.*\[0, 1/2\)"),
        (lambda: make_rule("and", 2, 9, bit_probability=1), "`bit_probability`"),
        (lambda: make_rule("and", 2, 9, bit_probability=float("nan")), "`bit_probability`"),
        (lambda: make_rule("and", 2, 9.5), "`context_length`"),
        (lambda: HiddenRule("and", 9), "`function`"),
        (lambda: HiddenRule(Symmetric((0, 1), [0, 0.5, 1]), 9), "values 0 and 1"),
        (lambda: HiddenTask(make_rule("and", 2, 9), (1, 9)), "2 positions below 9"),
        (lambda: HiddenTask(make_rule("and", 2, 9), (1, 1)), "distinct"),
        (lambda: HiddenTask(make_rule("and", 2, 9), (1, 2)).sample(rng(), 0), "`n_samples`"),
        (lambda: HiddenTask(make_rule("and", 2, 9), (1, 2)).labels([[0, 1]]), r"\(m, 9\)"),
        (lambda: make_rule("and", 2, 9).draw(0), r"`rng` .* HiddenRule.draw .*default_rng\(0\)"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_functions_keep_their_own_indices():
    rule = HiddenRule(And((3, 8)), 4)  # only their order counts
    assert rule.draw(rng()).labels(np.ones((1, 4), int)).tolist() == [1]
    assert HiddenRule(parse("x9 & ~x5"), 4).sparsity == 2
