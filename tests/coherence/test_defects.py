"""Defects against brute force, between two routes, and of what is known to have one."""

import itertools

import numpy as np
import pytest

from finetti.attention import Softmax
from finetti.coherence import (
    as_predictor,
    martingale_defect,
    measure_coherence,
    order_averaged,
    order_defect,
    sequence_defect,
    two_step_defect,
)
from finetti.coherence.coherence_page import coherence_page
from finetti.coherence.defects.defect import TOLERANCE
from finetti.coherence.predictors.context_predictor import LawSampler
from finetti.core.errors import InputError, UnsupportedError
from finetti.latent import BetaBernoulli, LinearGaussian

WORLD = LinearGaussian(key_dimension=2, value_dimension=2)


def smoother(keys, values, query):
    weights = np.exp(-((keys - query) ** 2).sum(axis=1))
    return weights @ values / weights.sum()


def recent(tokens):
    """Laplace's rule over the last two tokens."""
    kept = np.asarray(tokens)[-2:]
    p = (1 + kept.sum()) / (2 + len(kept))
    return [1 - p, p]


def running(keys, values, query):
    """Depends on the order: later values weigh more."""
    return 2.0 ** np.arange(len(values)) @ values / 2.0 ** len(values)


@pytest.fixture
def drawn():
    tokens = WORLD.sample(0, 3, 4 + 2).tokens
    return (tokens.keys[:, :4], tokens.values[:, :4]), tokens.keys[:, 4:]


def spread(values):
    return np.sqrt(((values - values.mean(axis=0)) ** 2).sum(axis=1).mean())


def test_order_defect_is_the_largest_over_all_orders(drawn):
    (keys, values), query = drawn
    found = order_defect(running, (keys, values), query)
    sizes = []
    for rows, seen in zip(keys, values, strict=True):
        answers = [
            running(rows[list(order)], seen[list(order)], None)
            for order in itertools.permutations(range(4))
        ]
        largest = max(np.linalg.norm(each - answers[0]) for each in answers)
        sizes += [largest / spread(seen)] * 2
    assert found.exact
    np.testing.assert_allclose(found.sizes, sizes, rtol=1e-12)


def test_martingale_defect_of_linear_answers_appends_the_prediction(drawn):
    (keys, values), query = drawn
    found = martingale_defect(smoother, (keys, values), query)
    sizes = []
    for rows, seen, asked in zip(keys, values, query, strict=True):
        for place in asked:
            more = np.vstack([rows, place]), np.vstack([seen, smoother(rows, seen, place)])
            gaps = [smoother(*more, each) - smoother(rows, seen, each) for each in asked]
            sizes += [np.linalg.norm(gap) / spread(seen) for gap in gaps]
    assert found.exact
    np.testing.assert_allclose(found.sizes, sizes, atol=1e-14)


def test_draws_agree_with_the_exact_expectation(drawn):
    context, query = drawn
    exact = martingale_defect(smoother, context, query)
    loud = as_predictor(smoother, noise_variance=0.5, linear=False)
    found = martingale_defect(loud, context, query, n_samples=40, seed=1)
    # In pairs m ± sε all that is linear cancels, so that even few draws are exact.
    np.testing.assert_allclose(found.sizes, exact.sizes, atol=1e-12)
    assert not found.exact
    assert not found.holds()


def test_nonlinear_answers_need_a_law_and_are_tested(drawn):
    context, query = drawn

    def curved(keys, values, query):
        return smoother(keys, values, query) ** 2

    with pytest.raises(InputError, match="noise_variance"):
        martingale_defect(curved, context, query)
    found = martingale_defect(as_predictor(curved, noise_variance=1.0), context, query)
    assert found.p_value < 1e-3
    assert found.standard_error > 0


def test_two_steps_by_gains_and_by_draws(drawn):
    """The exact law is the same in both orders; the noise alone, as if z were known, is not."""
    context, places = drawn
    exact = as_predictor(WORLD)
    assert two_step_defect(exact, context, places).maximum < 1e-13
    flawed = as_predictor(
        lambda keys, values, query: exact.mean(query[None, None], keys[None], values[None])[0, 0],
        noise_variance=WORLD.noise_variance,
    )
    assert two_step_defect(flawed, context, places).maximum > 0.01
    slow = as_predictor(WORLD, linear=False)
    assert two_step_defect(slow, context, places, n_samples=200).holds()
    flawed.linear = False
    assert not two_step_defect(flawed, context, places, n_samples=200).holds()


