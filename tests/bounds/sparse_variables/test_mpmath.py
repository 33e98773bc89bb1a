"""Every formula again, with 50 digits, written from the specification and in plain numbers."""

import math
from dataclasses import replace
from itertools import product

import mpmath as mp
import numpy as np
import pytest

from finetti.bounds import Sample, sensitivities
from finetti.bounds.covering.linear_covering import log_log_refined_cover
from finetti.bounds.ours.parameter_count import ParameterCountCovering
from finetti.bounds.sparse_variables import (
    CoveringConstantGap,
    HeadCovering,
    HeadGap,
    HeadSplit,
    LinearMapCovering,
    MultiHeadCovering,
    ProjectedTransformerCovering,
    ProjectedTransformerGap,
    RefinedMatrixCovering,
    UniformTransformer,
)


@pytest.fixture(autouse=True)
def enough_digits():
    with mp.workdps(50):
        yield


def close(found, expected):
    assert abs(mp.mpf(found) / expected - 1) < mp.mpf("1e-12")


def log_factor(ratio, points):
    return mp.log(2 * mp.ceil(ratio + 2) * points + 1)


def composed(terms, resolution):
    """terms: (c_j, d_j, N_j)."""
    gamma = sum(c ** (mp.mpf(2) / 3) for c, _, _ in terms)
    total = mp.mpf(0)
    for c, d, points in terms:
        ratio = 4 * gamma * mp.cbrt(c) / (mp.sqrt(d) * resolution)
        total += c ** (mp.mpf(2) / 3) * log_factor(ratio, points)
    return 36 * gamma**2 / resolution**2 * total


def head_terms(head, token, points, constant, query=None):
    k, d = head.head_dimension, head.width
    rows = []
    for each in head.each:
        steep = mp.mpf(each.out_lipschitz)
        rows.append((k * steep * each.value_column_norm * token, k, points))
        score = constant * d * steep * each.value_norm * each.score_row_norm
        rows.append((score * token**2 * (token if query is None else query), d, points))
    return rows


def deep_terms(network, sample, constant):
    """Theorem A.17 as the specification has it."""
    steep, readout = mp.mpf(network.activation_lipschitz), mp.mpf(network.readout_norm)
    d, k = network.width, network.head_dimension
    points = sample.n_samples * (sample.context_length + 1)
    radius, radii, inner, factors = mp.mpf(sample.input_norm), [], [], []
    for layer in network.layers:
        b_c, b_v, b_qk = map(mp.mpf, (layer.output_norm, layer.value_norm, layer.score_norm))
        radii.append(radius)
        inner.append(min(mp.mpf(1), b_v * radius))
        factors.append(steep * b_c * b_v * (1 + 2 * constant * b_qk * radius**2))
        radius = min(mp.mpf(1), steep * b_c * inner[-1])
    rows = [(readout * radius, 1, sample.n_samples)]
    for i, layer in enumerate(network.layers):
        carried = readout * mp.fprod(factors[i + 1 :])
        b_c, b_v, r = mp.mpf(layer.output_norm), mp.mpf(layer.value_norm), radii[i]
        rows += [
            (carried * d * steep * inner[i] * layer.output_column_norm, d, points),
            (carried * constant * d * steep * b_c * b_v * layer.score_row_norm * r**3, d, points),
            (carried * k * steep * b_c * layer.value_column_norm * r, k, points),
        ]
    return rows, radius


def printed_head_terms(head, token, lengths):
    """In c_QK stands 1, 2 in A.12 or 2(B_X + B_P) in A.4 for the lengths (erratum 1)."""
    rows = []
    for each in head.each:
        common = mp.mpf(each.out_lipschitz) * token
        rows.append(head.head_dimension * common * each.value_column_norm)
        rows.append(head.width * common * each.value_norm * each.score_row_norm * lengths)
    return rows


def printed_deep_terms(network):
    """A.17 amplifies by the layers before, and has no w, no r and no L_σ (errata 2 and 10)."""
    steep, amplified = mp.mpf(network.activation_lipschitz), mp.mpf(1)
    rows = [mp.mpf(network.readout_norm)]
    for layer in network.layers:
        b_c, b_v, b_qk = map(mp.mpf, (layer.output_norm, layer.value_norm, layer.score_norm))
        through = amplified * steep * b_c
        rows += [
            amplified * network.width * layer.output_column_norm,
            through * network.width * b_v * layer.score_row_norm * 2,
            through * network.head_dimension * layer.value_column_norm,
        ]
        amplified *= steep * b_c * b_v * (1 + 4 * b_qk)
    return rows


