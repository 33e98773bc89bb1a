"""Errata in their hosts, claims that rest on others, and the ways of checking."""

import pytest

from finetti.claims import (
    Claim,
    Context,
    Erratum,
    Ledger,
    provenance,
    results_document,
    run_claim,
)
from finetti.core.errors import InputError
from sample_claims import MEASURED, TOO_LARGE, claim, measure_number

ERRATUM = Erratum(5, "printed: two", "x = 2", "The proof has 1.", statement="It is two.")
HOST = claim(erratum=ERRATUM, formula="x = 1")
ROW = HOST.rows[1]
RESTING = Claim("E-thm-2", "follows", "It follows.", rests_on=("E-eq-1",), formula="x > 0")


def test_the_row_of_an_erratum_is_made_of_its_host():
    plain = ROW.to_dict()
    assert (ROW.id, ROW.title, ROW.label) == ("E-erratum-5", "printed: two", "(1)")
    assert (ROW.expected, ROW.kind) == ("fails", "erratum")
    assert (plain["formula"], plain["printed"]) == ("x = 1", "x = 2")
    assert (plain["erratum"], HOST.to_dict()["erratum"]) == ("The proof has 1.", None)
    assert "what is printed (E-erratum-5)" in HOST.red_for
    found = run_claim(ROW, Context())
    assert found.as_expected
    assert [each.value for each in found.evidence.measurements] == [2.0]
    assert [each.value for each in found.evidence.derived] == [0.25]


def test_a_derived_form_that_does_not_hold_makes_no_erratum():
    def broken(context, form="derived"):
        return measure_number(context, form, 2.0)

    assert not run_claim(claim(run=broken, erratum=ERRATUM).rows[1], Context()).as_expected


@pytest.mark.parametrize("wrong", [{"erratum": ERRATUM}, {"rests_on": ("E-eq-2",)}])
def test_a_claim_that_cannot_be_measured_so_is_refused(wrong):
    with pytest.raises(InputError, match=r"It is E-eq-1\."):
        claim(run=lambda context: None, **wrong)


def test_host_and_erratum_are_measured_once(reproduce):
    host, row = reproduce(HOST, ROW)
    assert MEASURED == [("E-eq-1", "derived", 0.25), ("E-eq-1", "printed", 2.0)]
    assert host.as_expected
    assert row.as_expected
    assert row.evidence == run_claim(ROW, Context()).evidence
    assert host.seconds > 0
    (row,) = reproduce(ROW, ledger=(HOST, ROW))
    assert MEASURED == []
    assert row.as_expected
    assert not row.fresh


def test_a_wrong_version_of_an_erratum_is_red(reproduce):
    erratum = Erratum(5, "t", "x = 2", "Why.", controls=(TOO_LARGE,))
    found = reproduce(*claim(erratum=erratum, controls=(TOO_LARGE,)).rows, controls=True)
    assert [each.as_expected for each in found] == [True, True]
    assert [each.controls[0].red for each in found] == [True, True]


def test_a_claim_rests_on_others(reproduce):
    found = reproduce(HOST, RESTING)
    assert [each.as_expected for each in found] == [True, True]
    assert "Rests on E-eq-1" in found[1].reason
    (row,) = results_document(found[1:], provenance(Context()), 1)["results"]
    assert (row["rests_on"], row["check"], row["verdict"]) == (["E-eq-1"], "rests-on", "holds")
    assert "E-eq-1" in row["pass_rule"]
    assert row["measurements"] == []
    assert "whatever turns E-eq-1 red" in str(RESTING)
    assert [each.fresh for each in reproduce(HOST, RESTING)] == [False, False]


def test_what_a_claim_rests_on_is_run_with_it(reproduce):
    (found,) = reproduce(RESTING, ledger=(HOST, RESTING))
    assert found.as_expected
    assert MEASURED


def test_what_rests_on_something_red_or_not_run_is_undecided(reproduce):
    wrong = claim(run=lambda context: measure_number(context, "printed"))
    found = reproduce(wrong, RESTING)[1]
    assert found.verdict == "inconclusive"
    assert "E-eq-1, which is not as expected" in found.reason
    alone = run_claim(RESTING, Context())
    assert not alone.as_expected
    assert "E-eq-1, which was not run" in alone.reason


@pytest.mark.parametrize(
    ("claim_id", "fields", "check"),
    [
        ("E-eq-1", {}, "identity"),
        ("E-eq-1", {"false_alarm": 1e-4}, "simulation"),
        ("S-fig-1", {"false_alarm": 1e-4}, "experiment"),
        ("E-eq-1", {"check": "tight-instance"}, "tight-instance"),
    ],
)
def test_every_claim_says_how_it_is_checked(claim_id, fields, check):
    made = claim(claim_id, **fields)
    assert made.check == check == made.to_dict()["check"]
    assert made.check.words in str(Ledger((made,)))
    assert len(Ledger((made,)).checked_as(check)) == 1