def test_gain_is_the_weight_of_the_new_value(drawn):
    (keys, values), query = drawn
    predictor = as_predictor(WORLD)
    more = np.append(keys, query[:, :1], 1)
    low, high = (
        predictor.mean(query, more, np.append(values, values[:, :1] + step, 1)) for step in (0, 1)
    )
    gain = high - low
    law = predictor.law(query, keys, values)
    after = predictor.law(query, more, np.append(values, values[:, :1], 1))
    left = law.variance - gain**2 * law.variance[:, :1]
    np.testing.assert_allclose(after.variance, left, rtol=1e-10)


def test_sizes_do_not_change_with_the_unit_of_the_values(drawn):
    (keys, values), query = drawn
    for defect in (order_defect, martingale_defect):
        for function in (smoother, running):
            first = defect(function, (keys, values), query).sizes
            second = defect(function, (keys, 1e3 * values), query).sizes
            np.testing.assert_allclose(first, second, atol=1e-11)


def test_letters_by_exact_sums():
    tokens = [1, 0, 0, 1]
    p, after = recent(tokens), [recent([*tokens, x]) for x in (0, 1)]
    gap = sum(p[x] * after[x][1] for x in (0, 1)) - p[1]
    assert martingale_defect(recent, tokens).maximum == pytest.approx(abs(gap), abs=1e-15)
    swap = p[0] * after[0][1] - p[1] * after[1][0]
    assert two_step_defect(recent, tokens).maximum == pytest.approx(abs(swap), abs=1e-15)
    assert order_defect(recent, tokens).maximum == pytest.approx(0.25, abs=1e-15)
    logs = []
    for order in itertools.permutations(tokens):
        logs.append(sum(np.log(recent(order[:t])[order[t]]) for t in range(4)))
    assert sequence_defect(recent, tokens).maximum == pytest.approx(np.ptp(logs), abs=1e-14)
    with pytest.raises(UnsupportedError, match="letters"):
        sequence_defect(WORLD, tokens)


def test_averages_over_orders(drawn):
    (keys, values), query = drawn
    complete = order_averaged(running, 24)
    assert order_defect(complete, (keys, values), query).maximum < 1e-14
    few = order_averaged(running, 8)
    assert order_defect(few, (keys, values), query).maximum > 0
    gap = few.mean(query, keys, values) - complete.mean(query, keys, values)
    orders = [values[:, list(order)] for order in itertools.permutations(range(4))]
    spread = np.std([2.0 ** np.arange(4) @ each / 16 for each in orders], axis=0, ddof=1)
    assert np.all(np.abs(gap) < 5 * spread[:, None] / np.sqrt(8))
    assert order_defect(order_averaged(recent, 24), [1, 0, 0, 1]).maximum < 1e-15
    law = order_averaged(WORLD, 6).law(query, keys, values)
    np.testing.assert_allclose(law.variance, as_predictor(WORLD).law(query, keys, values).variance)


def test_what_is_only_sampled_is_ranked_among_an_exact_predictor():
    world, tokens = BetaBernoulli(), [1, 1, 1, 0, 0, 0]
    exact, flawed = LawSampler(as_predictor(world)), LawSampler(as_predictor(recent))
    options = {"n_paths": 500, "reference": world, "seed": 0}
    for defect in (order_defect, martingale_defect, two_step_defect):
        assert defect(exact, tokens, **options).holds()
    found = order_defect(flawed, tokens, **options)
    assert found.p_value == 0.01
    assert order_defect(flawed, tokens, n_paths=500).p_value < 1e-3  # without a reference
    assert not found.exact
    with pytest.raises(InputError, match="2 letters"):
        order_defect(exact, tokens, reference=WORLD)


