import json
import math
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from finetti.bounds import load_bounds
from finetti.bounds.sparse_variables import LayerNorms
from finetti.cli.bound_sweep import parse_sweep
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
    names = LayerNorms.__dataclass_fields__
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
    assert parse_sweep("value_norm=0.5:2:3") == ("value-norm", [0.5, pytest.approx(1.0), 2.0])
    assert parse_sweep("layers=1:3")[1] == [1, 2, 3]
    for text in ("context-length", "layers=3:1", "layers=0:3", "layers=a:b", "layers=1:2:1"):
        with pytest.raises(InputError, match="Write it as"):
            parse_sweep(text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Name a bound"),
        (("S-thm-A.71",), "The nearest: S-thm-A.17"),
        (("S-cor-4.4", "--heads", "2"), "Nearest bound: S-lemma-A.12"),
        (("S-cor-4.4", "--layers", "2"), "Nearest bound: S-thm-A.17"),
        (("S-cor-4.4", "--layers", "two"), "Write 1000 or 1e6"),
        (("S-cor-4.4", "--samples", "0"), "whole number ≥ 1"),
        (("S-cor-4.4", "--form", "guessed"), "derived"),
        (("S-cor-4.4", "--plot", "x.svg"), "Add --sweep"),
        (("S-cor-4.4", "--gap", "0.1"), "go together"),
        (("S-cor-4.4", "--solve", "samples", "--gap", "0.1"), "does not fall with the sample"),
        (("S-lemma-2.2", "--solve", "layers", "--gap", "0.1"), "samples or heads"),
        (("S-lemma-2.2", "--solve", "heads", "--gap", "0.1"), "paper R"),
        (
            ("S-lemma-2.2", "--form", "printed", "--solve", "samples", "--gap", "0.1"),
            "scaling quantity",
        ),
        (("S-lemma-2.2", "--loss-bound", "inf"), "a bounded loss"),
        (("S-lemma-2.2", "--delta", "2"), "probability"),
        (("S-cor-4.4", "S-lemma-2.2", "--sweep", "width=1:9"), "cannot share a chart"),
        (("S-cor-4.4", "--sweep", "width"), "Write it as context-length=1e2:1e6"),
        (("S-cor-4.4", "--sweep", "valeu-norm=1:2"), "no norm called 'valeu_norm'"),
        (("S-cor-4.4", "--norms", "/nowhere.json"), "cannot be read"),
    ],
)
def test_wrong_use_is_one_sentence(arguments, sentence):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_norms_file_is_checked(tmp_path):
    path = tmp_path / "norms.json"
    for content, sentence in (
        ("{", "is not JSON"),
        ("[1]", "must hold names and numbers"),
        ('{"valeu_norm": 1}', "no norm called 'valeu_norm'"),
        ('{"positions": "trained"}', "linear in T"),
    ):
        path.write_text(content)
        result = run("S-cor-4.4", "--norms", path)
        assert (result.exit_code, sentence in result.stderr) == (2, True), result.output
    path.write_text('{"column_norm": 1, "value_norm": 2}')
    result = run("S-thm-4.6", "S-thm-A.17", "--norms", path)
    assert result.exit_code == 0, result.output


def test_help_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from finetti.cli.main import main\n"
        "sys.argv = ['finetti', 'bound', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit:\n"
        "    print('LOADED', sorted({'jax', 'numpy', 'scipy', 'altair'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.endswith("LOADED []\n"), done.stderr
