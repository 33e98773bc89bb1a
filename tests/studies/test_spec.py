"""What a spec may say, and how it is told where it is wrong."""

import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.core.errors import InputError
from finetti.studies import Study
from finetti.studies.spec import arithmetic, geometric, grid_values, make_spec, read_spec

PI = "finetti.studies.examples:estimate_pi"
GOOD = {"kind": "m:f", "grid": {"n": [1, 2]}}


@given(st.integers(-1000, 1000), st.integers(1, 50), st.integers(1, 30))
def test_ranges_of_whole_numbers_are_python_ranges(first, step, count):
    last = first + step * (count - 1)
    assert arithmetic([first, last, step], "x") == list(range(first, last + 1, step))
    # A last value that is not met is not passed either.
    assert arithmetic([first, last + step - 1, step], "x") == list(range(first, last + 1, step))


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 40))
def test_logranges_keep_their_ends_and_their_type(first, last, count):
    values = geometric([first, last, count], "x")
    assert (values[0], values[-1]) == (first, last)
    assert all(isinstance(value, int) for value in values)
    assert len(set(values)) == len(values) <= count
    assert values == sorted(values, reverse=last < first)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 20))
def test_logranges_of_real_numbers_have_one_ratio(first, last, count):
    values = geometric([first, last, count], "x")
    if len(values) == count:
        np.testing.assert_allclose(
            np.diff(np.log(values)), np.log(last / first) / (count - 1), atol=1e-9
        )


def test_decimal_steps_are_the_numbers_people_write():
    assert arithmetic([0, 1, 0.1], "x") == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert all(isinstance(value, float) for value in arithmetic([0, 1, 0.1], "x"))


def test_values_are_those_that_people_write():
    assert geometric([0.1, 10, 3], "x") == [0.1, 1.0, 10.0]
    assert all(isinstance(value, float) for value in geometric([0.1, 10, 3], "x"))
    assert geometric([1e-5, 1, 6], "x") == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert geometric([10, 10**25, 25], "x") == [10**k for k in range(1, 26)]
    assert geometric([1.00000000000001, 1.00000000000003, 3], "x")[1] > 1.00000000000001


def test_ranges_of_large_whole_numbers_are_exact():
    first = 10**40 + 1
    assert arithmetic([first, first + 4, 2], "x") == [first, first + 2, first + 4]
    assert arithmetic([10**400, 10**400 + 1, 1], "x") == [10**400, 10**400 + 1]
    with pytest.raises(InputError, match="finite"):
        arithmetic([10**400, 1.5, -1.0], "x")
    with pytest.raises(InputError, match="positive ends"):
        geometric([1, 10**400, 3], "x")


def test_long_lists_are_looked_at_once():
    with pytest.raises(InputError, match="7 twice"):
        grid_values([*range(30_000), 7], "grid.n")
    spec = make_spec({**GOOD, "grid": {"n": list(range(30_000))}})
    assert spec.values is spec.values
    assert len(spec.changed(grid={"n": [1]}).values["n"]) == 1


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], "grid.n"),
        (3, "grid.n"),
        ("abc", "grid.n"),
        ([1, 1], "grid.n"),
        ([1, math.nan], "grid.n[1]"),
        ([1, {"a": {1, 2}}], "grid.n[1].a"),
        ({"range": [1, 2, 0]}, "grid.n.range"),
        ({"range": [1, 2, -1]}, "grid.n.range"),
        ({"range": [1, 2]}, "grid.n.range"),
        ({"range": [0, 1, 1e-9]}, "grid.n.range"),
        ({"range": [0, True, 1]}, "grid.n.range"),
        ({"logrange": [0, 2, 3]}, "grid.n.logrange"),
        ({"logrange": [1, 2, 1]}, "grid.n.logrange"),
        ({"logrange": [1, 2, 3.0]}, "grid.n.logrange"),
        ({"range": [1, 2, 1], "logrange": [1, 2, 2]}, "grid.n"),
        ({"linspace": [1, 2, 1]}, "grid.n.linspace"),
    ],
)
def test_impossible_values_are_refused_with_their_path(value, path):
    with pytest.raises(InputError, match="`" + path.replace("[", r"\[").replace(".", r"\.") + "`"):
        grid_values(value, "grid.n")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"trails": 3}, "trails"),
        ({"trials": 0}, "trials"),
        ({"trials": "3"}, "trials"),
        ({"trials": 2.5}, "trials"),
        ({"seed": -1}, "seed"),
        ({"cohort": 0}, "cohort"),
        ({"time_limit": math.inf}, "time_limit"),
        ({"scales": {"quick": {"trails": 2}}}, "scales.quick.trails"),
        ({"scales": {"quick": {"kind": "m:g"}}}, "scales.quick.kind"),
        ({"scales": {"quick": {"grid": {"n": []}}}}, "scales.quick.grid.n"),
        ({"scales": {"quick": {"trials": None}}}, "scales.quick.trials"),
        ({"fixed": {"x": {1}}}, "fixed.x"),
        ({"fixed": {"n": 1}}, "n"),
        ({"kind": ""}, "kind"),
    ],
)
def test_wrong_keys_are_refused_with_their_path(change, path):
    with pytest.raises(InputError, match=f"`{path}`"):
        make_spec({**GOOD, **change})


