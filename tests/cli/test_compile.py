import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from finetti.cli.main import app

RULE = "x3 & (x7 | ~x9)"


def command(*arguments):
    return CliRunner().invoke(app, ["compile", *map(str, arguments)])


def test_the_certificate_is_shown():
    done = command(RULE, "--context-length", 1000)
    assert done.exit_code == 0, done.output
    for words in ("exact on all 2^3 settings", "2^1000 inputs", "‖W_Q‖_F", "3 heads"):
        assert words in done.stdout


def test_progress_is_shown_where_it_takes_long(monkeypatch):
    assert command(RULE, "--context-length", 30).stderr == ""
    monkeypatch.setattr("finetti.display.progress.MIN_SILENCE_SECONDS", 0.0)
    done = command(RULE, "--context-length", 30)
    assert "compile: 50 of 100 % of the inputs, about" in done.stderr


@pytest.mark.parametrize("embedding", ["deterministic", "trained", "bag"])
def test_json_is_one_document_and_people_read_stderr(embedding):
    options = ("--embedding", embedding, "--basis", "random", "--seed", 3, "--json")
    done = command(RULE, "--context-length", 40, *options)
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["holds"]
    assert document["embedding"] == embedding
    assert "relevant bits" in done.stderr


def test_a_saved_file_is_checked_and_a_damaged_one_is_caught(tmp_path):
    path = tmp_path / "rule.safetensors"
    picture = tmp_path / "rule.svg"
    done = command(RULE, "--context-length", 50, "--out", path, "--explain", picture)
    assert done.exit_code == 0
    assert path.exists()
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert command("--check", path, "--rule", RULE).exit_code == 0
    assert command("--check", path).exit_code == 0
    other = command("--check", path, "--rule", "x3 & x7")
    assert other.exit_code == 1
    assert "does not compute x3 & x7: at x3 = 1, the rest 0" in other.stdout

    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["blocks.0.key"] = tensors["blocks.0.key"].copy()
    tensors["blocks.0.key"][0, 3 + 31, 0] = 2.0  # now x31 has a say
    save_file(tensors, path, metadata)
    damaged = command("--check", path, "--rule", RULE, "--json")
    assert damaged.exit_code == 1
    document = json.loads(damaged.stdout)
    assert document["exact"] is False
    bits = np.zeros(50, dtype=int)
    bits[document["counterexample"]["ones"]] = 1
    assert document["counterexample"]["rule"] == int(bits[3] and (bits[7] or not bits[9]))
    assert abs(document["counterexample"]["network"] - document["counterexample"]["rule"]) > 0.1


def test_what_is_neither_proven_nor_refuted_is_said_so(tmp_path):
    path = tmp_path / "rule.safetensors"
    rule = "x1 & " + " & ".join(f"~x{i}" for i in range(2, 19))  # 2^18 settings
    compiled = command(rule, "--context-length", 60, "--out", path)
    assert compiled.exit_code == 1
    assert "NOT proven" in compiled.stdout
    unproven = command("--check", path, "--rule", rule, "--json")
    assert unproven.exit_code == 1
    assert "NOT PROVEN" in unproven.stderr
    document = json.loads(unproven.stdout)
    assert document["counterexample"] is None
    assert "too many" in document["why_not_proven"]


@pytest.mark.parametrize("length", [12, 60])
def test_a_file_with_noise_is_right_up_to_a_tolerance(length, tmp_path):
    path = tmp_path / "rule.safetensors"
    options = ("--context-length", length, "--margin", 10, "--out", path)
    assert command(RULE, *options).exit_code == 0
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    rng = np.random.default_rng(0)
    noisy = {name: a + 1e-3 * rng.normal(size=a.shape) for name, a in load_file(path).items()}
    save_file(noisy, path, metadata)
    found = command("--check", path, "--json")
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert not document["exact"]
    assert document["float32_usable"]  # float64 errs as much
    right = command("--check", path, "--tolerance", 0.2)
    assert right.exit_code == 0
    assert "right up to 0.2 on all 2^" in right.stdout
    assert command("--check", path, "--tolerance", 1.5).exit_code == 2


