"""Each printed form on a case where it shows, beside its repair."""

import numpy as np
import pytest

from finetti.boolean import And, compile
from finetti.boolean.embeddings.base import attention_error
from finetti.boolean.network.lookup import CORNERS, SIGNS
from finetti.boolean.printed import (
    coherent_basis,
    printed_bag_head,
    printed_bump,
    printed_mean_head,
    printed_sign_heads,
)
from finetti.claims import Context, load_ledger, run_claim
from finetti.claims.sparse_variables.compiled_heads import head_error
from finetti.claims.sparse_variables.compiled_rules import wrong_inputs

IDS = (
    "S-lemma-B.7",
    "S-lemma-B.8",
    *(f"S-erratum-{number}" for number in (3, 4, 5, 6, 15, 16)),
)


@pytest.mark.parametrize("claim_id", IDS)
def test_claims_come_out_as_expected(claim_id):
    result = run_claim(load_ledger().get(claim_id), Context())
    assert result.as_expected, result.error or result.reason


@pytest.mark.parametrize(("coherence", "printed"), [(0.05, 0.22), (0.10, 0.43)])
def test_erratum_3_a_coherent_basis(coherence, printed):
    vectors, allowed = coherent_basis(8, coherence), 1 / 6
    places = (0, 1, 2)
    found = head_error(printed_mean_head(vectors, 3, coherence), places, scalar=True)
    assert found == pytest.approx(printed, abs=0.005)
    assert found > allowed
    assert head_error(printed_mean_head(vectors, 3, coherence, 3.0), places, scalar=True) > found
    repaired = compile(And(places), 8, basis=vectors)
    assert head_error(repaired, places, scalar=True) < allowed


def test_erratum_3_does_not_show_for_two_bits():
    vectors = coherent_basis(8, 0.1, (1, 0, 0))
    assert head_error(printed_mean_head(vectors, 2, 0.1), (0, 1), scalar=True) < 1 / 4


def test_erratum_4_is_zero():
    assert not printed_sign_heads(10, (2, 5, 8)).tables.all_features.any()


def test_erratum_5_four_times_the_condition_is_not_enough():
    vectors = coherent_basis(10, 0.01, (1, 1, 1))
    found = head_error(printed_bag_head(vectors, 3, 0.01), (0, 1, 2), scalar=True)
    assert found > 1 / 12
    repaired = compile(And((0, 1, 2)), 10, "bag", vectors)
    assert head_error(repaired, (0, 1, 2), scalar=True) < 1 / 12


def test_erratum_6_counts():
    assert wrong_inputs("x2", 1 / 8) == 260
    assert wrong_inputs("x3 & (x7 | ~x9)", 1 / 8) == 574
    assert wrong_inputs("x2", 1 / 4) == wrong_inputs("x3 & (x7 | ~x9)", 1 / 4) == 0


def test_erratum_16_the_printed_bump_is_zero_at_its_point():
    z = np.linspace(-4, 4, 161)
    bump = np.maximum(z[:, None] + CORNERS, 0) @ SIGNS
    np.testing.assert_allclose(bump[np.abs(z) <= 1], 1, atol=1e-12)
    np.testing.assert_allclose(bump[np.abs(z) >= 2], 0, atol=1e-12)
    printed = printed_bump(z)
    np.testing.assert_allclose(printed[np.abs(z) <= 1], 0, atol=1e-12)
    np.testing.assert_allclose(printed[np.abs(z) >= 2], np.sign(z[np.abs(z) >= 2]))


def test_lemma_b_7_is_an_equality_in_the_limit():
    length, sparsity, lead = 50, 3, 14.0
    scores = np.where(np.arange(length) < sparsity, lead, 0.0)
    weights = np.exp(scores - lead) / np.exp(scores - lead).sum()
    wanted = np.where(np.arange(length) < sparsity, 1 / sparsity, 0.0)
    bound = attention_error(length, sparsity, lead)
    assert np.abs(weights - wanted).sum() == pytest.approx(bound, rel=1e-4)
