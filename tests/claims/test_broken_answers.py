"""Every claim is as expected, also with another seed than in ``make reproduce``.

None is while the package answers NaN, infinity or zero to all that it asks.
"""

import math

import pytest

from broken_answers import Answers
from finetti.claims import Context, run_claim

ANSWERS = Answers()
# Claims that are as expected when all answers are 0, and why that is right.
ZERO_IS_RIGHT = {
    "S-lemma-B.5": "what is asked for is the error of a network, and it is 0",
}
# Claims that NumPy and JAX check alone, without a number of the package.
ASK_NOTHING = {"E-lemma-B.2", "E-lemma-G.2", "S-lemma-A.9-sphere"}
# More than three seconds: training, many sequences, programs that take long to compile.
SLOW = {
    *("E-eq-3.11", "E-eq-G.5", "E-erratum-12", "E-lemma-C.11", "E-erratum-5", "E-lemma-C.14"),
    *("E-erratum-6", "E-prop-4.2-limit", "E-erratum-4-limit", "E-prop-5.6", "E-sec-6-downstream"),
    *("E-thm-5.3-length", "E-thm-6.4-trained"),
    *("R-def-factored", "R-eq-brfa-kernel", "S-erratum-2", "S-lemma-A.8"),
    *("S-lemma-B.6", "S-prop-4.7", "S-sec-5-exhaustive", "S-thm-4.6-depth"),
    *("S-thm-A.17-chain", "F-chain-blocks", "F-coherence-planted", "F-coherence-urn"),
    *("F-martingale-posterior", "R-eq-exp-kernel", "R-eq-rfa-kernel", "R-eq-rfmlp-kernel"),
    *("F-coherence-table", "R-norm-brfa", "R-rate-approximation", "R-rate-heads"),
    *("R-thm-biased-risk", "R-thm-risk"),
}
CLAIMS = [
    pytest.param(claim, marks=[pytest.mark.slow] if claim.id in SLOW else [], id=claim.id)
    for claim in ANSWERS.ledger
    if not claim.rests_on
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_not_as_expected_without_answers(claim):
    with ANSWERS.right():
        right = run_claim(claim, Context(seed=1))
    assert right.as_expected or ANSWERS.trained, right.error or right.reason
    assert bool(ANSWERS.asked) is (claim.id not in ASK_NOTHING)
    for number in (math.nan, math.inf, 0.0) if ANSWERS.asked else ():
        with ANSWERS.broken(number):
            found = run_claim(claim, Context(seed=1))
        allowed = number == 0 and claim.id in ZERO_IS_RIGHT
        assert found.as_expected is allowed, f"all answers {number}: {found.reason}"


# Their instances stand nowhere else.
SLOW_TOO = [each for each in ANSWERS.ledger if each.id in SLOW and each.kind == "erratum"]
SLOW_TOO += [
    ANSWERS.ledger[each]
    for each in ("E-lemma-C.11", "E-lemma-C.14", "F-chain-blocks", "S-lemma-A.8")
]


@pytest.mark.parametrize("claim", SLOW_TOO, ids=lambda claim: claim.id)
def test_a_slow_claim_is_as_expected_and_not_with_zeros(claim):
    with ANSWERS.right():
        right = run_claim(claim, Context(seed=1))
    assert right.as_expected, right.error or right.reason
    with ANSWERS.broken(0.0):
        assert not run_claim(claim, Context(seed=1)).as_expected


def test_the_tables_name_claims():
    assert {*ZERO_IS_RIGHT, *ASK_NOTHING, *SLOW} <= {claim.id for claim in ANSWERS.ledger}
