"""Files that lie, are damaged, or are of another kind: one sentence each."""

import json
import os
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

import checkpoints as make
from finetti.audit.readers.array_tree import read_tree
from finetti.audit.readers.checkpoint_files import CONTAINERS, Container, read_checkpoint
from finetti.audit.readers.safetensors_file import read_safetensors
from finetti.core.errors import InputError

F32 = np.ones(4, "<f4").tobytes()


def refused(source, *words):
    with pytest.raises(InputError) as caught:
        read_checkpoint(source)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


def entry(first, last, shape=(4,), kind="F32"):
    return {"dtype": kind, "shape": list(shape), "data_offsets": [first, last]}


@pytest.mark.parametrize(
    "header",
    [
        {"a": entry(0, 16), "b": entry(8, 24)},  # overlap
        {"a": entry(0, 16), "b": entry(20, 36)},  # a hole
        {"a": entry(4, 20)},
        {"a": entry(0, 16)},  # bytes that belong to nothing
        {"a": entry(0, 16), "b": entry(16, 48, (8,))},
        {"a": entry(0, 15)},
        {"a": entry(16, 0)},
        {"a": entry(0, 16, (2**40, 2**40))},
        {"a": entry(0, 16, (-4,))},
        {"a": entry(0, 16, (4.0,))},
        {"a": entry(0, 16, (True, 4))},
        {"a": entry(0, 16, kind="F5")},
        {"a": entry(0, 16, kind=3)},
        {"a": {"dtype": "F32"}},
        {"a": [1]},
        {"a": entry(0, 16) | {"data_offsets": "0"}},
        {"__metadata__": 3},
    ],
)
def test_headers_that_lie(header, tmp_path):
    raw = {"a": ("F32", (4,), F32), "b": ("F32", (4,), F32)}
    path = make.raw_file(tmp_path / "x.safetensors", raw, header)
    refused(path, "not a complete safetensors file")


def test_headers_that_are_none(tmp_path):
    path = tmp_path / "x.safetensors"
    for content, words in (
        (b"", "not a complete safetensors file"),
        (b"\x01", "not a complete safetensors file"),
        ((2**62).to_bytes(8, "little") + b"{}", "not a complete safetensors file"),
        ((4).to_bytes(8, "little") + b"\xff\xfe{}", "not readable as JSON"),
        ((10**5).to_bytes(8, "little") + b"[" * 10**5, "not readable as JSON"),
        ((5002).to_bytes(8, "little") + b"{" + b"9" * 5000 + b"}", "not readable as JSON"),
        ((6).to_bytes(8, "little") + b"[1, 2]", "must be a JSON object"),
        ((16).to_bytes(8, "little") + b'{"a":1,"a":2}   ', "'a' twice"),
        ((2).to_bytes(8, "little") + b"{}", "holds no tensors"),
    ):
        path.write_bytes(content)
        refused(path, words)


def test_a_huge_header_is_not_read(tmp_path):
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write((2**33).to_bytes(8, "little"))
        file.truncate(2**33 + 8)  # sparse: the file takes no room
    refused(path, "at most 33554432 are read")


@pytest.mark.parametrize("name", ["x.bin", "x.pt", "x.PTH", "x.ckpt"])
def test_pickles_are_never_opened(name, tmp_path):
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    refused(tmp_path / name, "is a pickle", "torch.load", "weights_only=True")
    refused(tmp_path, "is a pickle")  # a folder that has nothing else


def test_a_folder_with_one_npz_file_is_that_file_and_with_two_asks_which(tmp_path):
    (tmp_path / "optimizer.pt").write_bytes(b"not opened")
    np.savez(tmp_path / "weights.npz", a=np.ones(2))
    assert list(read_checkpoint(tmp_path).tensors) == ["a"]
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    refused(tmp_path, "other.npz, weights.npz. Choose one of them")


