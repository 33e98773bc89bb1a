"""What a claim finds: rules, verdicts, wrong versions, errors, and the document of a run."""

import json
import math
import os
import platform
import re

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.claims import (
    Context,
    Control,
    Evidence,
    Measurement,
    Verdict,
    at_least,
    at_most,
    close,
    provenance,
    results_document,
    run_claim,
    run_control,
    turns_red,
    within,
)
from finetti.core.errors import InputError
from finetti.display import Table
from sample_claims import claim

NAN = math.nan
YES = close("yes", 0.0, 1.0)
NO = close("no", 2.0, 1.0)
UNSURE = at_least("unsure", 1.0, 1.0, interval=(0.9, 1.1))


@pytest.mark.parametrize(
    ("measurement", "holds"),
    [
        (at_most("a", 1.0, 1.0), True),
        (at_most("a", 1.1, 1.0), False),
        (at_most("a", 0.9, 1.0, interval=(0.8, 1.01)), None),
        (at_most("a", 1.2, 1.0, interval=(1.1, 1.3)), False),
        (at_least("a", 1.0, 1.0), True),
        (at_least("a", 1.2, 1.0, interval=(1.1, 1.3)), True),
        (at_least("a", 0.9, 1.0), False),
        (within("a", 0.5, 0.0, 1.0, interval=(0.4, 0.6)), True),
        (within("a", 0.5, 0.0, 1.0, interval=(-0.4, 1.6)), None),
        (within("a", 2.0, 0.0, 1.0), False),
        (close("a", -3.0, 1.0), False),
        (close("a", jnp.float32(0.5), 1.0), True),
        (at_most("a", math.inf, 1.0), False),
    ],
)
def test_a_rule_holds_fails_or_is_undecided(measurement, holds):
    assert measurement.holds is holds
    assert bool(measurement.reason) is (holds is None)


@pytest.mark.parametrize(
    "measurement",
    [
        at_most("a", NAN, 1.0),
        at_least("a", NAN, 1.0),
        within("a", NAN, 0.0, 1.0),
        close("a", NAN, 1.0),
        at_most("a", 0.0, 1.0, interval=(NAN, 0.5)),
        Measurement("a", NAN, "any", True),
        Measurement("a", NAN, "any", False),
    ],
)
def test_nan_decides_nothing(measurement):
    assert measurement.holds is None
    assert "not a number" in measurement.reason


@pytest.mark.parametrize(
    ("measurements", "verdict", "decisive"),
    [
        ((YES, YES), "holds", YES),
        ((YES, UNSURE), "inconclusive", UNSURE),
        ((YES, UNSURE, NO), "fails", NO),
        ((), "inconclusive", None),
    ],
)
def test_verdict_and_the_reason_for_it(measurements, verdict, decisive):
    evidence = Evidence(*measurements)
    assert evidence.verdict == verdict
    assert evidence.decisive is decisive
    assert (decisive.name if decisive else "Nothing") in evidence.reason


@pytest.mark.parametrize(
    ("printed", "derived", "verdict", "named"),
    [
        ((NO, NO), (YES, YES), "fails", "no"),
        ((YES, YES), (YES,), "holds", "yes"),
        ((NO, YES), (YES,), "inconclusive", "yes: .*although"),
        ((NO, UNSURE), (YES,), "inconclusive", "unsure"),
        ((NO,), (YES, NO), "inconclusive", "derived form must hold .* no: 2"),
        ((NO,), (UNSURE,), "inconclusive", "derived form must hold .* unsure"),
        ((YES,), (NO,), "inconclusive", "derived form must hold"),
    ],
)
def test_a_printed_form_fails_only_where_the_derived_one_holds(printed, derived, verdict, named):
    evidence = Evidence(*printed, derived=derived)
    assert evidence.verdict == verdict
    assert re.search(named, evidence.reason)
    result = run_claim(claim(run=lambda context: evidence, expected=Verdict.FAILS), Context())
    assert result.as_expected is (verdict == "fails")
    assert [row["name"] for row in result.to_dict()["derived"]] == [m.name for m in derived]
    assert "Derived form" in str(evidence)


@pytest.mark.parametrize("given", [((YES,),), (YES, 1.0)])
def test_evidence_is_made_of_measurements_one_by_one(given):
    with pytest.raises(InputError, match="one by one"):
        Evidence(*given)
    with pytest.raises(InputError, match="one by one"):
        Evidence(YES, derived=given)