def scaling(costs, resolution, points):
    """(Σ c^{2/3})³/ε² log N."""
    gamma = sum(c ** (mp.mpf(2) / 3) for c in costs)
    return gamma**3 / mp.mpf(resolution) ** 2 * mp.log(points)


def dudley(cover, output_range, m):
    """min(A, inf_δ 4δ + 12/√m ∫_δ^A √log N), with the δ where log N = m/9."""
    if cover(output_range) >= mp.mpf(m) / 9:
        return output_range
    low = output_range
    while cover(low) < mp.mpf(m) / 9:
        low /= 2
    edge = mp.findroot(lambda e: mp.log(9 * cover(e) / m), (low, 2 * low), solver="anderson")
    edges = [edge * (output_range / edge) ** (mp.mpf(j) / 6) for j in range(7)]
    integral = mp.quad(lambda e: mp.sqrt(cover(e)), edges)
    return min(output_range, 4 * edge + 12 / mp.sqrt(m) * integral)


def smooth(terms):
    """The cover with ⌈a⌉ replaced by a + 1, which is what Dudley integrates."""
    gamma = sum(c ** (mp.mpf(2) / 3) for c, _, _ in terms)

    def cover(resolution):
        total = mp.mpf(0)
        for c, d, points in terms:
            ratio = 4 * gamma * mp.cbrt(c) / (mp.sqrt(d) * resolution)
            total += c ** (mp.mpf(2) / 3) * mp.log(2 * (ratio + 3) * points + 1)
        return 36 * gamma**2 / resolution**2 * total

    return cover


def outputs(largest, sample):
    """What Dudley starts from: a fixed function is enough where losses differ by half of b."""
    return min(largest, mp.mpf(sample.loss_bound) / (2 * mp.mpf(sample.loss_lipschitz)))


def gap(complexity, sample):
    sample_part = mp.sqrt(mp.log(3 / mp.mpf(sample.delta)) / (2 * sample.n_samples))
    return 2 * sample.loss_lipschitz * complexity + 3 * sample.loss_bound * sample_part


def test_linear_maps(sample):
    points, norm, size = 50_000, mp.mpf(0.7), mp.mpf(1.5)
    ratio = norm * size / mp.mpf(0.2)
    one = 36 * ratio**2 * log_factor(4 * ratio, points)
    close(LinearMapCovering(0.7, 0.2).evaluate(sample).value, one)
    wide = 36 * (5 * ratio) ** 2 * log_factor(4 * ratio * mp.sqrt(5), points)
    close(LinearMapCovering(0.7, 0.2, outputs=5).evaluate(sample).value, wide)
    printed = (5 * ratio) ** 2 * mp.log(points)
    close(LinearMapCovering(0.7, 0.2, outputs=5, form="printed").evaluate(sample).value, printed)


def refined(outputs, budget, sample):
    """The logarithm of the refined cover for one number of units."""
    logs = (math.log(each) for each in (sample.input_norm, 0.2, 50_000))
    return log_log_refined_cover(math.log(0.7), outputs, *logs, budget)


@pytest.mark.parametrize("budget", [1, 3, 40])
def test_refined_matrices(sample, budget):
    n, d, ratio = budget, 5, mp.mpf(0.7) * mp.mpf(1.5) / mp.mpf(0.2)
    inside = 4 * ratio * mp.sqrt((n + 1) * (n + d)) / n
    expected = mp.log(mp.binomial(n + d, d))
    expected += 36 * (1 + mp.mpf(d) / n) ** 2 * ratio**2 * log_factor(inside, 50_000)
    close(mp.exp(refined(d, budget, sample)), expected)


def test_the_best_budget_is_the_least(sample):
    best = RefinedMatrixCovering(0.7, 0.2, outputs=5).evaluate(sample).log_value
    assert best == min(refined(5, 5 * 2**j, sample) for j in range(60))


