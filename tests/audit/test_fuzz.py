"""Mutated files: an audit or one sentence; never a crash, a hang or a big allocation."""

import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest

import checkpoints as make
from finetti.core.errors import FinettiError

FAMILIES = ("bert", "llama", "gpt2", "albert")
WORDS = (None, True, -1, 0, 2**63, 1e400, "F32", "I4", "BF16", "I8", "../../x", [], {}, [0, 2**62])


def safetensors_parts(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header, data, length=None):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(head) if length is None else length).to_bytes(8, "little") + head + data


def changed_header(rng, content):
    """One thing that the header says becomes another."""
    header, data = safetensors_parts(content)
    name = str(rng.choice([name for name in header if name != "__metadata__"]))
    what = rng.integers(8)
    if what == 0:
        header[name]["data_offsets"][rng.integers(2)] += int(rng.integers(-64, 64))
    elif what == 1:
        header[name]["shape"] = [int(n) for n in rng.integers(0, 2**20, rng.integers(0, 4))]
    elif what == 2:
        header[name][str(rng.choice(["dtype", "shape", "data_offsets"]))] = WORDS[
            rng.integers(len(WORDS))
        ]
    elif what == 3:
        header[str(rng.choice(["../../etc/passwd", "", "a" * 5000, "\0", name + ".x"]))] = (
            header.pop(name)
        )
    elif what == 4:
        header[name] = WORDS[rng.integers(len(WORDS))]
    elif what == 5:
        text = json.dumps(header).encode()
        return joined(text[:-1] + b"," + text[1:], data)  # every name twice
    elif what == 6:
        return joined(header, data, int(rng.integers(0, 2**63)))
    else:
        other = str(rng.choice([each for each in header if each != "__metadata__"]))
        header[name], header[other] = header[other], header[name]
    return joined(header, data)


def bad_numbers(rng, content):
    header, data = safetensors_parts(content)
    values = np.frombuffer(data, "<f4").copy()
    some = rng.integers(0, len(values), rng.integers(1, 50))
    values[some] = rng.choice([np.nan, np.inf, 0.0, 1e-45, 3e38, -3e38])
    return joined(header, values.tobytes())


def flipped(rng, content):
    content = bytearray(content)
    for place in rng.integers(0, len(content), rng.integers(1, 9)):
        content[place] ^= 1 << rng.integers(8)
    return bytes(content)


def cut(rng, content):
    return content[: rng.integers(len(content))]


def longer(rng, content):
    return content + rng.bytes(int(rng.integers(1, 100)))


def flipped_start(rng, content):
    return flipped(rng, content[:400]) + content[400:]


def emptied(rng, content):
    return b""


def bomb(rng, content):
    """An npz with a member that unpacks a thousandfold, by a packer of any kind."""
    buffer = io.BytesIO()
    kind = (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)[rng.integers(3)]
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        archive.writestr("../x.npy", bytes(17 * 2**20))
    return buffer.getvalue()


MUTATIONS = (
    changed_header,
    changed_header,
    bad_numbers,
    flipped,
    flipped_start,
    cut,
    longer,
    emptied,
)


def fuzz(folder, count, seed):
    rng = np.random.default_rng(seed)
    files = []
    for family in FAMILIES:
        arrays, config, _ = make.synthetic(family, layers=1)
        path = make.write(folder / family, arrays, config)
        np.savez(folder / family / "model.npz", **arrays)
        np.savez_compressed(folder / family / "packed.npz", **arrays)
        files += [path, path, path.with_suffix(".npz"), folder / family / "packed.npz"]
        files += [folder / family / "config.json"]
    originals = {path: path.read_bytes() for path in files}
    make.measured(files[0])
    sentences, bombs = [], [bomb(rng, b"") for _ in range(4)]
    tracemalloc.start()
    for _ in range(count):
        path = files[rng.integers(len(files))]
        kinds = MUTATIONS if path.suffix == ".safetensors" else MUTATIONS[3:]
        content = kinds[rng.integers(len(kinds))](rng, originals[path])
        if rng.integers(40) == 0:
            path.unlink()
            path.symlink_to(path)  # a loop
        elif path.suffix == ".npz" and rng.integers(40) == 0:
            path.write_bytes(bombs[rng.integers(len(bombs))])
        else:
            path.write_bytes(content)
        source = path.parent if path.suffix == ".json" else path
        try:
            found = make.measured(source)
        except FinettiError as error:
            sentences.append(str(error))
        else:
            assert found.read
            json.dumps(found.to_dict(), allow_nan=False)
        path.unlink()
        path.write_bytes(originals[path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert all(0 < len(sentence) < 1000 for sentence in sentences)
    return len(sentences)


def test_mutated_files(tmp_path):
    assert 100 < fuzz(tmp_path, 300, 0) < 300


@pytest.mark.slow
def test_two_thousand_mutated_files(tmp_path):
    assert 700 < fuzz(tmp_path, 2000, 1) < 2000
