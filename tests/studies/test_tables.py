"""Tables of trials, their summaries, and the files they are written to."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest

from finetti.core.errors import InputError
from finetti.studies import TrialResult
from finetti.studies.store.store_reader import Row
from finetti.studies.trial_table import Format, export_table, make_table, too_large
from finetti.studies.trials import Cell, failed, outcome_of


@pytest.fixture
def table():
    """All that a table may hold: gaps, lists, nested tables, infinity, words, truth values."""
    first = Cell("m:f", "1", "", {"n": 1, "mode": "a_b", "sizes": [1, 2], "rate": {"x": 0.5}}, 0)
    second = Cell("m:f", "1", "", {"n": 2, "mode": "b", "sizes": [3], "rate": {"x": 1.5}}, 0)
    results = [{"loss": 0.5, "k": 1, "ok": True}, {"loss": float("inf"), "k": 2, "ok": False}]
    rows = [Row(first, i, outcome_of("ab", each, 0.1), 1) for i, each in enumerate(results)]
    rows.append(Row(second, 0, failed("cd", "RuntimeError: 50 % & more"), 1))
    return make_table(rows)


def test_tables(table):
    columns = ["n", "mode", "sizes", "rate.x", "version", "replicate", "state", "loss", "k", "ok"]
    columns += ["failure"]
    assert list(table.columns) == columns
    assert table["k"].tolist()[:2] == [1, 2]
    assert table["k"].dtype == "Int64"
    assert table["ok"].dtype == "boolean"
    assert table["rate.x"].tolist() == [0.5, 0.5, 1.5]
    assert make_table([]).empty


def test_a_metric_with_the_name_of_a_parameter_keeps_both():
    cell = Cell("m:f", "1", "", {"n": 3, "state": "x"}, 0)
    table = make_table([Row(cell, 0, outcome_of("ab", {"n": 4.0}, 0.1), 1)])
    assert table.to_dict("records") == [
        {
            "n": 3,
            "parameter.state": "x",
            "version": "1",
            "replicate": 0,
            "state": "done",
            "metric.n": 4.0,
            "failure": None,
        }
    ]
    assert table.attrs["renamed"] == {"parameter.state": "state", "metric.n": "n"}


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ({1: 0.5}, "name 1, which is of type int.*write '1' or a word"),
        ({"a": 1.0, None: 0.5}, "name None, which is of type NoneType"),
        ({("a", 1): 0.5}, r"name \('a', 1\), which is of type tuple"),
        ({"": 0.5}, "A metric has an empty name"),
        ({" \t": 0.5}, "A metric has an empty name"),
        (TrialResult({"a": 1.0}, {1: [2]}), "A part of the trace has the name 1"),
        ({"a": np.zeros(2)}, "metric `a` is of type ndarray.*lists belong in the trace"),
        (TrialResult({"a": 1.0}, [2]), "trace of the trial is of type list"),
    ],
)
def test_names_of_metrics_are_words(returned, reason):
    outcome = outcome_of("ab", returned, 0.1)
    assert (outcome.state, outcome.metrics) == ("failed", {})
    assert re.search(reason, outcome.error)


def test_every_column_has_a_name_of_its_own():
    params = {"a": {"b": 1}, "a.b": 2, "state": 3, "parameter.state": 4}
    metrics = {"a.b": 5, "metric.a.b": 6, "replicate": 7}
    table = make_table([Row(Cell("m:f", "1", "", params, 0), 0, outcome_of("ab", metrics, 0.1), 1)])
    assert sorted(table.drop(columns=["version", "replicate", "state", "failure"]).iloc[0]) == [
        *range(1, 8),
    ]


def test_csv_is_read_back(table):
    again = pd.read_csv(io.BytesIO(export_table(table, Format.CSV)))
    assert again["loss"].tolist()[:2] == [0.5, float("inf")]
    assert again["sizes"].tolist() == ["[1, 2]", "[1, 2]", "[3]"]


def test_parquet_is_read_back(table):
    again = pd.read_parquet(io.BytesIO(export_table(table, Format.PARQUET)))
    assert again.shape == table.shape
    assert again["loss"].tolist()[:2] == [0.5, float("inf")]


def test_json_is_strict(table):
    def refuse(word):
        raise AssertionError(word)

    document = json.loads(export_table(table, Format.JSON), parse_constant=refuse)
    assert [row["loss"] for row in document["rows"]] == [0.5, "Infinity", None]
    assert [row["ok"] for row in document["rows"]] == [True, False, None]
    assert document["columns"] == list(table.columns)


def test_a_list_of_settings_is_written_with_its_names():
    params = {"layers": [{"width": 3, "scale": float("inf")}, {"width": 5}]}
    rows = [Row(Cell("m:f", "1", "", params, 0), 0, outcome_of("ab", {"loss": 1.0}, 0.1), 1)]
    expected = [{"width": 3, "scale": "Infinity"}, {"width": 5}]
    (row,) = json.loads(export_table(make_table(rows), Format.JSON))["rows"]
    assert row["layers"] == expected
    again = pd.read_csv(io.BytesIO(export_table(make_table(rows), Format.CSV)))
    assert json.loads(again["layers"][0]) == expected


def test_latex_is_escaped(table):
    text = export_table(table, Format.LATEX).decode()
    assert r"\begin{tabular}" in text
    assert r"50 \% \& more" in text
    assert r"a\_b" in text


def test_latex_is_text_whatever_it_holds():
    # A row that begins with [ would be an option of what stands before it.
    params = {"sizes": [1, 2], "note_1": "*a|b <c> \\d\n\ne \x1b"}
    row = Row(Cell("m:f", "1", "", params, 0), 0, outcome_of("ab", {"x^2": "~"}, 0.1), 1)
    lines = export_table(make_table([row, row]), Format.LATEX).decode().splitlines()
    assert lines[2] == r"sizes & note\_1 & version & state & x\textasciicircum{}2 \\"
    written = r"{[}1, 2] & {*}a\textbar{}b \textless{}c\textgreater{} \textbackslash{}d e & 1 "
    assert lines[4] == lines[5] == written + r"& done & \textasciitilde{} \\"


def test_tables_for_people_are_rounded_and_aligned():
    losses = {1: (1.25e-9, 123456.75), 2: (0.123456789, float("-inf"))}
    rows = [
        Row(Cell("m:f", "1", "", {"n": n}, 0), i, outcome_of("ab", {"loss": loss}, 0.1))
        for n, given in losses.items()
        for i, loss in enumerate(given)
    ]
    text = export_table(make_table(rows), Format.LATEX).decode()
    assert r"\begin{tabular}{rllr}" in text
    written = [line.split(" & ")[-1] for line in text.splitlines() if " & " in line][1:]
    assert written == [
        r"$1.25 \cdot 10^{-9}$ \\",
        r"123457 \\",
        r"0.1235 \\",
        r"$-\infty$ \\",
    ]
    summary = make_table(rows[:2], summary=True)
    assert summary["loss.standard_error"].tolist() == [pytest.approx(61728.375)]
    shown = export_table(summary, Format.MARKDOWN).decode().splitlines()
    assert shown == [
        "| n | version | done | failed | loss.mean | loss.standard_error |",
        "|--:|---|--:|--:|--:|--:|",
        "| 1 | 1 | 2 | 0 | 61728 | 62000 |",
    ]
    assert "61728.375" in export_table(summary, Format.CSV).decode()


def test_whole_numbers_of_any_size_are_written():
    cell = Cell("m:f", "1", "", {"n": 2**70}, 0)
    results = [{"k": 10**30, "mixed": 1.5}, {"k": 3, "mixed": 10**30}]
    rows = [Row(cell, i, outcome_of("ab", each, 0.1), 1) for i, each in enumerate(results)]
    table = make_table(rows)
    assert too_large(table) == ["n", "k", "mixed"]
    again = pd.read_parquet(io.BytesIO(export_table(table, Format.PARQUET)))
    assert again["n"].tolist() == [str(2**70)] * 2
    assert again["k"].tolist() == [str(10**30), "3"]
    for form in Format:
        assert export_table(table, form)


def test_summaries_have_mean_error_and_count_of_each_cell(make_study):
    study = make_study("moody", fixed={"mood": "raises"}, trials=5)
    study.run("inline", quiet=True)
    table = study.table(summary=True)
    loss = study.table().groupby("n")["loss"]
    assert table["n"].tolist() == [1, 2, 3]
    assert table["done"].tolist() == [5, 0, 5]
    assert table["failed"].tolist() == [0, 5, 0]
    assert table["loss.mean"].tolist() == pytest.approx(loss.mean().tolist(), nan_ok=True)
    assert table["loss.standard_error"].tolist() == pytest.approx(loss.sem().tolist(), nan_ok=True)
    assert "version" in table
    text = export_table(table, Format.LATEX).decode()
    assert "mood & n & version & done & failed & loss.mean & loss.standard\\_error" in text
    with pytest.raises(InputError, match="Ask for one"):
        study.table(details=True, summary=True)


def test_summaries_of_odd_metrics():
    cell = Cell("m:f", "1", "", {"done": 3}, 0)
    results = [
        {"huge": 1e300, "whole": 10**400, "ok": True, "word": "a", "wild": float("inf")},
        {"huge": -1e300, "whole": 1, "ok": False, "word": "b", "wild": 1.0, "some": 2},
    ]
    rows = [Row(cell, i, outcome_of("ab", each, 0.1)) for i, each in enumerate(results)]
    (found,) = make_table(rows, summary=True).to_dict("records")
    assert (found["parameter.done"], found["done"], found["failed"]) == (3, 2, 0)
    assert (found["huge.mean"], found["huge.standard_error"]) == (0.0, pytest.approx(1e300))
    assert (found["ok.mean"], found["ok.standard_error"]) == (0.5, 0.5)
    assert (found["some.mean"], found["some.count"]) == (2.0, 1)
    assert found["wild.mean"] == float("inf")
    for name in ("whole.mean", "whole.standard_error", "wild.standard_error"):
        assert pd.isna(found[name])
    assert not any(name.startswith("word") for name in found)


def test_text_of_others_is_no_formula_and_no_html():
    table = pd.DataFrame(
        {
            "=name": ["=cmd|' /C calc'!A0", "plain", None],
            "+list": [[-1, 2], "@x", "-1"],
            "number": [-1.5, 2.0, float("nan")],
            "tag": ["<img src=x onerror=y>", "[a](javascript:b)", "[1, 2]"],
        }
    )
    lines = export_table(table, Format.CSV).decode().splitlines()
    assert lines[0] == "'=name,'+list,number,tag"
    assert lines[1] == "'=cmd|' /C calc'!A0,\"[-1, 2]\",-1.5,<img src=x onerror=y>"
    assert lines[2].startswith("plain,'@x,2.0,")
    assert lines[3].startswith(",-1,,")
    shown = export_table(table, Format.MARKDOWN).decode()
    assert "<" not in shown
    assert "](" not in shown
    assert "&lt;img src=x onerror=y&gt;" in shown
    assert "[1, 2]" in shown
