"""Claims of paper S about bounds turn out as expected, also with another seed."""

import pytest

from finetti.claims import Context, load_ledger, run_claim

CLAIMS = (
    "S-app-A.3",
    "S-cor-4.4",
    "S-erratum-1",
    "S-erratum-8",
    "S-erratum-9",
    "S-erratum-12",
    "S-erratum-14",
    "S-lemma-2.2",
    "S-lemma-4.5",
    "S-lemma-A.8",
    "S-lemma-A.12",
    "S-thm-4.6-depth",
    "S-thm-A.17",
)


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_claims_turn_out_as_expected(claim_id):
    claim = load_ledger().get(claim_id)
    result = run_claim(claim, Context(seed=1))
    assert result.as_expected, result.error or result.reason