def test_a_wrong_version_is_noticed_by_a_broken_rule_only():
    def measure(context, number=0.0):
        if number is None:
            raise RuntimeError("no luck")
        return Evidence(NO if number else YES, close("a number", number, 2.0))

    wrong = {"off": 1.0, "unseen": 0.0, "not a number": NAN, "raises": None}
    controls = tuple(Control(name, {"number": number}) for name, number in wrong.items())
    right = claim(run=measure, controls=controls)
    found = {each.name: turns_red(run_control(right, each, Context())) for each in controls}
    assert found == {"off": True, "unseen": False, "not a number": False, "raises": False}
    assert right.to_dict()["controls"] == list(wrong)
    assert "off; unseen" in str(right)


def test_a_context_picks_sizes_and_draws_by_its_seed():
    context = Context("paper", 3)
    assert context.pick(quick=1, paper=2) == 2
    draws, again, others = (
        each.draws("data").normal(size=3)
        for each in (context, Context("quick", 3), Context(seed=4))
    )
    np.testing.assert_array_equal(draws, again)
    assert (draws != others).all()
    with pytest.raises(InputError, match="quick or paper"):
        Context("huge")


def test_claims_run_in_float64_whatever_the_program():
    import jax

    with jax.enable_x64(False):
        seen = []
        run_claim(
            claim(run=lambda context: seen.append(jnp.ones(2).dtype) or Evidence(YES)), Context()
        )
        assert seen == [jnp.float64]
        assert jnp.ones(2).dtype == jnp.float32


def test_an_expected_failure_is_as_expected_beside_its_derived_form_only():
    failing = claim(run=lambda context: Evidence(NO, derived=(YES,)), expected=Verdict.FAILS)
    assert run_claim(failing, Context()).as_expected
    assert not run_claim(claim(run=failing.measure), Context()).as_expected
    alone = run_claim(claim(run=lambda context: Evidence(NO), expected=Verdict.FAILS), Context())
    assert alone.verdict is Verdict.INCONCLUSIVE
    assert "derived" in alone.reason


@pytest.mark.parametrize("expected", list(Verdict))
def test_a_claim_that_raises_is_never_as_expected(expected):
    def run(context):
        raise RuntimeError("no luck")

    result = run_claim(claim(run=run, expected=expected), Context())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.as_expected
    assert "no luck" in result.reason
    assert "Traceback" in (result.error or "")
    assert os.path.dirname(__file__) not in (result.error or "")


def test_something_other_than_evidence_is_an_error():
    result = run_claim(claim(run=lambda context: True), Context())
    assert "must return Evidence" in (result.error or "")


def test_ctrl_c_is_no_result():
    def interrupted(context):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_claim(claim(run=interrupted), Context())


def test_the_document_is_strict_json_and_keeps_everything():
    evidence = Evidence(
        at_most("a", np.float64(0.5), 1.0, interval=(0.4, 0.6), unit="bits"),
        close("b", NAN, 1.0),
        note="n",
        charts=({"data": {"values": [{"x": np.int64(1)}]}},),
        tables=(Table("t", ("a", "b"), ((jnp.ones(()), math.inf),)),),
    )
    context = Context("quick", 5)
    results = [run_claim(claim(run=lambda context: evidence, false_alarm=0.001), context)]
    document = results_document(results, provenance(context), selected=2)
    plain = json.loads(json.dumps(document, allow_nan=False))
    assert plain == document
    (row,) = plain["results"]
    assert plain["complete"] is False
    assert row["measurements"][0] == {
        "name": "a",
        "value": 0.5,
        "interval": [0.4, 0.6],
        "limits": ["-Infinity", 1.0],
        "unit": "bits",
        "rule": "≤ 1",
        "holds": True,
        "reason": "",
        "text": "0.5 [0.4, 0.6] bits",
    }
    assert row["measurements"][1]["value"] == "NaN"
    assert row["tables"] == [{"title": "t", "columns": ["a", "b"], "rows": [[1.0, "Infinity"]]}]
    assert row["verdict"] == "inconclusive"
    assert row["false_alarm"] == 0.001


def test_provenance_says_how_but_not_where():
    made_by = provenance(Context("quick", 5))
    assert made_by["seed"] == 5
    assert made_by["time"].endswith("+00:00")
    text = json.dumps(made_by)
    assert platform.node() not in text
    assert "/" not in text
