"""Parities in a predictor's output and attention on the hidden positions."""

import numpy as np
import pytest

from finetti.boolean import compile_rule, spectrum
from finetti.boolean.language.rule import all_bits
from finetti.core.errors import InputError
from finetti.probe import HiddenTask, attention_mass, make_rule, walsh_trace


def rng(seed=0):
    return np.random.default_rng(seed)


def slow_coefficients(predict, task):
    """E over all inputs of g·χ_S, for the subsets S of the hidden positions."""
    inputs, found = all_bits(task.rule.context_length), []
    values = np.asarray(predict(inputs), float)
    for chosen in all_bits(task.rule.sparsity):
        subset = [i for i, bit in zip(task.indices, chosen, strict=True) if bit]
        found.append((values * (-1.0) ** inputs[:, subset].sum(axis=1)).mean())
    return np.array(found)


def noisy_network(bits):
    """Reads hidden bits, other bits, and products of both."""
    return bits[:, 1] * 0.7 - bits[:, 4] * bits[:, 2] + bits[:, 0] * (bits[:, 5] ^ bits[:, 3]) * 0.3


@pytest.mark.parametrize("indices", [(1, 4, 6), (4, 6, 1)])
def test_all_settings_give_the_coefficients_of_all_inputs(indices):
    task = HiddenTask(make_rule("x0 & (x1 | ~x2)", 3, 8), indices)
    trace = walsh_trace(noisy_network, task, rng(), n_backgrounds=32)
    assert np.abs(trace.found.coefficients - slow_coefficients(noisy_network, task)).max() < 1e-12
    assert (trace.standard_errors == 0).all()
    wanted = slow_coefficients(task.labels, task)
    assert np.abs(trace.wanted.coefficients - wanted).max() < 1e-12
    assert trace.wanted.coefficient(1, 4) == pytest.approx(
        spectrum(task.function).coefficient(1, 4)
    )


def test_random_settings_are_right_within_their_standard_errors():
    task = HiddenTask(make_rule("majority", 3, 8), (1, 4, 6))
    exact = slow_coefficients(noisy_network, task)
    z = []
    for seed in range(100):
        trace = walsh_trace(noisy_network, task, rng(seed), n_backgrounds=30)
        seen = trace.standard_errors > 1e-12  # the others depend on hidden bits only
        difference = trace.found.coefficients - exact
        assert np.abs(difference[~seen]).max() < 1e-12
        z.append(difference[seen] / trace.standard_errors[seen])
    spread = np.square(np.concatenate(z)).mean()
    assert len(np.concatenate(z)) >= 200
    assert 0.6 < spread < 1.7  # Student's distribution with 29 degrees of freedom: 1.07


def test_biased_bits_weigh_the_others_only():
    task = HiddenTask(make_rule("and", 1, 2, bit_probability=0.8), (1,))
    trace = walsh_trace(lambda bits: bits[:, 0] * bits[:, 1], task, rng())
    assert trace.found.coefficients.tolist() == pytest.approx([0.4, -0.4])


def test_a_network_that_computes_the_rule_has_its_spectrum():
    task = make_rule("parity", 3, 40).draw(rng(1))
    compiled = compile_rule(task.function, 40)
    trace = walsh_trace(compiled.predict, task, rng(2), n_backgrounds=10)
    assert np.abs(trace.found.coefficients - trace.wanted.coefficients).max() < 1e-9
    assert trace.by_degree() == pytest.approx([0.5, 0, 0, -0.5], abs=1e-9)
    assert "standard error" in str(trace)


def test_by_degree_is_the_mean_over_subsets_of_a_size():
    task = HiddenTask(make_rule("and", 2, 4), (1, 3))
    trace = walsh_trace(lambda bits: bits[:, 1], task, rng())
    assert trace.by_degree().tolist() == [0.5, -0.25, 0.0]


def test_attention_mass_is_the_sum_over_hidden_positions():
    task = HiddenTask(make_rule("and", 2, 5), (0, 3))
    weights = rng(3).dirichlet(np.ones(6), size=(50, 4))
    mass = attention_mass(weights, task)
    by_hand = weights[:, :, 0] + weights[:, :, 3]
    assert mass.mean == pytest.approx(by_hand.mean(axis=0))
    assert mass.standard_errors == pytest.approx(by_hand.std(axis=0, ddof=1) / np.sqrt(50))
    assert mass.uniform == pytest.approx(1 / 3)
    assert np.abs(mass.mean - mass.uniform).max() < 5 * mass.standard_errors.max()
    assert "uniform" in str(mass)
    only_cls = np.zeros((1, 1, 6))
    only_cls[..., -1] = 1
    assert attention_mass(only_cls, task).mean.tolist() == [0.0]


def test_bad_arguments_are_named():
    task = HiddenTask(make_rule("and", 2, 9), (0, 3))
    with pytest.raises(InputError, match="one number per row"):
        walsh_trace(lambda bits: np.zeros((len(bits), 2)), task, rng())
    with pytest.raises(InputError, match="at least 2"):
        walsh_trace(task.labels, task, rng(), n_backgrounds=1)
    wide = make_rule("and", 13, 20).draw(rng())
    with pytest.raises(InputError, match="at most 12 hidden bits"):
        walsh_trace(np.mean, wide, rng())
    with pytest.raises(InputError, match=r"\(m, H, 10\)"):
        attention_mass(np.zeros((4, 2, 9)), task)
