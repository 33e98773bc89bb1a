"""What an answer says of the latent: all of it, if and only if T is injective."""

import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.latent import FiniteAtoms, recover_posterior, twin_posteriors


def world(answers):
    rng = np.random.default_rng(0)
    return FiniteAtoms([0.5, 0.3, 0.2], rng.dirichlet(np.ones(4), size=3), answers)


SQUARE = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
TALL = np.array([[0.5, 0.2, 0.1, 0.1, 0.1], [0.1, 0.5, 0.2, 0.1, 0.1], [0.1, 0.1, 0.1, 0.2, 0.5]])
SINGULAR = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])  # row 2: half of 0 and 1
WIDE = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])  # three values, two answers


@pytest.mark.parametrize("table", [SQUARE, TALL], ids=["square", "more answers than values"])
def test_posteriors_are_recovered_where_answers_tell_values_apart(table):
    member = world(table)
    tokens = member.sample(1, 50, 6).tokens
    found = recover_posterior(member.predict(tokens), table)
    np.testing.assert_allclose(
        found.probabilities, member.posterior(tokens).probabilities, atol=1e-12
    )
    assert twin_posteriors(table) is None


@pytest.mark.parametrize("table", [SINGULAR, WIDE], ids=["singular", "too few answers"])
def test_elsewhere_two_posteriors_answer_alike(table):
    twins = twin_posteriors(table)
    assert np.allclose(twins.sum(axis=1), 1)
    assert twins.min() >= 0
    assert np.abs(twins[0] - twins[1]).max() > 0.1
    np.testing.assert_allclose(twins[0] @ table, twins[1] @ table, atol=1e-14)
    member = world(table)
    with pytest.raises(InputError, match=r"T is not injective.*give the same answers"):
        recover_posterior(member.predict(member.sample(2, 3, 4).tokens), table)


def test_a_law_that_no_posterior_gives_is_refused():
    with pytest.raises(InputError, match="Is p_y_given_z that of the same world"):
        recover_posterior([[0.0, 0.0, 0.0, 0.0, 1.0]], TALL)
    with pytest.raises(InputError, match="as many answers"):
        recover_posterior([[0.5, 0.5]], TALL)
    with pytest.raises(InputError, match="p_y_given_z"):
        recover_posterior([[0.5, 0.5]], [0.5, 0.5])


def test_twins_are_shown_without_rounding_errors():
    with pytest.raises(InputError, match=r"posteriors \[1\. 0\.\] and \[0\. 1\.\] give"):
        recover_posterior([[0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]])
