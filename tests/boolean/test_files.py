import json
import os
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from finetti.boolean import Symmetric, TruthTable, compile_rule, load
from finetti.boolean.embeddings.position_vectors import StandardPositions
from finetti.boolean.language.rule import BooleanFunction
from finetti.core.errors import InputError


def rewritten(path, change):
    """The same file with its tensors changed."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors, metadata)
    save_file(tensors, path, metadata)
    return path


@pytest.fixture
def saved(tmp_path):
    return compile_rule("x3 & (x7 | ~x9)", 30).save(tmp_path / "rule.safetensors")


def test_a_file_says_what_it_is(saved):
    with safe_open(saved, framework="numpy") as file:
        metadata = file.metadata()
        names = set(file.keys())
    assert metadata["format"] == "finetti-boolean-1"
    assert metadata["context_length"] == "30"
    assert "x3 & (x7 | ~x9)" in metadata["function"]
    assert names == set(load(saved).weights) - {"embedding.positions"}  # unit vectors


@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize(("basis", "form"), [("orthonormal", None), ("random", "int8")])
def test_positions_are_written_in_their_form(tmp_path, basis, form, gates):
    compiled = compile_rule("x3 & (x7 | ~x9)", 30, basis=basis, gates=gates)
    path = compiled.save(tmp_path / "rule.safetensors")
    stored = load_file(path).get("embedding.positions")
    assert (None if stored is None else str(stored.dtype)) == form
    loaded = load(path)
    np.testing.assert_array_equal(
        loaded.network.positions.dense(), compiled.network.positions.dense()
    )
    assert loaded.certificate.holds


@pytest.mark.parametrize("gates", [False, True])
def test_positions_written_out_are_read_too(tmp_path, gates):
    compiled = compile_rule("x3 & (x7 | ~x9)", 30, "trained", gates=gates)
    path = compiled.save(tmp_path / "rule.safetensors")
    assert load_file(path)["embedding.positions"].shape == (30, compiled.network.width)
    loaded = load(path)
    for name, array in compiled.weights.items():
        np.testing.assert_array_equal(loaded.weights[name], array)
    assert loaded.certificate.holds


@pytest.mark.parametrize(
    "rule",
    [TruthTable((1, 5), [0.5, -1.0, 2.0, 3.25]), Symmetric((2, 4, 6), [1, -1, 0.5, 2])],
)
def test_functions_that_are_no_expressions_come_back(tmp_path, rule):
    loaded = load(compile_rule(rule, 9, "bag").save(tmp_path / "rule.safetensors"))
    assert repr(loaded.function) == repr(rule)
    assert loaded.check.exact


class AtLeastHalf(BooleanFunction):
    """A symmetric function of a user, of too many bits for a table."""

    indices = tuple(range(30))

    def evaluate(self, bits):
        return (bits.sum(axis=1) >= 15).astype(float)

    def profile(self):
        return (np.arange(31) >= 15).astype(float)


def test_a_symmetric_function_of_a_user_comes_back(tmp_path):
    loaded = load(compile_rule(AtLeastHalf(), 30).save(tmp_path / "rule.safetensors"))
    np.testing.assert_array_equal(loaded.function.profile(), AtLeastHalf().profile())
    assert loaded.check.exact


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("blocks.0.outer", (0,), 0.7),
        ("blocks.0.inner_bias", (5,), 9.0),
        ("blocks.0.middle", (0, 0), 3.0),
        ("blocks.0.key", (1, 3 + 20, 0), 2.0),  # head 2 looks at x20, which is not in the rule
        ("blocks.0.query", (0, 2, 0), 0.0),
        ("blocks.0.value", (0, 0, 0), -1.0),
        ("blocks.0.output", (0, 0, 1), 1.0),
        ("embedding.positions", (20, 3 + 7), 5.0),  # x20 looks like x7
        ("embedding.tokens", (1, 1), 0.0),
        ("embedding.readers", (0, 2), 0.0),
    ],
)
def test_one_wrong_number_is_found_with_an_input_that_shows_it(saved, name, place, value):
    def damage(tensors, metadata):
        tensors["embedding.positions"] = load(saved).network.positions.dense()
        tensors[name] = tensors[name].copy()
        assert tensors[name][place] != value
        tensors[name][place] = value

    loaded = load(rewritten(saved, damage))
    found = loaded.verify("x3 & (x7 | ~x9)")
    assert not found.exact
    wrong = found.counterexample
    bits = wrong.bits
    assert loaded.function(bits) == wrong.value
    output = loaded.predict(bits)
    assert abs(output - wrong.value) > 1e-9
    np.testing.assert_allclose(output, wrong.output, atol=1e-6)


def test_another_rule_is_refuted():
    compiled = compile_rule("x3 & x7", 50)
    assert compiled.verify("x7 & x3").exact
    assert compiled.verify().exact
    found = compiled.verify("x3 & x7 & ~x40")
    assert found.counterexample.ones[-1] >= 40
    assert str(found.counterexample).startswith("at x3")
    with pytest.raises(InputError, match="x50"):
        compiled.verify("x3 & x50")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t, m: t.pop("blocks.0.key"), "lacks blocks.0.key"),
        (lambda t, m: m.update(format="other"), "finetti-boolean-1"),
        (lambda t, m: m.pop("settings"), "lacks settings"),
        (lambda t, m: m.update(context_length="many"), "metadata"),
        (lambda t, m: m.update(function='{"rule": "x1 &"}'), "metadata"),
        (lambda t, m: m.update(function="{}"), "metadata"),
        (lambda t, m: m.update(function="[]"), "names and values"),
        (lambda t, m: m.update(function='{"rule": 5}'), "a rule is text"),
        (lambda t, m: m.update(function='{"indices": 3, "values": [0, 1]}'), "metadata"),
        (lambda t, m: m.update(function='{"indices": [1], "values": null}'), "metadata"),
        (lambda t, m: m.update(function='{"rule": "x1 & x30"}'), "uses x30"),
        (lambda t, m: m.update(function='{"rule": "x' + "1" * 5000 + '"}'), "5000 digits"),
        (lambda t, m: m.update(settings="[]"), "settings are names"),
        (lambda t, m: m.update(settings='{"embedding": "bag", "margin": "x"}'), "margin"),
        (lambda t, m: m.update(settings='{"embedding": "bag", "margin": 0.5}'), "margin"),
        (lambda t, m: m.update(settings='{"embedding": "bag", "margin": NaN}'), "margin"),
        (
            lambda t, m: t.update({"blocks.0.outer": np.zeros((4, 33))}),
            "unit vectors need more than 28",
        ),
        (lambda t, m: m.update(context_length="31"), "31 unit vectors need more than 33"),
        (lambda t, m: t.update({"blocks.0.query": np.zeros(3)}), "does not fit together"),
        (
            lambda t, m: t.update({"blocks.0.query": t["blocks.0.query"][:0]}),
            "does not fit together",
        ),
        (lambda t, m: m.update(settings='{"embedding": "other"}'), "embedding"),
        (lambda t, m: t.update({"embedding.positions": np.zeros((30, 4))}), "positions has shape"),
        (lambda t, m: t.update({"embedding.positions": np.zeros((30, 30), np.int8)}), "signs"),
        (lambda t, m: t.update({"blocks.0.key": np.zeros((3, 4, 1))}), "does not fit together"),
        (lambda t, m: t.update({"blocks.0.outer": np.zeros(3)}), "does not fit together"),
    ],
)
def test_files_that_are_no_networks_are_refused(saved, change, words):
    with pytest.raises(InputError, match=words):
        load(rewritten(saved, change))


def test_matrices_too_large_for_a_file_are_refused(tmp_path):
    ors = " & ".join(f"(x{2 * i} | ~x{2 * i + 1})" for i in range(200))
    compiled = compile_rule(ors, 500, gates=True)
    wide = replace(compiled.network, positions=StandardPositions(500, 400_000))
    large = replace(compiled, network=wide)
    with pytest.raises(InputError, match="files end at 2 GiB"):
        large.save(tmp_path / "large.safetensors")


def test_files_that_are_no_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "text.safetensors")
    with pytest.raises(InputError, match="cannot be written"):
        compile_rule("x1", 4).save(tmp_path / "no" / "such" / "folder.safetensors")


def test_complex_tensors_pipes_and_huge_files_are_refused(tmp_path):
    path = compile_rule("x1 & x4", 8).save(tmp_path / "a.safetensors")
    with safe_open(path, "numpy") as file:
        tensors, metadata = {n: file.get_tensor(n) for n in list(file.keys())}, file.metadata()
    whole = path.stat().st_size
    assert load(path, max_bytes=whole).verify().exact
    with pytest.raises(InputError, match="`max_bytes`"):
        load(path, max_bytes=whole - 1)
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name].astype(np.complex64)}, path, metadata)
    with pytest.raises(InputError, match="no real numbers"):
        load(path)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(InputError, match="not a regular file"):
        load(tmp_path / "pipe.safetensors")


def test_numbers_that_numpy_does_not_have_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    for kind, size in (("F8_E4M3", 1), ("BF16", 2)):
        entry = {"dtype": kind, "shape": [4], "data_offsets": [0, 4 * size]}
        header = json.dumps({"a": entry}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4 * size))
        with pytest.raises(InputError, match=r"as safetensors|no real numbers"):
            load(path)
