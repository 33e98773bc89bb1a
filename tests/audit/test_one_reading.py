"""A checkpoint is opened once: one mapping, one check of shapes, and every weight is read once."""

import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import save_file

import checkpoints as make
from finetti.audit import audit_checkpoint, checkpoint
from finetti.audit.readers.stored_tensor import StoredTensor


@pytest.fixture
def counted(monkeypatch):
    """How often functions were called, and how many numbers of which tensor were read."""
    calls, numbers, decoded = Counter(), Counter(), StoredTensor._decoded

    def count(plain, *given):
        calls[plain.__name__] += 1
        return plain(*given)

    for name in ("read_checkpoint", "map_checkpoint", "check_shapes"):
        monkeypatch.setattr(checkpoint, name, partial(count, getattr(checkpoint, name)))

    def read(tensor, stored):
        numbers[tensor.name, getattr(tensor.load, "args", [None])[0]] += stored.size
        return decoded(tensor, stored)

    monkeypatch.setattr(StoredTensor, "_decoded", read)
    return calls, numbers


@pytest.fixture(params=["bert", "gpt2"])
def network(request):
    """Arrays with tables, one of which is the unembedding as well."""
    arrays, config, _ = make.synthetic(request.param)
    words = np.random.default_rng(1).normal(size=(20, make.WIDTH)).astype(np.float32)
    if request.param == "gpt2":
        arrays |= {f"transformer.{name}.weight": words for name in ("wte", "wpe")}
        arrays["lm_head.weight"] = words
    return arrays, config


def test_of_a_checkpoint_and_its_base(network, tmp_path, counted):
    calls, numbers = counted
    arrays, config = network
    base = make.write(tmp_path / "base", arrays, config).parent
    moved = {name: np.float32(1.5) * array for name, array in arrays.items()}
    tuned = make.write(tmp_path / "tuned", moved, config).parent
    audit_checkpoint(tuned, base=base, quiet=True)
    assert set(calls.values()) == {2}
    assert len(numbers) == 2 * len(arrays)
    assert all(count == arrays[name].size for (name, _), count in numbers.items())


def test_of_an_adapter_and_its_base(network, tmp_path, counted):
    calls, numbers = counted
    arrays, config = network
    base = make.write(tmp_path / "base", arrays, config).parent
    name = next(name for name in arrays if "output.dense.weight" in name or "c_fc.weight" in name)
    turned, module = "c_fc" in name, name.removesuffix(".weight")
    inputs, outputs = arrays[name].shape if turned else arrays[name].shape[::-1]
    pair = {"lora_A": np.ones((1, inputs)), "lora_B": np.ones((outputs, 1))}
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    tensors = {f"base_model.model.{module}.{each}.weight": a for each, a in pair.items()}
    save_file(tensors, adapter / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "fan_in_fan_out": turned}
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    audit_checkpoint(adapter, base=base, quiet=True)
    assert calls == {"read_checkpoint": 1, "map_checkpoint": 2, "check_shapes": 2}
    stored = {name: count for (name, _), count in numbers.items() if "lora_" not in name}
    assert stored == {name: array.size for name, array in arrays.items()}


def test_several_checkpoints_share_the_measures_of_their_base():
    base = make.synthetic("bert")[0]
    one, two = ({k: np.float32(by) * a for k, a in base.items()} for by in (1.01, 1.02))
    both = audit_checkpoint(one, two, base=base, heads=make.HEADS, quiet=True)
    alone = audit_checkpoint(two, base=base, heads=make.HEADS, quiet=True)
    assert both.found[1].to_dict() == alone.found[0].to_dict()
