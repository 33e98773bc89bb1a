"""Claims as trials of a study: re-used, resumed, compared; tiny claims of the tests' own."""

import json
import math
import os
from pathlib import Path

import pytest

import finetti.claims
from finetti.claims import (
    Context,
    Evidence,
    at_most,
    close,
    compare_runs,
    provenance,
    read_results,
    results_document,
)
from finetti.claims import run as engine
from finetti.claims.run import shared_programs
from finetti.core.errors import InputError
from sample_claims import MEASURED, TOO_LARGE, claim


def interrupted(context):
    raise KeyboardInterrupt


def breaks(context):
    raise RuntimeError("no luck")


def test_evidence_is_used_again_and_controls_are_trials_too(reproduce):
    pair = claim("E-eq-1"), claim("E-eq-2", controls=(TOO_LARGE,))
    first = reproduce(*pair)
    assert [each.fresh for each in first] == [True, True]
    assert [value for *_, value in MEASURED] == [0.25, 0.25]
    second = reproduce(*pair, controls=True)
    assert [each.fresh for each in second] == [False, False]
    assert [value for *_, value in MEASURED] == [2.0]
    assert [each.evidence for each in second] == [each.evidence for each in first]
    (control,) = second[1].controls
    assert control.red
    assert control.result.fresh
    assert control.to_dict()["name"] == "too large"
    assert reproduce(*pair, context=Context(seed=1))[0].fresh
    assert reproduce(*pair, context=Context("paper"))[0].fresh


def test_other_code_measures_again(reproduce, monkeypatch):
    reproduce(claim("E-eq-1"))
    assert not reproduce(claim("E-eq-1"))[0].fresh
    monkeypatch.setattr(engine, "software", lambda: {"finetti": "another version"})
    assert reproduce(claim("E-eq-1"))[0].fresh


@pytest.mark.parametrize("changed", ["library", "device", "data"])
def test_evidence_of_other_libraries_devices_and_data_is_not_used_again(
    monkeypatch, tmp_path, changed
):
    (tmp_path / "layouts.toml").write_text("a = 1")
    (tmp_path / "report").mkdir()
    monkeypatch.setattr(engine.finetti, "__file__", str(tmp_path / "__init__.py"))
    before = engine.code_fingerprint()
    (tmp_path / "report" / "page.css").write_text("no claim reads this")
    assert engine.code_fingerprint() == before
    if changed == "library":
        monkeypatch.setattr(engine, "version", lambda name: "2" if name == "scipy" else "1")
    elif changed == "device":
        monkeypatch.setattr(engine, "jax_device", lambda: "another")
    else:
        (tmp_path / "layouts.toml").write_text("a = 2")
    assert engine.code_fingerprint() != before


def test_processes_of_a_run_share_compiled_programs_for_as_long_as_it_takes(monkeypatch):
    folder, limit = "JAX_COMPILATION_CACHE_DIR", "JAX_TRACEBACK_IN_LOCATIONS_LIMIT"
    monkeypatch.delenv(folder, raising=False)
    monkeypatch.setenv(limit, "3")
    with shared_programs():
        programs = Path(os.environ[folder])
        assert programs.is_dir()
        assert os.environ[limit] == "3"
    assert not programs.exists()
    assert folder not in os.environ
    assert os.environ[limit] == "3"


def test_a_process_loads_the_ledger_once():
    assert finetti.claims.load_ledger() is finetti.claims.load_ledger()


def test_a_failure_is_a_result_and_is_tried_again(reproduce):
    (failed,) = reproduce(claim("E-eq-1", breaks))
    assert failed.evidence is None
    assert not failed.as_expected
    assert "no luck" in failed.reason
    assert 'File "/' not in failed.error
    (again,) = reproduce(claim("E-eq-1"))
    assert again.as_expected
    assert again.fresh