def test_pairs_that_are_only_sampled(drawn):
    context, query = drawn
    exact = LawSampler(as_predictor(WORLD))
    flawed = LawSampler(as_predictor(running, noise_variance=0.1))
    options = {"n_paths": 300, "seed": 0}
    assert two_step_defect(exact, context, query, **options).holds()
    assert order_defect(exact, context, query, **options).holds()
    assert not order_defect(flawed, context, query, **options).holds()
    certain = LawSampler(as_predictor(smoother, noise_variance=1e-4))
    assert not martingale_defect(certain, context, query, **options).holds()
    assert martingale_defect(exact, context, query, **options).holds()


def test_contexts_of_another_shape_are_refused(drawn):
    (keys, values), query = drawn
    for context, asked, words in (
        ((keys, values), None, "query"),
        (keys, query, "pair"),
        ((keys, values[:, :2]), query, "values"),
        ((keys, values), query[..., :1], "query"),
    ):
        with pytest.raises(InputError, match=words):
            order_defect(smoother, context, asked)
    with pytest.raises(InputError, match="letters from 0 to 1"):
        order_defect(recent, [0, 2])


def test_one_context_and_single_values_need_no_axes():
    rng = np.random.default_rng(0)
    keys, values, query = rng.normal(size=(4, 2)), rng.normal(size=4), rng.normal(size=(3, 2))
    found = order_defect(smoother, (keys, values), query)
    assert found.sizes.shape == (3,)
    assert found.holds()
    assert "✓" in str(found)


def single(function):
    """The same in float32: arguments, sums and answer."""

    def rounded(keys, values, query):
        found = function(*(each.astype(np.float32) for each in (keys, values, query)))
        return np.asarray(found, np.float32)

    return rounded


def mean(keys, values, query):
    return values.mean(axis=0)


def test_rounding_in_single_precision_is_no_defect():
    tokens = WORLD.sample(0, 20, 12 + 3).tokens
    context, query = (tokens.keys[:, :12], tokens.values[:, :12]), tokens.keys[:, 12:]
    for function in (single(mean), single(smoother)):
        found = order_defect(function, context, query)
        assert found.maximum > 1e-8
        assert found.holds()
    assert martingale_defect(single(mean), context, query).text == "✓"
    assert martingale_defect(single(mean), context, query).exact
    for function, defect in ((smoother, martingale_defect), (running, order_defect)):
        found = defect(single(function), context, query)
        assert not found.holds()
        assert found.median == pytest.approx(defect(function, context, query).median, rel=1e-3)
    assert order_defect(order_averaged(single(mean), 8), context, query).holds()


def test_laws_in_single_precision(drawn):
    context, query = drawn
    exact = as_predictor(WORLD)

    def law(keys, values, query):
        found = exact.law(query[None, None], keys[None], values[None])
        return found.mean[0, 0].astype(np.float32), found.variance[0, 0].astype(np.float32)

    found = two_step_defect(law, context, query)
    assert found.exact
    assert found.maximum > 1e-8
    assert found.holds()


def test_rounding_of_large_values_is_no_defect(drawn):
    (keys, values), query = drawn
    found = order_defect(mean, (keys, 1e8 + values), query)
    assert found.maximum > 1e-8
    assert found.holds()


def test_double_precision_is_held_to_the_strict_tolerance(drawn):
    context, query = drawn
    slightly = order_defect(
        lambda keys, values, query: values.mean(axis=0) + 1e-7 * values[-1], context, query
    )
    assert not slightly.holds()
    found = order_defect(Softmax(), context, query)
    assert np.all(found.rounding < TOLERANCE)
    assert found.holds()


def test_letters_in_single_precision():
    urn = as_predictor(BetaBernoulli())

    def rounded(tokens):
        return urn.predictive(np.asarray(tokens)[None])[0].astype(np.float32)

    tokens = [1, 0, 0, 1, 1]
    for defect in (order_defect, martingale_defect, two_step_defect, sequence_defect):
        assert defect(rounded, tokens).holds()
        assert not defect(lambda tokens: np.float32(recent(tokens)), tokens).holds()
    assert sequence_defect(rounded, tokens).maximum > 1e-8


