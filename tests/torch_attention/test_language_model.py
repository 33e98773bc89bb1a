"""SmolLM2-135M, a real model, from the file of GGUF that `make checkpoints` brings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from checkpoints import GGUF, needs_language_model  # noqa: E402
from finetti.torch import attention_options, register, variances  # noqa: E402

FILE = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf", "local_files_only": True}
TEXT = "A query, several keys and their values: attention reads the values of the keys that"
# Loading the model takes half a minute.
pytestmark = [needs_language_model, pytest.mark.slow]


@pytest.fixture(scope="module")
def model():
    register()
    load = transformers.AutoModelForCausalLM.from_pretrained
    return load(GGUF, **FILE, dtype=torch.float32, attn_implementation="finetti_softmax").eval()


@torch.no_grad()
def test_a_real_model_with_our_softmax_says_the_same(model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(GGUF, **FILE)
    tokens = tokenizer(TEXT, return_tensors="pt")
    assert model.config._attn_implementation == "finetti_softmax"
    found = []
    for implementation in ("finetti_softmax", "eager"):
        model.set_attn_implementation(implementation)
        logits = model(**tokens).logits
        text = model.generate(**tokens, max_new_tokens=8, do_sample=False)
        found.append((logits, tokenizer.decode(text[0])))
    (logits, text), (wanted, expected) = found
    torch.testing.assert_close(logits, wanted, atol=2e-4, rtol=0)
    assert text == expected
    assert len(text) > len(TEXT) + 10
    # One layer reads by regression, with an error bar.
    model.set_attn_implementation("finetti_softmax")
    with attention_options(model, layers=[29], attention="cme"):
        output, bars = variances(model, **tokens)
    (bar,) = bars.values()
    assert bar.shape == (1, 9, tokens.input_ids.shape[1])
    assert ((bar >= 0) & (bar <= 1)).all()
    assert torch.isfinite(output.logits).all()
    assert (output.logits - logits).abs().max() > 1e-3


def test_the_example_learns_ridge_and_lengthscale(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "language_model.py"
    sizes = ["--layers=1", "--steps=2", "--length=32", "--texts=4", f"--out={tmp_path}"]
    command = [sys.executable, example, *sizes]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert run.returncode == 0, run.stderr
    assert "k = 1: no attention" in run.stdout
    assert '"after"' in (tmp_path / "results.json").read_text()
