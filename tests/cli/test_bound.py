import json
import math

import pytest
from typer.testing import CliRunner

from finetti.bounds import BoundSettings, load_bounds
from finetti.bounds import sweep as swept
from finetti.bounds.evaluation.bound_report import parse_sweep
from finetti.bounds.sparse_variables import ProjectedLayerNorms
from finetti.cli.main import app
from finetti.core.errors import InputError


def run(*arguments):
    return CliRunner().invoke(app, ["bound", *map(str, arguments)], env={"COLUMNS": "200"})


def run_json(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_list_shows_every_theorem_with_its_statement():
    listed = run_json("--list")
    assert [each["name"] for each in listed] == [bound.name for bound in load_bounds()]
    assert all(each["statement"] for each in listed)
    text = run("--list").stdout
    assert "S-thm-A.17" in text
    assert "parameter-count" in text


def test_the_value_of_the_specification(tmp_path):
    norms = tmp_path / "norms.json"
    names = ProjectedLayerNorms.__dataclass_fields__
    layers = [(1.1, 0.8, 0.6, 0.5, 0.4, 0.3), (0.7, 1.3, 0.4, 0.3, 0.6, 0.2)]
    content = {
        "layers": [dict(zip(names, layer, strict=True)) for layer in layers],
        "readout_norm": 2.0,
        "norm_lipschitz": 2.0,
    }
    norms.write_text(json.dumps(content))
    sizes = ("--layers", 2, "--width", 8, "--head-dimension", 4, "--context-length", 49)
    (found,) = run_json(
        "S-thm-A.17", *sizes, "--samples", "1e3", "--norms", norms, "--resolution", 0.3
    )
    assert round(found["value"], 3) == 100528543.081
    assert len(found["terms"]) == 7
    assert (found["kind"], found["form"]) == ("upper_bound", "derived")


def test_people_see_the_terms_and_the_kind():
    result = run("S-cor-4.4", "--form", "printed", "--width", 8)
    assert result.exit_code == 0
    for word in ("Corollary 4.4", "log covering number", "W_QK", "scaling quantity"):
        assert word in result.stdout


def test_solve_for_samples():
    (found,) = run_json("S-lemma-2.2", "--solve", "samples", "--gap", 0.1)
    count = round(found["needed"]["value"])
    (reached,) = run_json("S-lemma-2.2", "--samples", count)
    (before,) = run_json("S-lemma-2.2", "--samples", count - 1)
    assert reached["value"] <= 0.1 < before["value"]


def test_solve_for_heads():
    arguments = ("R-thm-risk", "--samples", "1e6", "--gap", 0.5, "--constant", 1e-3)
    (found,) = run_json(*arguments, "--solve", "heads")
    assert found["needed"]["quantity"] == "heads"
    assert found["needed"]["value"] > 1 / 0.05


def test_sensitivity_and_a_measured_gap():
    arguments = ("S-lemma-2.2", "--samples", "1e8", "--sensitivity", "--measured", 0.001)
    (found,) = run_json(*arguments)
    assert found["obeyed"]
    assert found["sensitivity"]["covering_constant"] > 1
    text = run(*arguments).stdout
    assert "Sensitivity" in text
    assert "bounded and measured" in text


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_sweep_draws_comparable_bounds_on_one_chart(tmp_path, suffix):
    chart = tmp_path / f"out.{suffix}"
    names = ("S-thm-A.17-gap", "parameter-count-gap")
    found = run_json(
        *names, "--samples", "1e18", "--sweep", "context-length=1e2:1e6:3", "--plot", chart
    )
    lengths = [record["context-length"] for record in found["records"]]
    assert lengths == [100, 100, 10**4, 10**4, 10**6, 10**6]
    norm_based = [r["value"] for r in found["records"] if r["name"] == names[0]]
    counted = [r["value"] for r in found["records"] if r["name"] == names[1]]
    assert norm_based == sorted(norm_based)
    assert norm_based[0] < norm_based[-1]
    assert counted[0] == counted[-1]
    assert chart.stat().st_size > 1000


def test_sweep_of_values_beyond_floats(tmp_path):
    result = run("S-thm-A.17", "--sweep", "layers=100:1000:3", "--plot", tmp_path / "out.svg")
    assert result.exit_code == 0, result.output
    assert "10^" in result.stdout


def test_sweep_of_a_norm():
    found = run_json("S-cor-4.4", "--width", 4, "--sweep", "value-norm=1:100:2")
    first, last = (record["log_value"] for record in found["records"])
    assert last > first + 2 * math.log(50)


def test_sweeps_are_parsed():
    variable, values = parse_sweep("value_norm=0.5:2:3")
    assert (variable.option, values) == ("value-norm", [0.5, pytest.approx(1.0), 2.0])
    assert parse_sweep("layers=1:3")[1] == [1, 2, 3]
    for name in ("T", "context-length", "context_length"):
        assert parse_sweep(f"{name}=1e2:1e20:2")[0].field == "context_length"
    assert parse_sweep("T=1e2:1e20:2")[1] == [100, 10**20]
    for text in (
        "context-length",
        "layers=3:1",
        "layers=0:3",
        "layers=a:b",
        "layers=1:2:1",
        "=1:2",
        "L=1:2:3:4",
    ):
        with pytest.raises(InputError, match="Write it as"):
            parse_sweep(text)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_has_one_line_per_bound(columns):
    result = CliRunner().invoke(app, ["bound", "--list"], env={"COLUMNS": str(columns)})
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [bound.name for bound in load_bounds()]
    for line, bound in zip(lines, load_bounds(), strict=True):
        assert len(line) <= columns + 6  # combining accents take no column
        assert line.rstrip().endswith(bound.derived_kind)
        assert bound.statement in line or "…" in line


def test_explain_tells_what_the_list_leaves_out():
    text = run("E-prop-4.1", "--explain").stdout
    for words in ("Proposition 4.1, zhang2022", "error of the attention", "K ≤ 1", "λ‖h‖"):
        assert words in text
    (found,) = run_json("E-prop-4.1", "--explain")
    assert (found["kind"], found["printed_kind"]) == ("upper_bound", "scaling")


def test_solve_for_tokens():
    (found,) = run_json("E-prop-4.1", "--solve", "tokens", "--gap", 1)
    count = found["needed"]["count"]
    (reached,), (before,) = (
        run_json("E-prop-4.1", "--context-length", n) for n in (count, count - 1)
    )
    assert reached["value"] <= 1 < before["value"]


def test_sensitivity_beyond_floats_is_json():
    (found,) = run_json("S-thm-4.6", "--layers", 2000, "--form", "printed", "--sensitivity")
    assert found["sensitivity"]["spectral_norm"] is None
    assert found["sensitivity_exponents"]["spectral_norm"] == pytest.approx(12_000)
    (found,) = run_json("S-thm-4.6", "--layers", 2000, "--sensitivity")
    assert "length at most 1" in found["sensitivity_refused"]["sample.input_norm"]


def test_norms_that_no_formula_takes(tmp_path):
    path = tmp_path / "norms.json"
    path.write_text('{"target": "correlation_series", "coefficients": [NaN, 1]}')
    result = run("R-norm-rfa", "--norms", path)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "finite numbers" in result.stderr
    path.write_text('{"terms": 2.0}')
    assert run_json("R-norm-brfa", "--norms", path)[0]["value"] > 1e6


@pytest.mark.parametrize(
    ("name", "what", "grows"),
    [
        ("S-lemma-2.2", "loss-bound=1:10:3", True),
        ("S-lemma-2.2", "delta=0.01:0.5:3", False),
        ("S-lemma-2.2", "loss-lipschitz=1:10:3", True),
        ("S-cor-4.4", "input-norm=1:10:3", True),
        ("S-cor-4.4", "head-dimension=1:64:3", True),
    ],
)
def test_sweeps_of_the_sample_and_of_the_heads_dimension(name, what, grows):
    values = [record["value"] for record in run_json(name, "--sweep", what)["records"]]
    assert len(values) == 3
    assert values == sorted(values, reverse=not grows)
    assert values[0] != values[-1]


def test_a_sweep_of_heads_shares_the_width_rounded_up():
    shared = run_json("E-thm-C.5", "--width", 12, "--sweep", "heads=2:5")
    assert [record["heads"] for record in shared["records"]] == [2, 3, 4, 5]
    apart = run_json("E-thm-C.5", "--width", 12, "--head-dimension", 3, "--heads", 5)
    assert apart[0]["value"] == shared["records"][-1]["value"]  # ⌈12/5⌉ = 3
    random = run_json("R-thm-risk", "--width", 12, "--sweep", "heads=100:1000:3")
    assert [record["heads"] for record in random["records"]] == [100, 316, 1000]


def test_the_table_of_a_sweep_tells_the_kinds_apart():
    text = run("E-thm-C.4", "E-thm-C.4-constants", "--sweep", "samples=1e3:1e4:2").stdout
    assert "E-thm-C.4 (scaling)" in text
    assert "E-thm-C.4-constants (scaling)" not in text


def test_a_sweep_with_negative_values_has_a_linear_axis(tmp_path):
    sweep = ("S-cor-4.4-gap", "--form", "printed", "--sweep", "samples=1e2:1e9:4")
    records = run_json(*sweep)["records"]
    assert any(record["value"] < 0 for record in records)
    gap, settings = load_bounds()["S-cor-4.4-gap"], BoundSettings(form="printed")
    for values, scale in (([100, 10**9], None), ([10**18, 10**20], "log")):
        chart = swept([gap], "n", values, settings).chart()
        assert {layer["encoding"]["y"]["scale"].get("type") for layer in chart["layer"]} == {scale}
    chart = tmp_path / "out.svg"
    assert run(*sweep, "--plot", chart).exit_code == 0
    assert chart.stat().st_size > 1000


def test_a_norm_that_only_some_bounds_read_is_told(tmp_path):
    path = tmp_path / "norms.json"
    path.write_text('{"column_norm": 1, "readout_norm": 2}')
    result = run("S-thm-4.6", "S-thm-A.17", "--norms", path)
    assert result.exit_code == 0
    assert (
        result.stderr == "S-thm-A.17 has no norm called 'column_norm', which does not affect it.\n"
    )
    swept = run("S-thm-4.6", "S-thm-A.17", "--sweep", "column-norm=1:2:2")
    assert "S-thm-A.17 has no norm called 'column_norm'" in swept.stderr
    assert swept.stderr.count("\n") == 1


def test_norms_file_is_checked(tmp_path):
    path = tmp_path / "norms.json"
    for content, sentence in (
        ("{", "is not readable as JSON"),
        ("[1]", "must be a JSON object. Got list instead. Write names and numbers"),
        (
            '{"value_norm": 2, "value_norm": 3}',
            "has the name 'value_norm' twice. Write names and numbers",
        ),
        (
            '{"layers": [{"value_norm": 2, "value_norm": 3}]}',
            "has the name 'value_norm' twice. Write names and numbers",
        ),
        ('{"valeu_norm": 1}', "no norm called 'valeu_norm'"),
        ('{"positions": "trained"}', "linear in T"),
        ('{"positions": "trained"}', "this network trains them"),
        ('{"value_norm": -1}', "`value_norm` (of --norms) must be a finite number"),
    ):
        path.write_text(content)
        result = run("S-cor-4.4", "--norms", path)
        assert (result.exit_code, sentence in result.stderr) == (2, True), result.output
    path.write_text('{"column_norm": 1, "value_norm": 2}')
    result = run("S-thm-4.6", "S-thm-A.17", "--norms", path)
    assert result.exit_code == 0, result.output


def test_words_find_bounds():
    found = run("transformer", "gap")
    assert [line.split()[0] for line in found.stdout.splitlines()] == [
        "E-thm-C.5",
        "S-thm-A.17-gap",
        "F-cover-length-gap",
    ]
    assert "T context-length, L layers, H heads" in found.stderr
    starting = run_json("E-thm-5*,parameter-count")
    assert [each["name"] for each in starting] == [
        "E-thm-5.3",
        "E-thm-5.3-constants",
        "E-thm-5.5",
        "parameter-count",
    ]
    assert [each["name"] for each in run_json("TRANSFORMER", "gap")][-1] == "F-cover-length-gap"


def test_a_table_of_sample_sizes(tmp_path):
    names = ("S-thm-A.17-gap", "parameter-count-gap")
    arguments = (*names, "--sweep", "T=1e2:1e6:3", "--solve", "samples", "--gap", 0.1)
    found = run_json(*arguments, "--plot", tmp_path / "sizes.svg")
    for record in found["records"]:
        length = record["context-length"]
        (alone,) = run_json(record["name"], "--context-length", length, *arguments[4:])
        assert record["count"] == alone["needed"]["count"]
        assert record["quantity"] == "samples"
    assert "samples" in run(*arguments).stdout


def test_a_point_without_an_answer_says_why():
    arguments = ("R-thm-risk", "--samples", "1e6", "--sweep", "H=10:1e5:3")
    found = run_json(*arguments)
    assert [record["value"] is None for record in found["records"]] == [True, False, False]
    assert "assumes H > 1/δ" in found["records"][0]["refused"]
    assert (
        "R-thm-risk (scaling) gives nothing at 1 of 3 values, as at heads = 10" in found["notes"][0]
    )
    assert run(*arguments).exit_code == 0


def test_a_bound_that_applies_nowhere_leaves_the_sweep_to_the_others():
    names = ("S-thm-A.17-gap", "E-thm-C.5")
    found = run_json(*names, "--layers", 2, "--width", 8, "--sweep", "heads=2:4")
    assert [record["value"] is None for record in found["records"]] == [True, False] * 3
    assert "S-thm-A.17-gap gives nothing at 3 of 3 values" in found["notes"][0]


def test_the_notes_of_a_sweep_are_shown():
    assert "vacuous everywhere" in run("S-lemma-2.2", "--sweep", "n=10:20:2").stdout
    assert "vacuous nowhere" in run("S-lemma-2.2", "--sweep", "n=1e8:1e9:2").stdout


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("csv", ["context-length,parameter-count", "100,"]),
        ("markdown", ["| context-length | parameter-count |", "|--:|--:|", "| 100 |"]),
        ("latex", [r"\begin{tabular}{rr}", r"\toprule", "context-length & parameter-count"]),
    ],
)
def test_tables_for_files(form, lines):
    done = run("parameter-count", "--sweep", "T=1e2:1e4:2", "--format", form)
    assert done.exit_code == 0, done.output
    for line, start in zip(done.stdout.splitlines(), lines, strict=False):
        assert line.startswith(start)
    one = run("S-cor-4.4", "S-lemma-2.2", "--format", form).stdout
    assert "log covering number" in one
    assert "generalization gap" in one


def test_csv_keeps_every_digit():
    (value,) = run_json("S-cor-4.4")
    rows = run("S-cor-4.4", "--format", "csv").stdout.splitlines()
    assert float(rows[1].split(",")[2]) == value["value"]