def test_an_empty_context_has_one_order(drawn):
    (keys, values), query = drawn
    empty = keys[:, :0], values[:, :0]
    assert order_defect(WORLD, empty, query).maximum == 0
    assert order_defect(BetaBernoulli(), np.zeros((2, 0), int)).maximum == 0
    assert martingale_defect(WORLD, empty, query).holds()
    one = (keys[0, :0], values[0, :0]), query[0]
    assert order_defect(lambda keys, values, query: np.zeros(2), *one).maximum == 0


def spiked(tokens):
    """Far off after one context of 64 only, which few draws of contexts find."""
    p = 0.9 if list(tokens) == [0, 1, 0, 1, 1, 1] else 0.5
    return [1 - p, p]


def test_all_contexts_of_letters_are_taken_where_that_is_affordable():
    """Against brute force: all 64 contexts, and all orders of each."""
    contexts = list(itertools.product((0, 1), repeat=6))
    answers = {each: recent(each) for each in contexts}
    largest = max(
        abs(answers[one][1] - answers[other][1])
        for one in contexts
        for other in contexts
        if sum(one) == sum(other)
    )
    table = measure_coherence([recent, spiked], BetaBernoulli(), [6], n_contexts=4, n_sequences=5)
    order = table.rows[0].order
    assert order.exact
    assert order.all_contexts
    assert order.sizes.shape == (64,)
    assert order.maximum == pytest.approx(largest, abs=1e-15)
    assert "(largest 0." in order.text
    assert "all 64 contexts" in str(order)
    rare = table.rows[1].order
    assert rare.maximum == pytest.approx(0.4)
    assert rare.text == "0 (largest 0.4)"
    few = measure_coherence([spiked], BetaBernoulli(), [6], n_contexts=3, n_sequences=5)
    assert not few.rows[0].order.all_contexts


def test_the_largest_that_was_seen_is_no_bound(drawn):
    (keys, values), query = drawn
    found = order_defect(running, (keys, values), query)
    assert "≤" not in found.text
    assert "largest seen" in found.text
    assert "largest seen" in str(found)
    tokens = np.array([[0, 1] * 6, [0, 0, 1] * 4])
    assert not order_defect(recent, tokens, n_orders=5).exact


def test_two_letters_have_one_step():
    """By algebra martingale and two-step defect are one number, which a table shows once."""
    contexts = np.array(list(itertools.product((0, 1), repeat=4)))
    first, second = (each(recent, contexts) for each in (martingale_defect, two_step_defect))
    np.testing.assert_allclose(first.sizes, second.sizes, atol=1e-15)
    table = measure_coherence([recent], BetaBernoulli(), [4], n_sequences=5)
    assert table.table().columns[1:3] == ("order", "martingale = two-step")
    assert table.rows[0].two_step is None
    assert table.verdicts[0].not_measured == ()
    exact = measure_coherence([BetaBernoulli()], BetaBernoulli(), [4], n_sequences=5)
    assert exact.verdicts[0].text == "coherent"


def test_how_far_one_token_moves_stands_beside_the_defects():
    """Laplace's rule after k ones of n moves by |(1 + k + x)/(3 + n) − (1 + k)/(2 + n)|."""
    table = measure_coherence([BetaBernoulli()], BetaBernoulli(), [4], n_sequences=5)
    expected = []
    for context in itertools.product((0, 1), repeat=4):
        p = (1 + sum(context)) / 6
        after = [(1 + sum(context) + x) / 7 for x in (0, 1)]
        expected.append((1 - p) * abs(after[0] - p) + p * abs(after[1] - p))
    assert table.rows[0].one_token_moves == pytest.approx(np.mean(expected), abs=1e-14)
    assert "one token moves" in table.table().columns
    pairs = measure_coherence([mean], WORLD, [4], n_contexts=3, n_queries=2, n_sequences=5)
    assert 0 < pairs.rows[0].one_token_moves < 1


def test_charts_say_the_unit_of_their_defects():
    for target, world, words in (
        (recent, BetaBernoulli(), "total variation"),
        (running, WORLD, "spread"),
    ):
        table = measure_coherence([target], world, [4], n_contexts=2, n_queries=2, n_sequences=5)
        page = coherence_page(table)
        (section,) = (each for each in page.sections if each.title.startswith("Defects"))
        said = str(section.figures[0].chart)
        assert f"({words})" in said