def enumerated(outputs, budget):
    """The refined cover, counted: all tuples k with Σ k_i ≤ n, and the dearest of them."""
    tuples = [k for k in product(range(budget + 1), repeat=outputs) if sum(k) <= budget]

    def column(units):
        width = mp.mpf(0.2) * mp.sqrt(mp.mpf(units + 1) / (budget + outputs))
        ratio = mp.mpf(0.7) * (units + 1) / budget * mp.mpf(1.5) / width
        return 36 * ratio**2 * log_factor(4 * ratio, 50_000)

    return mp.log(len(tuples)) + max(sum(column(each) for each in k) for k in tuples)


def test_no_tuple_of_the_refined_cover_costs_more(sample):
    def bound(outputs, budget):
        return mp.exp(refined(outputs, budget, sample))

    for budget in (1, 2, 5, 9):
        close(bound(1, budget), enumerated(1, budget))
    shares = [enumerated(d, n) / bound(d, n) for d in (2, 3) for n in (1, 2, 4, 8)]
    assert 0.98 < max(shares) <= 1 + mp.mpf("1e-12")


def test_no_split_of_a_head_is_better(make_head, sample):
    """Theorem 4.2: both covers by Lemma A.10 for each column, at 20 001 shares."""
    head = make_head(head_dimension=3, norm_lipschitz=2.0, query_norm=0.4)
    logits = np.linspace(-30, 30, 20_001)
    total = np.zeros_like(logits)
    parts = zip(head_terms(head, 1.5, 50_000, 2, 0.4), (1, -1), strict=True)  # values, scores
    for (cost, columns, points), sign in parts:
        ratio = float(cost) * (1 + np.exp(sign * logits)) / 0.3
        inside = np.ceil(4 * ratio / columns**0.5 * (1 - 1e-12) + 2)
        total += 36 * ratio**2 * np.log(2 * inside * points + 1)
    found = HeadSplit(head, 0.3).evaluate(sample).value
    assert 0.999 <= total.min() / found < 1 + 1e-5


@pytest.mark.parametrize("query_norm", [None, 1.0])
def test_head_with_positions_and_class_token(make_head, sample, query_norm):
    head = make_head(positions="fixed", position_norm=0.25, query_norm=query_norm, class_token=True)
    query = None if query_norm is None else mp.mpf(1.25)
    terms = head_terms(head, mp.mpf(1.75), 1000 * 51, 1, query)
    close(HeadCovering(head, 0.3).evaluate(sample).value, composed(terms, mp.mpf(0.3)))


def test_head_with_a_readout(make_head, sample):
    terms = head_terms(make_head(), mp.mpf(1.5), 50_000, 1)
    scaled = [(2 * c, d, points) for c, d, points in terms]
    trained = [*scaled, (2 * mp.mpf(1.2) * mp.mpf(0.9) * mp.mpf(1.5), 1, 1000)]
    bound = HeadCovering(make_head(readout_norm=2.0), 0.3)
    close(bound.evaluate(sample).value, composed(trained, mp.mpf(0.3)))


@pytest.mark.parametrize("query_norm", [None, 0.4])
@pytest.mark.parametrize("constant", [1, 3])
def test_narrow_heads_and_steeper_scores(make_head, make_heads, sample, query_norm, constant):
    fields = {"head_dimension": 3, "query_norm": query_norm, "norm_lipschitz": constant}
    for covering, make in ((HeadCovering, make_head), (MultiHeadCovering, make_heads)):
        terms = head_terms(make(**fields), mp.mpf(1.5), 50_000, constant, query_norm)
        found = covering(make(**fields), 0.3).evaluate(sample).value
        close(found, composed(terms, mp.mpf(0.3)))


def test_printed_forms(make_head, make_heads, make_network, sample):
    for covering, layer, token, lengths in (
        (HeadCovering, make_head(head_dimension=3), 1.5, 1),
        (HeadCovering, make_head(positions="fixed", position_norm=0.25), 1.75, 3.5),
        (MultiHeadCovering, make_heads(head_dimension=3), 1.5, 2),
    ):
        expected = scaling(printed_head_terms(layer, mp.mpf(token), lengths), 0.3, 50_000)
        close(covering(layer, 0.3, form="printed").evaluate(sample).value, expected)
    network = make_network(activation_lipschitz=1.1)
    expected = scaling(printed_deep_terms(network), 0.3, 50_000)
    bound = ProjectedTransformerCovering(network, 0.3, form="printed")
    close(bound.evaluate(sample).value, expected)


