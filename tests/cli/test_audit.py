import json

import numpy as np
import pytest
from typer.testing import CliRunner

import checkpoints as make
from finetti.cli.main import app


def command(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    arrays, config, _ = make.synthetic("bert")
    return make.write(tmp_path / "model", arrays, config).parent


def test_the_table_is_shown(folder):
    done = command(folder)
    assert done.exit_code == 0, done.output
    assert "Capacity at ε = 0.1, and samples for a gap of 0.1" in done.stdout
    for words in ("Theorem A.17 (S)", "smallest", "a single head per layer, and here are 4"):
        assert words in done.stdout
    for words in ("Spectral norms", "Largest heads", "Totals", "4 of width 2", "W_QW_Kᵀ"):
        assert words in done.stdout


def test_progress_counts_tensors(folder, monkeypatch):
    monkeypatch.setattr("finetti.display.progress.MIN_SILENCE_SECONDS", 0.0)
    done = command(folder)
    assert "of 26 tensors, about" in done.stderr
    assert "bert.encoder.layer.1." in done.stderr
    assert command(folder, "--quiet").stderr == ""


def test_json_is_one_document_and_people_read_stderr(folder, tmp_path):
    done = command(folder, folder / "model.safetensors", "--json", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    first, second = document["audits"]
    assert first["layers"] == second["layers"]
    assert first["n_heads"] == 4
    assert len(first["read"]) == 26
    assert "Spectral norms" in done.stderr
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == document


def test_quiet_is_one_line(folder):
    done = command(folder, "--quiet")
    assert done.stdout.count("\n") == 1
    assert "26 parameters read, 0 skipped" in done.stdout
    assert "samples for a gap of 0.1: " in done.stdout
    # What holds for this network comes first; other classes come after their name.
    own, _, others = done.stdout.partition("; not of this network but of the nearest class: ")
    for name in ("parameter count", "count", "Maurey", "Schatten", "smallest"):
        assert f" by {name}" in own
    assert "Theorem" not in own
    assert "by Theorem A.17 (S), " in others
    assert "by Theorem C.4 (E)" in others


def test_bad_files_are_one_sentence(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"no header")
    (tmp_path / "x.pt").write_bytes(b"")
    np.savez(tmp_path / "x.npz", a=np.eye(2))
    for name in ("x.safetensors", "x.pt", "x.npz", "none/such", "none.onnx"):
        done = command(tmp_path / name if name.startswith("x") else name)
        assert done.exit_code == 2, name
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
    assert "Traceback" in command(path, "--debug").stderr


def test_what_moved_since_the_base(folder, tmp_path):
    arrays, config, _ = make.synthetic("bert")
    arrays["bert.encoder.layer.1.intermediate.dense.weight"] *= 1.5
    tuned = make.write(tmp_path / "tuned", arrays, config)
    done = command(tuned, "--base", folder, "--json")
    assert done.exit_code == 0, done.output
    assert "1 of 12 matrices" in done.stderr
    matrices = json.loads(done.stdout)["audits"][0]["changes"]["matrices"]
    moved = [(each["layer"], each["role"]) for each in matrices if each["relative"]]
    assert moved == [("1", "feed_in")]
    done = command(tuned, "--base", folder, "--quiet")
    assert "most of all feed_in of layer 1, by 50 %" in done.stdout
    assert command(folder, "--base", folder, "-q").stdout.endswith("0 of 12 matrices moved\n")


def test_an_adapter_on_its_base(folder, tmp_path):
    adapter, module = tmp_path / "adapter", "base_model.model.bert.encoder.layer.1.output.dense"
    factors = {"lora_A": np.ones((1, make.HIDDEN)), "lora_B": np.ones((make.WIDTH, 1))}
    arrays = {f"{module}.{name}.weight": array for name, array in factors.items()}
    weights = make.write(adapter, arrays, name="adapter_model.safetensors")
    said = {"peft_type": "LORA", "r": 1, "lora_alpha": 2}
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    done = command(adapter, "--base", folder, "--json", "--quiet")
    assert done.exit_code == 0, done.output
    (audit,) = json.loads(done.stdout)["audits"]
    assert audit["name"] == f"{adapter} on {folder}"
    (moved,) = (each for each in audit["changes"]["matrices"] if each["delta"])
    assert (moved["layer"], moved["role"], moved["rank"]) == ("1", "feed_out", 1)
    assert moved["delta"]["spectral"] == pytest.approx(2 * np.sqrt(make.HIDDEN * make.WIDTH))
    for source in (adapter, weights):
        done = command(source)
        assert done.exit_code == 2
        assert "Give --base" in done.stderr
    swapped = command(folder, "--base", adapter)
    assert swapped.exit_code == 2
    assert f"The base {adapter} is a LoRA adapter" in swapped.stderr
    assert f"swapped: audit {adapter} with {folder} as the base." in swapped.stderr
    twice = command(adapter, "--base", weights)
    assert twice.exit_code == 2
    assert "give the network that it belongs to.\n" in twice.stderr


def test_the_page_and_its_figures(folder, tmp_path):
    arrays, config, _ = make.synthetic("bert")
    arrays["bert.encoder.layer.1.intermediate.dense.weight"] *= 1.5
    tuned, out = make.write(tmp_path / "tuned", arrays, config), tmp_path / "out"
    sizes = ("--context-length", 64, "--samples", 500, "--gap", 0.2)
    done = command(tuned, "--base", folder, *sizes, "--out", out, "--quiet")
    assert done.exit_code == 0, done.output
    page = (out / "audit.html").read_text()
    for words in (
        "How many samples",
        "Where the capacity sits",
        "Growth with the context length",
        "What the fine-tuning moved",
        "Spectra",
        "What was read",
        "no residual connections, and this network has them",
        "Assumed: activation gelu",
        "--context-length 64 --samples 500 --gap 0.2",
    ):
        assert words in page, words
    names = {path.stem for path in out.glob("*.svg")}
    assert {"samples", "waterfall", "capacity", "growth", "moved"} <= names
    assert {"heads-query_key", "heads-value_output", "spectra-1"} <= names
    (audit,) = json.loads((out / "results.json").read_text())["audits"]
    capacity = audit["capacity"]
    assert (capacity["context_length"], capacity["gap"]) == (64, 0.2)
    rows = {row["name"]: row for row in capacity["rows"]}
    tuning = rows["fine-tuning: base + Δ"]
    assert tuning["needed"]["count"] < rows["smallest"]["needed"]["count"]
    assert all(row["post_hoc"] > 0 for row in rows.values())


def test_checkpoints_and_gaps_together(folder, tmp_path):
    arrays, config, _ = make.synthetic("bert")
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    other = make.write(tmp_path / "other", arrays | {name: 3 * arrays[name]}, config).parent
    gaps = tmp_path / "gaps.csv"
    gaps.write_text("checkpoint,gap\nmodel,0.1\nother,0.2\n")
    done = command(folder, other, "--gaps", gaps, "--json", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["comparison"]["spreads"][0]["spread"] == pytest.approx(2 / 3)
    assert {row["verdict"] for row in document["correlations"]["rows"]} == {"inconclusive"}
    assert f"--gaps {gaps}" in document["command"]
    assert "Checkpoints side by side" in (tmp_path / "out" / "audit.html").read_text()


def test_what_does_not_fit_is_refused_before_anything_is_measured(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "finetti.audit.audit_run.walk_weights", lambda *_, **__: pytest.fail("measured")
    )
    other = make.write(tmp_path / "other", *make.synthetic("gpt2")[:2]).parent
    gaps = tmp_path / "gaps.csv"
    gaps.write_text("checkpoint,gap\nmodel,0.1\nothers,0.2\n")
    for arguments, words in (
        ((folder, "--gaps", gaps), "more than one PATH"),
        ((folder, other, "--gaps", gaps), f"no gap for {other}"),
        ((folder, tmp_path / "none.safetensors"), "none.safetensors"),
        ((folder, "--base", other), "are not alike"),
    ):
        done = command(*arguments)
        assert done.exit_code == 2, done.output
        assert words in done.stderr
        assert done.stdout == ""