@pytest.mark.parametrize("change", [{"grid": 3}, {"scales": [1]}, {"scales": {"quick": 3}}])
def test_tables_are_called_tables(change):
    with pytest.raises(InputError, match="should be a table of names and values"):
        make_spec({**GOOD, **change})


def test_all_wrong_keys_are_named_at_once():
    with pytest.raises(InputError) as caught:
        make_spec({"trails": 3, "seed": -1})
    for word in ("`trails`", "`trials`", "`seed`", "`kind` is missing"):
        assert word in str(caught.value)


def test_a_grid_beyond_reason_is_refused():
    with pytest.raises(InputError, match="cells"):
        make_spec({**GOOD, "grid": {"n": {"range": [1, 100_000, 1]}}, "trials": 1000})


def test_a_scale_beyond_reason_is_named():
    with pytest.raises(InputError, match=r"`scales\.huge`: The study has 2 cells"):
        make_spec({**GOOD, "scales": {"huge": {"trials": 10**8}}})


def test_scales_override():
    spec = make_spec(
        {
            **GOOD,
            "trials": 20,
            "fixed": {"width": 4, "depth": 2},
            "scales": {
                "quick": {"trials": 2, "fixed": {"n": 7}, "grid": {"width": [1, 2]}},
                "paper": {"seed": 5},
            },
        }
    )
    quick = spec.at_scale("quick")
    assert (quick.trials, quick.grid, quick.fixed) == (2, {"width": [1, 2]}, {"depth": 2, "n": 7})
    paper = spec.at_scale("paper")
    assert (paper.trials, paper.seed, paper.grid) == (20, 5, {"n": [1, 2]})
    with pytest.raises(InputError, match="quick, paper"):
        spec.at_scale("huge")


def test_scales_and_seeds_in_python(tmp_path):
    fields = {"store": tmp_path / "s.sqlite", "grid": {"n_points": [1, 2]}}
    scales = {"quick": {"trials": 3, "grid": {"n_points": [5]}}}
    quick = Study(PI, scale="quick", scales=scales, **fields)
    assert (len(quick.plan.trial_positions), quick.plan.cells[0].params) == (3, {"n_points": 5})
    with pytest.raises(InputError, match="no scale 'huge'"):
        Study(PI, scale="huge", scales=scales, **fields)
    path = tmp_path / "s.toml"
    path.write_text(f'kind = "{PI}"\n[grid]\nn_points = [1]\n')
    for seed in (-1, "3", 2.5, True):
        with pytest.raises(InputError, match="`seed` should"):
            Study.from_toml(path, seed=seed)


@pytest.mark.parametrize("part", ["grid", "fixed"])
def test_names_in_scales_that_nobody_chose_are_checked(tmp_path, part):
    scales = {"quick": {part: {"m": [1]}}}
    fields = {"store": tmp_path / "s.sqlite", "grid": {"n_points": [1, 2]}}
    study = Study(PI, scales=scales, **fields)
    with pytest.raises(InputError, match=rf"`scales\.quick\.{part}\.m` is not a parameter"):
        study.plan.trial_positions  # noqa: B018


def test_toml_files(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('kind = "m:f"\n[grid]\nn = {range = [1, 3, 1]}\n[scales.quick]\ntrials = 2\n')
    assert read_spec(path).values == {"n": [1, 2, 3]}
    path.write_text("kind = ")
    with pytest.raises(InputError, match="not TOML"):
        read_spec(path)
    for text in (f"kind = {'[' * 100_000}", f"seed = {'1' * 5000}"):
        path.write_text(text)
        with pytest.raises(InputError, match="not TOML"):
            read_spec(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_spec(tmp_path / "other.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match="not a regular file"):
        read_spec(tmp_path / "pipe.toml")
    path.write_text('kind = "m:f"\n[fixed]\nday = 2020-01-01\n')
    with pytest.raises(InputError, match=r"study\.toml: `fixed\.day` must be plain data"):
        read_spec(path)