@pytest.mark.parametrize("constant", [1, 2])
@pytest.mark.parametrize("input_norm", [0.3, 1.7])
def test_deep(make_network, sample, input_norm, constant):
    sample = replace(sample, input_norm=input_norm)
    network = make_network(activation_lipschitz=1.1, norm_lipschitz=constant)
    terms, _ = deep_terms(network, sample, constant)
    close(
        ProjectedTransformerCovering(network, 0.3).evaluate(sample).value,
        composed(terms, mp.mpf(0.3)),
    )


@pytest.mark.parametrize("norm", [1.5, 1e150])  # its powers are beyond any float
def test_uniform(sample, norm):
    sample = replace(sample, input_norm=0.5)
    factor = mp.mpf(1.2) * mp.mpf(norm) ** 2 * (1 + 2 * mp.mpf(norm))
    cost = 2 * mp.mpf(0.5) * 8 * mp.mpf(0.7) * factor**3
    bound = UniformTransformer(
        n_layers=3,
        width=8,
        spectral_norm=norm,
        column_norm=0.7,
        activation_lipschitz=1.2,
        readout_norm=2.0,
    )
    expected = composed([(cost, 1, 1000 * 51)] * 10, mp.mpf(0.1))
    close(bound.evaluate(sample).log_value, mp.log(expected))
    powers = sensitivities(replace(bound, form="printed"), sample)
    for name in ("column_norm", "readout_norm", "sample.input_norm"):
        assert powers[name].exponent == pytest.approx(2, abs=1e-9)


def test_gap_of_a_constant():
    sample = Sample(10**5, 1, loss_lipschitz=1.5, loss_bound=2.0, delta=0.01)
    x = 3 * mp.sqrt(mp.mpf(10**5) / 7)
    complexity = 3 * 12 * (1 + mp.log(x / 3)) / x
    bound = CoveringConstantGap(covering_constant=7.0, output_range=3.0)
    close(bound.evaluate(sample).value, gap(complexity, sample))


def test_gap_of_a_head(make_head):
    sample = Sample(n_samples=10**12, context_length=100, input_norm=1.5)
    head = make_head(readout_norm=2.0)
    scaled = [(2 * c, d, n) for c, d, n in head_terms(head, mp.mpf(1.5), 10**14, 1)]
    output_range = 2 * mp.mpf(1.2) * mp.mpf(0.9) * mp.mpf(1.5)
    terms = [*scaled, (output_range, 1, 10**12)]
    complexity = dudley(smooth(terms), outputs(output_range, sample), 10**12)
    close(HeadGap(head).evaluate(sample).value, gap(complexity, sample))


def test_gap_of_a_deep_network(make_network):
    sample, network = Sample(n_samples=10**13, context_length=100), make_network()
    terms, last = deep_terms(network, sample, 1)
    complexity = dudley(smooth(terms), outputs(2 * last, sample), 10**13)
    found = ProjectedTransformerGap(network)
    close(found.evaluate(sample).value, gap(complexity, sample))


def test_parameter_count(make_network, sample):
    sample, network = replace(sample, input_norm=0.9), make_network()
    rows, last = deep_terms(network, sample, 1)
    columns = [1]
    for layer in network.layers:
        columns += [layer.output_column_norm, layer.score_row_norm, layer.value_column_norm]
    multipliers = [c / (d * column) for (c, d, _), column in zip(rows, columns, strict=True)]
    multipliers[0] = last
    steep = mp.sqrt(sum(each**2 for each in multipliers))
    radius = mp.sqrt(
        4
        + sum(
            8 * mp.mpf(min(a.score_norm, a.score_row_norm)) ** 2
            + 4 * mp.mpf(min(a.value_norm, a.value_column_norm)) ** 2
            + min(4 * mp.mpf(a.output_norm) ** 2, 8 * mp.mpf(a.output_column_norm) ** 2)
            for a in network.layers
        )
    )
    count = 2 * (64 + 2 * 32) + 8
    expected = count * mp.log(1 + 2 * steep * radius / mp.mpf(0.1))
    close(ParameterCountCovering(network).evaluate(sample).value, expected)
