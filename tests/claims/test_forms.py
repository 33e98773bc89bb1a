"""Errata in their hosts, claims that rest on others, and the ways of checking."""

import pytest

import finetti.claims
from finetti.claims import (
    Claim,
    Context,
    Control,
    Erratum,
    Evidence,
    Ledger,
    close,
    provenance,
    reproduce_claims,
    results_document,
    run_claim,
)
from finetti.core.errors import InputError

ASKED = []


def measured(context, form="derived", right=1.0):
    """The distance to one."""
    ASKED.append((context.claim, form))
    return Evidence(close("distance", {"derived": right, "printed": 2.0}[form] - 1.0, 0.1))


ERRATUM = Erratum(5, "printed: two", "x = 2", "The proof has 1.", statement="It is two.")
HOST = Claim("E-eq-1", "one", "It is one.", measured, erratum=ERRATUM, formula="x = 1")
ROW = HOST.rows[1]


def test_the_row_of_an_erratum_is_made_of_its_host():
    plain = ROW.to_dict()
    assert (ROW.id, ROW.title, ROW.label) == ("E-erratum-5", "printed: two", "(1)")
    assert (plain["formula"], plain["printed"]) == ("x = 1", "x = 2")
    assert plain["erratum"] == "The proof has 1."
    assert HOST.to_dict()["erratum"] is None
    assert ROW.expected == "fails"
    assert ROW.kind == "erratum"
    assert "what is printed (E-erratum-5)" in HOST.red_for
    found = run_claim(ROW, Context())
    assert found.as_expected
    assert [each.value for each in found.evidence.measurements] == [1.0]
    assert [each.value for each in found.evidence.derived] == [0.0]
    assert run_claim(HOST, Context()).as_expected


def test_a_derived_form_that_does_not_hold_makes_no_erratum():
    broken = Claim("E-eq-1", "t", "S.", lambda context, form: measured(context, form, 2.0))
    broken = Claim("E-eq-1", "t", "S.", broken.measure, erratum=ERRATUM)
    assert not run_claim(broken.rows[1], Context()).as_expected


@pytest.mark.parametrize("wrong", [{"erratum": ERRATUM}, {"rests_on": ("E-eq-2",)}])
def test_a_claim_that_cannot_be_measured_so_is_refused(wrong):
    with pytest.raises(InputError, match=r"It is E-eq-1\."):
        Claim("E-eq-1", "t", "S.", lambda context: None, **wrong)


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    def run(*claims, ledger=(), **options):
        monkeypatch.setattr(finetti.claims, "load_ledger", lambda: Ledger(ledger or claims))
        ASKED.clear()
        return reproduce_claims(claims, store=tmp_path / "evidence.sqlite", **options)

    return run


def test_host_and_erratum_are_measured_once(reproduce):
    host, row = reproduce(HOST, ROW)
    assert ASKED == [("E-eq-1", "derived"), ("E-eq-1", "printed")]
    assert host.as_expected
    assert row.as_expected
    assert row.evidence == run_claim(ROW, Context()).evidence
    assert host.seconds > 0
    (row,) = reproduce(ROW, ledger=(HOST, ROW))
    assert ASKED == []
    assert row.as_expected
    assert not row.fresh


def test_a_wrong_version_of_an_erratum(reproduce):
    wrong = (Control("both are two", changes={"right": 2.0}),)
    erratum = Erratum(5, "t", "x = 2", "Why.", controls=wrong)
    rows = Claim("E-eq-1", "t", "S.", measured, erratum=erratum, controls=wrong).rows
    found = reproduce(*rows, controls=True)
    assert [each.as_expected for each in found] == [True, True]
    assert [each.controls[0].red for each in found] == [True, True]


RESTING = Claim("E-thm-2", "follows", "It follows.", rests_on=("E-eq-1",), formula="x > 0")


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


def test_what_it_rests_on_is_run_with_it(reproduce):
    (found,) = reproduce(RESTING, ledger=(HOST, RESTING))
    assert found.as_expected
    assert ASKED


def test_what_rests_on_something_red_or_not_run_is_undecided(reproduce):
    wrong = Claim("E-eq-1", "t", "S.", lambda context: measured(context, "printed"))
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
        ("S-fig-1", {"false_alarm": 1e-4, "label": "Figure 1"}, "experiment"),
        ("E-eq-1", {"check": "tight-instance"}, "tight-instance"),
    ],
)
def test_every_claim_says_how_it_is_checked(claim_id, fields, check):
    claim = Claim(claim_id, "t", "S.", measured, **fields)
    assert claim.check == check == claim.to_dict()["check"]
    assert claim.check.words in str(Ledger((claim,)))
    assert len(Ledger((claim,)).checked_as(check)) == 1
