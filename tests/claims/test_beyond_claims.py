"""Claims that are ours turn out as expected, also with another seed."""

import pytest

from finetti.claims import Context, load_ledger, run_claim

CLAIMS = (
    "F-family-closed",
    "F-chain-blocks",
    "F-cover-count",
    "F-cover-length",
    "F-cover-maurey",
    "F-cover-schatten",
)


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_claims_turn_out_as_expected(claim_id):
    claim = load_ledger().get(claim_id)
    result = run_claim(claim, Context(seed=1))
    assert result.as_expected, result.error or result.reason