def test_advice_for_many_bits_names_the_option():
    rule = " | ".join(f"x{2 * i} & x{2 * i + 1}" for i in range(13))
    done = command(rule, "--context-length", 30)
    assert done.exit_code == 2
    assert "--gates" in done.stderr
    assert command(rule, "--context-length", 30, "--gates").exit_code == 0


def test_sums_and_comparisons():
    rule = "x0 + x1 + x2 > x3 + x4"
    for gates in ((), ("--gates",)):
        assert command(rule, "--context-length", 30, *gates).exit_code == 0


def test_a_rule_that_leaves_bits_out_is_refuted(tmp_path):
    path = tmp_path / "rule.safetensors"
    rule = "x1 & " + " & ".join(f"~x{i}" for i in range(2, 11))
    assert command(rule, "--context-length", 1000, "--out", path).exit_code == 0
    refuted = command("--check", path, "--rule", "0")
    assert refuted.exit_code == 1
    assert "at x1 = 1, the rest 0" in refuted.stdout


def test_networks_of_gates(tmp_path):
    path = tmp_path / "gates.safetensors"
    options = ("--context-length", 300, "--gates", "--json", "--out", path)
    done = command("(x1 | x2) & (x3 | x4)", *options)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["depth"] == 2
    assert command("--check", path, "--rule", "(x4 | x3) & (x2 | x1)").exit_code == 0
    other = command("--check", path, "--rule", "(x4 | x3) & x2")
    assert other.exit_code == 1
    assert "the network says 1, the rule 0" in other.stdout


def test_networks_of_gates_take_the_options_of_rules(tmp_path):
    picture = tmp_path / "gates.svg"
    options = ("--embedding", "trained", "--basis", "random", "--margin", 5, "--explain", picture)
    done = command("(x1 | x2) & (x3 | ~x4)", "--context-length", 300, "--gates", "--json", *options)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["embedding"] == "trained"
    assert document["margin"] >= document["asked_margin"] == 5
    names = [norm["name"] for norm in document["norms"]]
    assert {"‖W_2‖_∞, block 2", "‖w‖_∞, block 1", "‖Pᵀ‖_{2,1}"} <= set(names)
    assert all(norm["within"] for norm in document["norms"])
    assert "64 random" in document["check"]["method"]
    assert "Block 2" in picture.read_text(encoding="utf-8")
    refused = command("x1 | x2", "--context-length", 30, "--gates", "--embedding", "bag")
    assert refused.exit_code == 2
    assert "no token for a bit that is 0" in refused.stderr


def test_rules_of_many_bits_are_checked_gate_by_gate(tmp_path):
    path = tmp_path / "gates.safetensors"
    parts = [[f"x{20 * g + i}" for i in range(20)] for g in range(10)]
    rule = " & ".join(f"({' | '.join(names)})" for names in parts)
    done = command(rule, "--context-length", 2000, "--gates", "--out", path)
    assert done.exit_code == 0, done.output
    assert "of 2^200 settings of the relevant bits" in " ".join(done.stdout.split())
    assert command("--check", path, "--rule", rule).exit_code == 0
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    keys = tensors["blocks.0.key"].copy()
    keys[0, 3 + 1500, 3] = 1.2  # g3 reads x1500 as well
    save_file({**tensors, "blocks.0.key": keys}, path, metadata)
    damaged = command("--check", path, "--rule", rule)
    assert damaged.exit_code == 1
    assert "does not compute" in damaged.stdout


def test_a_syntax_error_shows_its_place():
    done = command("x3 & & x7", "--context-length", 10)
    assert done.exit_code == 2
    line, caret, sentence = done.stderr.splitlines()
    assert line[caret.index("^")] == "&"
    assert sentence.startswith("Error: The rule cannot be read at position 5")
    assert "5000 digits" in command(f"x{'1' * 5000}", "--context-length", 10).stderr


def test_a_pytorch_module_is_written_beside_its_weights(tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "rule.pt"
    done = command(RULE, "--context-length", 12, "--format", "torch", "--out", out)
    assert done.exit_code == 0, done.output
    assert f"Weights: {out} and {out.with_suffix('.py')}" in done.stdout.replace("\n", "")
    assert f'"""{RULE} as a PyTorch module.' in out.with_suffix(".py").read_text(encoding="utf-8")