def test_other_kinds_are_refused_by_name(tmp_path):
    for name, words in (("x.gguf", "GGUF"), ("x.onnx", "ONNX"), ("x.txt", "unsupported format")):
        (tmp_path / name).write_bytes(b"GGUF")
        refused(tmp_path / name, words)
        (tmp_path / name).unlink()
    refused(tmp_path, "holds no safetensors")
    make.write(tmp_path / "two", {"a": np.ones(2)}, name="a.safetensors")
    make.write(tmp_path / "two", {"a": np.ones(2)}, name="b.safetensors")
    refused(tmp_path / "two", "a.safetensors, b.safetensors. Choose one")


def test_pipes_loops_and_folders_do_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    refused(tmp_path / "pipe.safetensors", "not a regular file")
    loop = tmp_path / "loop.safetensors"
    loop.symlink_to(loop)
    refused(loop, "cannot be")
    (tmp_path / "x.safetensors").mkdir()
    refused(tmp_path / "x.safetensors", "holds no safetensors")
    refused("no\0name", "")
    refused("x" * 5000, "")
    refused(tmp_path / "nowhere" / ".." / "model", "no file or folder")


def test_npz_that_lie_and_pickles(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.array([{"x": 1}], dtype=object))
    refused(path, "pickled objects")
    np.save(tmp_path / "a.npy", np.zeros(4))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", (tmp_path / "a.npy").read_bytes().replace(b"(4,)", b"(9,)"))
    refused(path, "declares shape (9,)")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"no npy")
    refused(path, "cannot be read as npz")
    path.write_bytes(b"PK")
    refused(path, "cannot be read as npz")


@pytest.mark.parametrize(
    "header", ["(" * 5000, "[" * 200, "-" * 9000 + "1", "{'descr': " * 900, "'"]
)
def test_a_header_of_npy_that_is_no_python(tmp_path, header):
    body = header.encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", content)
    refused(tmp_path / "x.npz", "cannot be read as npz")


def test_a_file_that_cannot_be_mapped_is_not_called_changed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros((3, 3))}, path)
    tensor = read_safetensors(path)["a"]
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(InputError, match="Too many levels of symbolic links"):
        tensor.read()


def test_npz_that_declares_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("finetti.audit.readers.npz_file.MAX_UNPACKED", 1000)
    np.savez(tmp_path / "x.npz", a=np.zeros(200))
    refused(tmp_path / "x.npz", "at most 1000 are")


def test_a_config_that_is_none(tmp_path):
    path = make.write(tmp_path, {"a": np.ones(2)})
    (tmp_path / "config.json").write_text("{")
    refused(path, "config.json is not readable as JSON")
    (tmp_path / "config.json").write_text(json.dumps([1]))
    refused(path, "config.json must be a JSON object")


def test_stored_types_are_exact(tmp_path):
    import ml_dtypes

    every = np.arange(256, dtype=np.uint8)
    pairs = np.random.default_rng(0).integers(0, 2**16, 500, dtype=np.uint16)
    for kind, codes, dtype in (
        ("F8_E4M3", every, ml_dtypes.float8_e4m3fn),
        ("F8_E5M2", every, ml_dtypes.float8_e5m2),
        ("BF16", pairs, ml_dtypes.bfloat16),
        ("F16", pairs, np.float16),
    ):
        with np.errstate(invalid="ignore"):  # signaling NaN
            expected = codes.view(dtype).astype(np.float64)
        codes, expected = codes[np.isfinite(expected)], expected[np.isfinite(expected)]
        raw = {"a": (kind, codes.shape, codes.tobytes())}
        path = make.raw_file(tmp_path / "x.safetensors", raw)
        np.testing.assert_array_equal(read_checkpoint(path).tensors["a"].read(), expected)


def test_empty_tensors_are_allowed_where_nothing_reads_them(tmp_path):
    arrays, config, _ = make.synthetic("bert")
    found = make.measured(make.write(tmp_path, arrays | {"buffer": np.zeros((0, 3))}, config))
    assert "buffer" in found.skipped


