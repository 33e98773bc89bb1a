"""Real networks of the package index: two against plain NumPy, two that are refused."""

import math

import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints import GGUF, MINILM, PICKLED, TUNED, measured, needs_checkpoints, needs_refused
from finetti.audit import measure_capacity
from finetti.core.errors import InputError


@pytest.fixture(scope="module")
def found():
    return measured(MINILM)


@needs_checkpoints
def test_layers_heads_and_parameters(found):
    heads = found.geometry
    assert (found.layout, len(found.layers), heads.heads) == ("bert", 6, 12)
    assert (heads.width, heads.head_width, heads.kv_heads) == (384, 32, 12)
    assert len(found.read) == 101
    assert "pooler.dense.weight" in found.skipped


@needs_checkpoints
def test_samples_and_where_capacity_sits(found):
    capacity = measure_capacity(found)
    best, theirs = capacity.best, capacity.row("Theorem A.17 (S)")
    assert 13 < best.needed.log_value / math.log(10) < 15
    assert theirs.needed.log_value > 50 * math.log(10)
    assert 110 < capacity.log_lipschitz / math.log(10) < 118
    layers = capacity.shares(best, lambda layer, matrix: layer)
    assert max(layers, key=layers.get) == "embeddings"
    (word,) = (
        share
        for (layer, matrix), share in capacity.shares(
            best, lambda layer, matrix: (layer, matrix)
        ).items()
        if matrix == "word_embeddings"
    )
    assert 0.5 < word < 0.8


@needs_checkpoints
@pytest.mark.parametrize(("layer", "head"), [(0, 2), (3, 3), (5, 11)])
def test_heads_by_full_svd(found, layer, head):
    weights = load_file(MINILM / "model.safetensors")
    start, rows = f"encoder.layer.{layer}.attention.", slice(32 * head, 32 * head + 32)
    query, key, value = (
        weights[f"{start}self.{name}.weight"].astype(float)[rows]
        for name in ("query", "key", "value")
    )
    output = weights[f"{start}output.dense.weight"].astype(float)[:, rows]
    one_head = found.layers[layer].heads[head]
    for product, one in (
        (query.T @ key, one_head.query_key),
        (value.T @ output.T, one_head.value_output),
    ):
        values = np.linalg.svd(product, compute_uv=False)[:32]
        assert one.spectral == pytest.approx(values[0], rel=1e-10)
        assert one.nuclear == pytest.approx(values.sum(), rel=1e-10)
        assert one.half == pytest.approx(np.sqrt(values).sum() ** 2, rel=1e-8)
        assert one.entries == pytest.approx(np.abs(product).sum(), rel=1e-10)
        assert one.norm_2_1 == pytest.approx(np.linalg.norm(product, axis=0).sum(), rel=1e-10)


@needs_checkpoints
def test_every_enclosure_is_narrow(found):
    for layer in found.layers:
        for kind in found.kinds:
            for one in layer.of_kind(kind):
                assert one.spectral_lower <= one.spectral <= one.spectral_upper
                assert one.spectral_upper <= one.spectral_lower * (1 + 1e-8)


@needs_checkpoints
def test_the_fine_tuned_one_has_the_same_layout(found):
    tuned = measured(TUNED)
    assert (tuned.layout, tuned.geometry) == (found.layout, found.geometry)
    assert tuned.read == found.read


@needs_refused
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (GGUF, ("SmolLM2-135M-Instruct.Q4_1.gguf", "is GGUF", "Give the safetensors")),
        (PICKLED, ("'pytorch_model.bin' is a pickle", "never opened", "weights_only=True")),
    ],
)
def test_real_networks_of_other_kinds_are_refused_with_what_to_do(folder, words):
    weights = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    for source in (folder, weights):
        with pytest.raises(InputError) as caught:
            measured(source)
        for word in words:
            assert word in str(caught.value)
