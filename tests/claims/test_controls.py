"""Wrong versions turn their claims red. The long ones are left to ``make reproduce``, in CI too."""

import pytest

from finetti.claims import Context, load_ledger, run_control, turns_red

# More than a second or so: training, many sequences, programs that take long to compile.
SLOW = {
    *("E-app-B.1-iv", "E-app-B.1-calibration", "E-app-B.2-heads", "E-eq-3.11", "E-prop-3.1"),
    *("E-prop-4.1", "E-prop-4.2-limit", "E-sec-6-downstream", "E-thm-5.3-length"),
    *("E-thm-6.4-trained", "F-coherence-planted", "F-coherence-urn", "F-martingale-posterior"),
    *("R-def-factored", "R-eq-brfa-kernel", "R-eq-exp-kernel", "R-eq-rfa-kernel"),
    *("R-eq-rfmlp-kernel", "R-learn-correlation", "R-learn-even", "R-learn-exceptions"),
    *("R-learn-keys", "R-norm-mlp", "S-fig-2", "S-fig-2-curves", "S-fig-3", "S-fig-4"),
    *("S-lemma-B.6", "S-prop-4.7"),
}
CONTROLS = [
    (claim, control)
    for claim in load_ledger()
    if claim.id not in SLOW
    for control in claim.controls
]
IDS = [f"{claim.id}: {control.name}" for claim, control in CONTROLS]


@pytest.mark.parametrize(("claim", "control"), CONTROLS, ids=IDS)
def test_a_wrong_version_turns_the_claim_red(claim, control):
    result = run_control(claim, control, Context())
    assert turns_red(result), result.error or result.reason


def test_what_is_left_to_the_whole_run_has_wrong_versions():
    assert all(load_ledger()[each].controls for each in SLOW)