def test_packers_that_numpy_does_not_use_are_not_run(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(4))
    content = zipfile.ZipFile(tmp_path / "x.npz").read("a.npy")
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):  # a header of LZMA may ask for 4 GiB
        with zipfile.ZipFile(tmp_path / "y.npz", "w", method) as archive:
            archive.writestr("a.npy", content)
        refused(tmp_path / "y.npz", "packed in a way that NumPy does not use")


def test_a_large_header_takes_no_long_time(tmp_path):
    # Counting each of the names in all of them would take hours, and so would matching one that
    # has a million dots with every pattern of the table.
    path, names = tmp_path / "x.safetensors", [f'"{n}":0' for n in range(400_000)]
    head = ("{" + ",".join([*names, names[-1]]) + "}").encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    refused(path, "'399999' twice")
    make.raw_file(path, {"." * 10**6: ("F32", (4,), F32)})
    refused(path, "a name of 1000000 characters; at most 1000 are read")


def test_a_matrix_larger_than_any_memory(tmp_path):
    side, header, offset = 2**19, {}, 0
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        end = offset + 4 * side**2
        said = {"dtype": "F32", "shape": [side, side], "data_offsets": [offset, end]}
        header[f"layers.0.self_attn.{name}.weight"], offset = said, end
    head = json.dumps(header).encode()
    with (tmp_path / "x.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + offset)  # sparse: the file takes no room
    with pytest.raises(InputError, match="at most 2147483648 are read at once"):
        make.measured(tmp_path / "x.safetensors", heads=4)


def test_a_packed_table_is_unpacked_once(tmp_path, monkeypatch):
    arrays = make.synthetic("gpt2")[0]
    words = np.random.default_rng(0).normal(size=(50, make.WIDTH))
    np.savez(tmp_path / "x.npz", **arrays, **{"wte.weight": words, "lm_head.weight": words})
    monkeypatch.setattr("finetti.audit.measures.weight_readings.BLOCK", 16)
    opened, open_member = [], zipfile.ZipFile.open

    def counted(archive, member, *rest, **more):
        opened.append(getattr(member, "filename", member))
        return open_member(archive, member, *rest, **more)

    monkeypatch.setattr(zipfile.ZipFile, "open", counted)
    assert make.measured(tmp_path / "x.npz", heads=4).tied == ("lm_head.weight",)
    assert opened.count("wte.weight.npy") == 2  # its header, its numbers


def test_a_revision_that_is_no_commit(tmp_path, monkeypatch):
    model = tmp_path / "models--someone--small"
    (model / "snapshots" / "abc").mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_bytes(b"\xff" * 10**6)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    refused("someone/small", "holds no safetensors")


def test_a_config_that_leads_nowhere_is_told(tmp_path):
    arrays, config, _ = make.synthetic("bert")
    make.write(tmp_path / "model", arrays, config)
    beside = tmp_path / "model" / "config.json"
    beside.unlink()
    beside.symlink_to(beside)
    refused(tmp_path / "model", "config.json", "symbolic links")


def test_complex_numbers_are_not_called_quantized(tmp_path):
    np.savez(tmp_path / "a.npz", weight=np.ones(2, complex))
    tensor = read_checkpoint(tmp_path / "a.npz").tensors["weight"]
    with pytest.raises(InputError, match="none of real numbers"):
        tensor.read()


def test_a_new_container_is_one_line_more(tmp_path, monkeypatch):
    """Its config may stand in the file itself."""
    arrays, config, _ = make.synthetic("llama", kv_heads=2)
    toy = Container(lambda path: read_tree(arrays), lambda path: config)
    monkeypatch.setitem(CONTAINERS, ".toy", toy)
    (tmp_path / "network.toy").touch()
    found = make.measured(tmp_path)
    assert (found.geometry.heads, found.geometry.kv_heads) == (make.HEADS, 2)
