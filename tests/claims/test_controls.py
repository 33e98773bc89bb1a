import pytest

from finetti.claims import Context, load_ledger, run_control, turns_red

CONTROLS = [(claim, control) for claim in load_ledger() for control in claim.controls]
IDS = [f"{claim.id}: {control.name}" for claim, control in CONTROLS]


@pytest.mark.parametrize(("claim", "control"), CONTROLS, ids=IDS)
def test_a_wrong_version_turns_the_claim_red(claim, control):
    result = run_control(claim, control, Context())
    assert turns_red(result), result.error or result.reason
