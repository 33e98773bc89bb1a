"""Wrong versions turn their claims red. The long ones are left to ``make reproduce``, in CI too."""

import pytest

from finetti.claims import Context, load_ledger, run_control, turns_red

# More than a second or so: training, many sequences, programs that take long to compile. E-eq-4.10
# calls attention of JAX's own, which mixes types as the tests do not allow.
SLOW = {
    *("E-app-B.1-iv", "E-app-B.2-heads", "E-eq-4.10", "E-eq-C.6", "E-sec-6-downstream"),
    *("R-eq-rfa-kernel", "R-eq-rfmlp-kernel"),
    *("E-eq-3.7", "E-prop-3.1", "F-coherence-urn", "R-norm-mlp", "S-lemma-B.6"),
    *("E-app-B.1", "E-app-B.1-calibration", "E-eq-3.6", "E-eq-3.11", "E-eq-B.2", "E-erratum-5"),
    *("E-erratum-6", "E-lemma-C.11", "E-lemma-C.13", "E-lemma-C.14", "E-lemma-F.1", "E-prop-4.1"),
    *("E-prop-4.2-limit", "E-prop-5.6", "E-sec-2-order", "E-thm-5.3-length", "E-thm-6.4-trained"),
    *("F-coherence-planted", "F-martingale-posterior", "R-def-factored"),
    *("R-eq-brfa-kernel", "R-eq-exp-kernel", "R-learn-correlation", "R-learn-even"),
    *("R-learn-exceptions", "R-learn-keys"),
    *("S-fig-2", "S-fig-2-curves", "S-fig-3", "S-fig-4", "S-prop-4.7"),
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


def test_what_is_left_to_the_whole_run_exists():
    assert {each for each in SLOW if each in load_ledger()} == SLOW
