"""The claims that the mutated file measures, and their controls: as `make reproduce` runs them."""

import inspect
import os
import re
import sys

import pytest

from finetti import claims

MUTATED = "finetti." + os.environ["FINETTI_MUTATED"].removesuffix(".py").replace("/", ".")
IMPORTED = re.compile(r"import.* {0}\b|\b{0} import".format(MUTATED.rpartition(".")[2]))


def uses(claim: claims.Claim) -> bool:
    """Whether the claim is stated in the mutated file, or in one that imports it."""
    source = inspect.getsource(sys.modules[claim.module])
    return claim.module == MUTATED or bool(IMPORTED.search(source))


CLAIMS = [each for each in claims.load_ledger() if not each.rests_on and uses(each)]
CONTROLS = [(claim, control) for claim in CLAIMS for control in claim.controls]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claim(claim: claims.Claim) -> None:
    result = claims.run_claim(claim, claims.Context())
    assert result.as_expected, result.error or result.reason


@pytest.mark.parametrize(
    ("claim", "control"), CONTROLS, ids=[f"{claim.id}: {each.name}" for claim, each in CONTROLS]
)
def test_control(claim: claims.Claim, control: claims.Control) -> None:
    result = claims.run_control(claim, control, claims.Context())
    assert claims.turns_red(result), result.error or result.reason
