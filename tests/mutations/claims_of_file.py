"""The claims that the mutated file states, and their controls: as `make reproduce` runs them."""

import os

import pytest

from finetti.claims import Context, load_ledger, run_claim, run_control, turns_red

MODULE = "finetti." + os.environ["FINETTI_MUTATED"].removesuffix(".py").replace("/", ".")
CLAIMS = [
    claim
    for claim in load_ledger()
    if getattr(claim.run, "host", claim).run.__module__ == MODULE and not claim.rests_on
]
CONTROLS = [(claim, control) for claim in CLAIMS for control in claim.controls]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claim(claim):
    result = run_claim(claim, Context())
    assert result.as_expected, result.error or result.reason


@pytest.mark.parametrize(
    ("claim", "control"), CONTROLS, ids=[f"{claim.id}: {each.name}" for claim, each in CONTROLS]
)
def test_control(claim, control):
    result = run_control(claim, control, Context())
    assert turns_red(result), result.error or result.reason
