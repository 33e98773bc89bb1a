"""Certificates of one predictor: published values, enumeration, exact quantiles, stopping times."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from finetti.bounds import Sample
from finetti.bounds.certificates import (
    AzumaGap,
    BernsteinGap,
    BinomialCertificate,
    CatoniCertificate,
    ConfidenceSequence,
    GaussianCertificate,
    RelativeEntropyCertificate,
    description_nats,
    gaussian_divergence,
    log_binomial_tail,
    smoothed_loss_range,
    upper_relative_entropy,
)
from finetti.bounds.certificates.loss_martingales import (
    BERNSTEIN_RATES,
    CATONI_RATES,
    bernstein_growth,
)
from finetti.core.errors import InputError, UnsupportedError

TEN_THOUSAND = Sample(10_000, 1)


def risk(bound, sample=TEN_THOUSAND):
    return bound.evaluate(sample).value


def test_values_that_catch_a_lost_logarithm_or_union():
    assert description_nats(800) == pytest.approx(567.888217123, abs=1e-8)
    assert description_nats(800, 200) == pytest.approx(567.888217123 + math.log(200), abs=1e-8)
    for found, wanted in (
        (0.3 + risk(AzumaGap(bits=800)), 0.468950281),
        (risk(CatoniCertificate(0.3, bits=800)), 0.466397476),
        (0.3 + risk(BernsteinGap(0.21, bits=800)), 0.496213297),
        (0.3 + risk(BernsteinGap(0.02, bits=800)), 0.392090170),
        (risk(RelativeEntropyCertificate(0.0, bits=800)), 0.0554894243),
        (risk(BinomialCertificate(0.0, bits=800)), 0.0554894243),
        (risk(RelativeEntropyCertificate(0.02, bits=800)), 0.106476388),
        (risk(BinomialCertificate(0.02, bits=800)), 0.106105402),
    ):
        assert found == pytest.approx(wanted, abs=1.1e-9)


def test_the_gaps_of_a_language_model_with_two_trillion_tokens():
    """741 Mbit, 49 152 symbols, smoothed by 0.1: bits per token."""
    least, span = smoothed_loss_range(0.1, 49_152)
    sample = Sample(2 * 10**12, 1, loss_bound=span)
    in_bits = 1 / math.log(2)
    assert risk(AzumaGap(bits=741 * 10**6), sample) * in_bits == pytest.approx(0.2126, abs=2e-4)
    for variance, wanted in ((4.4, 0.0719), (7.1, 0.0904)):
        gap = risk(BernsteinGap(variance, bits=741 * 10**6), sample)
        assert gap * in_bits == pytest.approx(wanted, rel=0.01)
    assert least * in_bits == pytest.approx(0.152, abs=5e-4)


@pytest.mark.parametrize(
    ("errors", "bits", "samples"),
    [(0.0, 300, 1369), (0.0, 640, 2828), (0.05, 300, 4383), (0.05, 640, 9058)],
)
def test_samples_that_certify_fifteen_per_cent(errors, bits, samples):
    bound = RelativeEntropyCertificate(errors, bits=bits)
    assert bound.samples_needed(0.15, Sample(1, 1)).count == samples
    exact = BinomialCertificate(errors, bits=bits).samples_needed(0.15, Sample(1, 1)).count
    assert 0.98 * samples < exact <= samples


def test_smoothed_losses_fill_their_range():
    vocabulary, rate = 50, 0.2
    least, span = smoothed_loss_range(rate, vocabulary)
    sure = -math.log((1 - rate) + rate / vocabulary)
    never = -math.log(rate / vocabulary)
    assert (least, least + span) == pytest.approx((sure, never), abs=1e-12)


@pytest.mark.parametrize("n", [1, 7, 300])
def test_the_binomial_tail_against_fifty_digits(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        errors, rate = int(rng.integers(0, n + 1)), float(rng.uniform(0.01, 0.99))
        with mpmath.workdps(50):
            terms = (
                mpmath.binomial(n, k) * mpmath.mpf(rate) ** k * (1 - mpmath.mpf(rate)) ** (n - k)
                for k in range(errors + 1)
            )
            exact = float(mpmath.log(mpmath.fsum(terms)))
        assert log_binomial_tail(errors, n, rate) == pytest.approx(exact, rel=1e-10, abs=1e-13)


@given(st.floats(0, 1), st.floats(1e-12, 12))
def test_the_relative_entropy_is_inverted(mean, limit):
    found = upper_relative_entropy(mean, limit)
    assert mean <= found <= 1
    if mean > 0 and found < 1 - 1e-6:  # else 1 − q has few digits
        with mpmath.workdps(40):
            p, q = mpmath.mpf(mean), mpmath.mpf(found)
            entropy = p * mpmath.log(p / q) + (1 - p) * mpmath.log((1 - p) / (1 - q))
        assert float(entropy) == pytest.approx(limit, rel=1e-6, abs=1e-14)


def test_against_the_exact_binomial_quantile():
    """Half a million errors of a million losses, at the level δe^−500."""
    n, nats, delta = 10**6, 500.0, 0.05
    log_level = math.log(delta) - nats
    low, high = 400_000, 500_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if log_binomial_tail(middle, n, 0.5) < log_level else (low, middle)
        )
    mean = high / n
    exact = 0.5 - mean
    # A δ that holds the 500 nats, too: they enter only as L + ln(1/δ).
    sample = Sample(n, 1, delta=math.exp(log_level))
    ratios = {
        "azuma": risk(AzumaGap(), sample) / exact,
        "catoni": (risk(CatoniCertificate(mean), sample) - mean) / exact,
        "bernstein": risk(BernsteinGap(mean * (1 - mean)), sample) / exact,
    }
    assert all(ratio >= 1 for ratio in ratios.values())
    assert max(ratios["azuma"], ratios["catoni"]) <= 1.015
    assert ratios["bernstein"] <= 1.04


def adversarial_chances(past):
    """The chance of a loss of 1 after these losses: larger after fewer errors."""
    return 0.2 + 0.6 / (1 + 2 * sum(past))


def expectation(n, factor):
    """Of the product of factor(chance, past, loss), over all sequences of 0–1 losses."""
    total = 0.0
    for losses in itertools.product((0, 1), repeat=n):
        probability, value = 1.0, 1.0
        for i, loss in enumerate(losses):
            chance = adversarial_chances(losses[:i])
            probability *= chance if loss else 1 - chance
            value *= factor(chance, losses, i)
        total += probability * value
    return total


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_each_supermartingale_starts_at_one_and_does_not_grow(n):
    for rate in CATONI_RATES[::20]:

        def catoni(chance, losses, i, rate=rate):
            return math.exp(-rate * losses[i]) / (1 + chance * math.expm1(-rate))

        assert expectation(n, catoni) == pytest.approx(1, abs=1e-12)
    for rate in BERNSTEIN_RATES[::20]:

        def bernstein(chance, losses, i, rate=rate):
            known = (sum(losses[:i]) + 0.5) / (i + 1)
            square = float(bernstein_growth(rate)) * (losses[i] - known) ** 2
            return math.exp(rate * (chance - losses[i]) - square)

        assert expectation(n, bernstein) <= 1 + 1e-12


def test_a_variance_around_the_mean_in_hindsight_is_not_one():
    """Two fair losses, and a prediction that knows both of them: the process grows."""
    total = 0.0
    for losses in itertools.product((0, 1), repeat=2):
        squares = sum((loss - sum(losses) / 2) ** 2 for loss in losses)
        total += math.exp(0.5 * (1 - sum(losses)) - float(bernstein_growth(0.5)) * squares) / 4
    assert total > 1.01


def test_a_confidence_sequence_is_right_at_its_worst_time():
    """Losses that depend on the past; one of 64 predictors is chosen in hindsight."""
    rng = np.random.default_rng(0)
    repeats, n, predictors, delta = 150, 40, 64, 0.2
    nats = description_nats(0, predictors)
    wrong = 0
    for _ in range(repeats):
        draws = rng.random((n, predictors))
        errors, chances = np.zeros(predictors), np.empty((n, predictors))
        losses = np.empty((n, predictors))
        for i in range(n):
            chances[i] = 0.2 + 0.6 / (1 + 0.2 * errors)
            losses[i] = draws[i] < chances[i]
            errors += losses[i]
        # The predictor whose losses look best against its chances, at any time.
        gaps = np.cumsum(chances - losses, axis=0)
        chosen = int(np.argmax(gaps.max(axis=0)))
        sequence = ConfidenceSequence(delta, nats=nats)
        failed = False
        for i in range(n):
            sequence.update(losses[i, chosen])
            truth = float(np.mean(chances[: i + 1, chosen]))
            failed |= sequence.log_evidence(truth) > nats - math.log(delta)
        wrong += failed
    assert wrong / repeats <= delta + 4 * math.sqrt(delta * (1 - delta) / repeats)


def test_a_confidence_sequence_takes_losses_one_by_one_or_together():
    losses = np.random.default_rng(1).beta(1, 8, size=500) * 3
    together, one_by_one = ConfidenceSequence(0.01, 3.0), ConfidenceSequence(0.01, 3.0)
    assert together.upper == 3.0
    together.update(losses)
    for each in losses:
        one_by_one.update(each)
    assert one_by_one.upper == pytest.approx(together.upper, abs=1e-12)
    assert together.mean == pytest.approx(losses.mean(), abs=1e-12)
    assert losses.mean() < together.upper < 1.0
    rest = ConfidenceSequence(0.01, 3.0)
    rest.update([])
    assert rest.n_losses == 0
    for bad in ([-0.1], [3.1], [math.nan], [[1.0]]):
        with pytest.raises(InputError, match="`losses` argument"):
            together.update(bad)
    with pytest.raises(InputError, match="no losses yet"):
        rest.mean  # noqa: B018


def test_an_upper_bound_by_the_wealth_itself():
    """By bisection over the mixture written out, in fifty digits."""
    losses = np.random.default_rng(2).integers(0, 2, size=40) * 1.0
    sequence = ConfidenceSequence(0.05)
    sequence.update(losses)
    known = np.array([(losses[:i].sum() + 0.5) / (i + 1) for i in range(40)])

    def wealth(found):
        with mpmath.workdps(50):
            total = mpmath.mpf(0)
            for rate in map(mpmath.mpf, CATONI_RATES):
                total += (
                    mpmath.exp(-rate * losses.sum()) / (1 - found * (1 - mpmath.exp(-rate))) ** 40
                )
            for rate in map(mpmath.mpf, BERNSTEIN_RATES):
                growth = -mpmath.log(1 - rate) - rate
                squares = mpmath.fsum((losses - known) ** 2)
                total += mpmath.exp(rate * (40 * found - losses.sum()) - growth * squares)
            return total / 400

    assert float(wealth(sequence.upper)) == pytest.approx(20.0, rel=1e-6)


@pytest.mark.parametrize(
    "bound", [AzumaGap(), CatoniCertificate(0.1), BernsteinGap(0.02), BinomialCertificate(0.1)]
)
def test_the_largest_number_of_bits(bound):
    sample = Sample(20_000, 1)
    bits = bound.most_bits(0.2, sample)
    assert (
        risk(replace(bound, bits=bits), sample) <= 0.2 < risk(replace(bound, bits=bits + 1), sample)
    )
    assert bound.most_bits(0.2, Sample(2, 1)) == -1


def test_a_subsample_costs_what_its_drawing_may_hide():
    whole, part = AzumaGap(bits=100), AzumaGap(bits=100, subsample=1000)
    sample = Sample(10**6, 1)
    half = replace(sample, delta=0.025)
    drawing = math.sqrt(math.log(2 / 0.05) / 2000)
    assert risk(part, sample) == pytest.approx(risk(whole, half) + drawing, rel=1e-12)
    chosen = AzumaGap(bits=100, choices=9, subsample=1000)
    more = math.sqrt((math.log(2 / 0.05) + math.log(9)) / 2000)
    assert risk(chosen, sample) == pytest.approx(
        risk(AzumaGap(bits=100, choices=9), half) + more, rel=1e-12
    )
    with pytest.raises(InputError, match="at most n_samples"):
        risk(AzumaGap(subsample=11), Sample(10, 1))


def test_pac_bayes_is_the_relative_entropy_with_the_divergence():
    rng = np.random.default_rng(3)
    w, scale, prior = rng.normal(size=5), 0.3, 0.8
    draws = w + scale * rng.normal(size=(200_000, 5))
    log_ratio = scipy.stats.norm.logpdf(draws, w, scale) - scipy.stats.norm.logpdf(draws, 0, prior)
    total = log_ratio.sum(1)
    exact = gaussian_divergence(float(np.linalg.norm(w)), 5, scale, prior)
    assert abs(total.mean() - exact) < 4 * total.std() / math.sqrt(len(total))
    bound = GaussianCertificate(0.05, distance=3.0, dimension=100)
    limit = (4.5 + math.log(2 * 100 / 0.05)) / 10_000
    assert risk(bound) == pytest.approx(upper_relative_entropy(0.05, limit), rel=1e-12)
    estimated = replace(bound, n_draws=1000)
    mean = upper_relative_entropy(0.05, math.log(2 / 0.05) / 1000)
    limit = (4.5 + math.log(2 * 100 / 0.025)) / 10_000
    assert risk(estimated) == pytest.approx(upper_relative_entropy(mean, limit), rel=1e-12)


def test_a_certificate_without_its_loss_is_refused():
    for kind, name in (
        (CatoniCertificate, "empirical_risk"),
        (RelativeEntropyCertificate, "empirical_risk"),
        (BinomialCertificate, "error_rate"),
        (GaussianCertificate, "empirical_risk"),
    ):
        with pytest.raises(InputError, match=f"`{name}`"):
            risk(kind())
        with pytest.raises(InputError, match="the range of the loss"):
            risk(kind(**{name: 1.5}))
        with pytest.raises(UnsupportedError, match="bounded loss"):
            risk(kind(**{name: 0.5}), replace(TEN_THOUSAND, loss_bound=math.inf))
    with pytest.raises(InputError, match="square of the range"):
        risk(BernsteinGap(2.0))