def test_an_interrupted_run_goes_on(reproduce):
    pair = claim("E-eq-1"), claim("E-eq-2", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(*pair)
    found = reproduce(claim("E-eq-1"), claim("E-eq-2"))
    assert [each.fresh for each in found] == [False, True]


def document(*values, seed=0, holds=True):
    results = []
    for number, value in enumerate(values, start=1):
        if value is not None:
            plain = close("number", value, 1.0) if holds is None else None
            interval = (value - 0.1, value + 0.1)
            evidence = Evidence(plain or at_most("number", value, 1.0, interval=interval))
            made = claim(f"E-eq-{number}", lambda context, found=evidence: found)
            results.append(finetti.claims.run_claim(made, Context(seed=seed)))
    return results_document(results, provenance(Context(seed=seed)), len(results))


def test_what_changed_between_two_runs():
    changes = compare_runs(document(0.2, 0.2, 0.5), document(0.25, 2.0, None, 0.1))
    assert [(each["id"], each["old"], each["new"]) for each in changes["flipped"]] == [
        ("E-eq-2", "holds", "fails")
    ]
    assert changes["flipped"][0]["as_expected"] is False
    assert changes["new"] == ["E-eq-4"]
    assert changes["removed"] == ["E-eq-3"]
    (moved,) = changes["moved"]
    assert moved["id"] == "E-eq-2"
    assert moved["old"]["value"] == 0.2
    assert moved["new"]["interval"] == pytest.approx([1.9, 2.1])
    assert json.loads(json.dumps(changes, allow_nan=False)) == changes


@pytest.mark.parametrize(
    ("then", "now", "seed", "moved"),
    [(0.5, 0.505, 0, 0), (0.5, 0.52, 0, 1), (0.5, 0.9, 1, 0), (1e-16, 3e-16, 0, 0)],
)
def test_numbers_without_an_interval_move_by_parts_of_their_limit(then, now, seed, moved):
    pair = document(then, holds=None), document(now, holds=None, seed=seed)
    assert len(compare_runs(*pair)["moved"]) == moved


def result_of(*measurements):
    made = claim("E-eq-1", lambda context: Evidence(*measurements))
    results = [finetti.claims.run_claim(made, Context())]
    return results_document(results, provenance(Context()), 1)


def test_a_number_that_is_unknown_in_both_runs_has_not_moved():
    unknown = result_of(at_most("number", 0.5, 1.0, interval=(math.nan, 0.6)))
    known = result_of(at_most("number", 0.5, 1.0, interval=(0.4, 0.6)))
    assert compare_runs(unknown, unknown)["moved"] == []
    assert len(compare_runs(unknown, known)["moved"]) == 1
    assert len(compare_runs(known, unknown)["moved"]) == 1


def test_numbers_of_one_name_are_told_apart():
    old, new = (result_of(close("n", first, 1.0), close("n", 0.5, 1.0)) for first in (0.1, 0.2))
    assert compare_runs(old, old)["moved"] == []
    (moved,) = compare_runs(old, new)["moved"]
    assert (moved["old"]["value"], moved["new"]["value"]) == (0.1, 0.2)


def test_the_document_names_the_measurement_that_decided():
    (row,) = result_of(close("error", 0.1, 1.0), close("largest error", 0.12, 0.1))["results"]
    assert row["decisive"] == {"form": "measurements", "index": 1}
    assert row["measurements"][1]["text"] == "0.12"


def test_results_of_an_older_run_are_read_or_refused(tmp_path):
    old = document(0.2)
    (tmp_path / "old.json").write_text(json.dumps(old), encoding="utf-8")
    assert read_results(tmp_path / "old.json") == old
    for text in ("", "[]", '{"format": "other"}'):
        (tmp_path / "wrong.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=r"wrong\.json"):
            read_results(tmp_path / "wrong.json")
    number = {"name": "n", "value": "x", "interval": None, "holds": True}
    for wrong in (
        old | {"results": 3},
        old | {"results": [5]},
        old | {"results": [{"id": []}]},
        old | {"provenance": "today"},
        old | {"provenance": {"time": 3}},
        old | {"results": [old["results"][0] | {"verdict": {}}]},
        old | {"results": [old["results"][0] | {"measurements": {"a": 1}}]},
        old | {"results": [old["results"][0] | {"measurements": [number]}]},
        old | {"results": [old["results"][0] | {"measurements": [number | {"value": 10**400}]}]},
        old | {"provenance": old["provenance"] | {"seed": math.inf}},
        old | {"results": [old["results"][0] | {"measurements": [number | {"value": math.inf}]}]},
    ):
        (tmp_path / "wrong.json").write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(InputError, match=r"does not hold the results"):
            read_results(tmp_path / "wrong.json")
    (tmp_path / "wrong.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(InputError, match="not readable as JSON"):
        read_results(tmp_path / "wrong.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_results(tmp_path / "missing.json")


def test_the_document_says_all_that_a_report_shows():
    plain = document(0.2)
    (row,) = plain["results"]
    fields = "kind formula printed bibtex citation measured pass_rule code command seed fresh"
    assert set(fields.split()) <= set(row)
    assert row["kind"] == "theorem"
    assert row["bibtex"].startswith("@misc{zhang2022")
    assert "lambda" in row["code"]["source"]
    assert row["measurements"][0]["limits"] == ["-Infinity", 1.0]
    assert plain["false_alarm"] == 0.0
    assert plain["controls"] == {"run": 0, "red": 0}
    assert plain["changes"] is None
