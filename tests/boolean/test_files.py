import json
import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from finetti.boolean import Symmetric, TruthTable, compile, load, saving
from finetti.boolean.embeddings import EMBEDDINGS
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
    return compile("x3 & (x7 | ~x9)", 30).save(tmp_path / "rule.safetensors")


def test_a_file_says_what_it_is(saved):
    with safe_open(saved, framework="numpy") as file:
        metadata = file.metadata()
        names = set(file.keys())
    assert metadata["format"] == "finetti-boolean-1"
    assert metadata["context_length"] == "30"
    assert "x3 & (x7 | ~x9)" in metadata["function"]
    assert names == set(load(saved).weights)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("basis", ["orthonormal", "random"])
def test_positions_too_large_to_write_out_keep_their_form(tmp_path, monkeypatch, embedding, basis):
    monkeypatch.setattr(saving, "MAX_DENSE_BYTES", 100)
    compiled = compile("x3 & (x7 | ~x9)", 30, embedding, basis)
    path = compiled.save(tmp_path / "rule.safetensors")
    assert "embedding.positions" not in load_file(path)
    loaded = load(path)
    np.testing.assert_array_equal(loaded.positions.dense(), compiled.positions.dense())
    assert loaded.certificate.holds


@pytest.mark.parametrize(
    "rule",
    [TruthTable((1, 5), [0.5, -1.0, 2.0, 3.25]), Symmetric((2, 4, 6), [1, -1, 0.5, 2])],
)
def test_functions_that_are_no_expressions_come_back(tmp_path, rule):
    loaded = load(compile(rule, 9, "bag").save(tmp_path / "rule.safetensors"))
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
    loaded = load(compile(AtLeastHalf(), 30).save(tmp_path / "rule.safetensors"))
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
        ("embedding.cls", (2,), 0.0),
    ],
)
def test_one_wrong_number_is_found_with_an_input_that_shows_it(saved, name, place, value):
    def damage(tensors, metadata):
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
    compiled = compile("x3 & x7", 50)
    assert compiled.verify("x7 & x3").exact
    assert compiled.verify().exact
    found = compiled.verify("x3 & x7 & ~x40")
    assert found.counterexample.ones[-1] >= 40
    assert str(found.counterexample).startswith("at x3")
    with pytest.raises(InputError, match="x50"):
        compiled.verify("x3 & x50")


def sparse_vectors_of_other_positions(tensors, metadata):
    metadata.update(positions="sparse")
    tensors["embedding.position_indices"] = np.array([1])
    tensors["embedding.position_vectors"] = np.zeros((2, int(metadata["width"])))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t, m: t.pop("blocks.0.key"), "lacks blocks.0.key"),
        (lambda t, m: t.pop("embedding.positions"), "embedding.positions"),
        (lambda t, m: m.update(format="other"), "finetti-boolean-1"),
        (lambda t, m: m.pop("width"), "lacks width"),
        (lambda t, m: m.update(width="many"), "metadata"),
        (lambda t, m: m.update(function='{"rule": "x1 &"}'), "metadata"),
        (lambda t, m: m.update(function="{}"), "metadata"),
        (lambda t, m: m.update(function="[]"), "names and values"),
        (lambda t, m: m.update(function='{"rule": 5}'), "a rule is text"),
        (lambda t, m: m.update(function='{"indices": 3, "values": [0, 1]}'), "metadata"),
        (lambda t, m: m.update(function='{"indices": [1], "values": null}'), "metadata"),
        (lambda t, m: m.update(function='{"rule": "x1 & x30"}'), "uses x30"),
        (lambda t, m: m.update(function='{"rule": "x' + "1" * 5000 + '"}'), "5000 digits"),
        (lambda t, m: m.update(settings="[]"), "settings are names"),
        (lambda t, m: m.update(settings='{"margin": "x"}'), "margin"),
        (lambda t, m: m.update(settings='{"margin": 0.5}'), "margin"),
        (lambda t, m: m.update(settings='{"margin": NaN}'), "margin"),
        (lambda t, m: m.update(positions="elsewhere"), "'elsewhere' is not one of"),
        (lambda t, m: m.update(positions="standard", width="20"), "need more than 20"),
        (lambda t, m: m.update(readers="gates"), "does not fit its rule"),
        (lambda t, m: m.update(context_length="29"), "positions has shape"),
        (lambda t, m: m.update(positions="signs"), "positions"),
        (sparse_vectors_of_other_positions, "1 indices and vectors of shape"),
        (lambda t, m: t.update({"blocks.0.query": np.zeros(3)}), "does not fit together"),
        (
            lambda t, m: t.update({"blocks.0.query": t["blocks.0.query"][:0]}),
            "does not fit together",
        ),
        (lambda t, m: m.update(embedding="other"), "embedding"),
        (lambda t, m: t.update({"blocks.0.key": np.zeros((3, 4, 1))}), "does not fit together"),
        (lambda t, m: t.update({"blocks.0.outer": np.zeros(3)}), "does not fit together"),
    ],
)
def test_files_that_are_no_networks_are_refused(saved, change, words):
    with pytest.raises(InputError, match=words):
        load(rewritten(saved, change))


def test_files_that_are_no_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "text.safetensors")
    with pytest.raises(InputError, match="cannot be written"):
        compile("x1", 4).save(tmp_path / "no" / "such" / "folder.safetensors")


def test_complex_tensors_pipes_and_huge_files_are_refused(tmp_path):
    path = compile("x1 & x4", 8).save(tmp_path / "a.safetensors")
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
