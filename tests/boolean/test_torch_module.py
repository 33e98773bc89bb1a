"""The written PyTorch module computes its rule, by itself: imported where this package is not."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from finetti.boolean import compile_rule  # noqa: E402
from finetti.boolean.network import weight_file  # noqa: E402
from finetti.boolean.verify.verification import make_verifier  # noqa: E402
from finetti.core.errors import InputError  # noqa: E402

RULE = "x3 & (x7 | ~x9)"
RULES = {
    "deterministic": lambda: compile_rule(RULE, 10),
    "trained": lambda: compile_rule(RULE, 10, "trained"),
    "bag": lambda: compile_rule(RULE, 10, "bag"),
    "random": lambda: compile_rule(RULE, 10, basis="random"),
    "symmetric": lambda: compile_rule("maj(x1, x5, x9)", 10),
    "gates": lambda: compile_rule("(x1 | x2) & ~(x3 ^ (x4 & x7))", 10, gates=True),
    "long": lambda: compile_rule(RULE, 60, basis="random"),
    "long-gates": lambda: compile_rule(RULE, 60, gates=True),
}
ALONE = """
import sys, importlib.util, pathlib, torch
torch.set_num_threads(1)
sys.modules.update(finetti=None, jax=None, safetensors=None)     # none can be imported
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    rule, bits = made.load_rule(), torch.load(path.with_suffix(".bits"))
    torch.save(rule(bits).detach(), path.with_suffix(".values"))
    rule.load_state_dict(torch.load(path.with_suffix(".pt")))
"""


def inputs(compiled):
    """All of them; of many bits those of the certificate, the worst choices of the others."""
    length = compiled.context_length
    if length <= 10:
        return (np.arange(2**length)[:, None] >> np.arange(length)) & 1
    verifier = make_verifier(compiled.network)
    trials = verifier.choose_inputs(verifier.comparable(compiled.function))
    rows = []
    for _, others in verifier.batches(compiled.network.float64, trials):
        for row, setting in enumerate(trials.settings):
            bits = np.array(others(row))
            bits[list(trials.tried)] = setting
            rows.append(bits)
    return np.array(rows)


def test_in_a_process_of_its_own_it_is_right_on_every_input(tmp_path):
    rules = {name: make() for name, make in RULES.items()}
    for name, compiled in rules.items():
        assert compiled.certificate.holds
        weights, module = compiled.save_torch(tmp_path / f"{name}.pt")
        assert module == weights.with_suffix(".py")
        state = torch.load(weights)
        assert set(state) == set(compiled.weights)
        for key, matrix in compiled.weights.items():
            np.testing.assert_array_equal(state[key], matrix)
        torch.save(torch.tensor(inputs(compiled)), tmp_path / f"{name}.bits")
    subprocess.run([sys.executable, "-c", ALONE, tmp_path], check=True)
    for name, compiled in rules.items():
        values = torch.load(tmp_path / f"{name}.values").numpy()
        bits = torch.load(tmp_path / f"{name}.bits").numpy()
        assert len(values) >= 8, name
        np.testing.assert_allclose(values, compiled.function(bits), atol=1e-9, err_msg=name)


def test_a_hook_sees_the_attention_and_may_replace_it(tmp_path):
    from finetti.boolean.network.rule_in_torch import load_rule

    compiled = compile_rule("x1 & x4", 6)
    rule = load_rule(compiled.save_torch(tmp_path / "rule.pt")[0])
    bits, seen = torch.tensor([0, 1, 0, 0, 1, 0]), []
    handle = rule.blocks[0].pattern.register_forward_hook(
        lambda module, given, pattern: seen.append(pattern.detach())
    )
    assert abs(rule(bits).item() - 1) < 1e-9
    handle.remove()
    drawn = compiled.explain(bits.numpy()).attention  # x0, …, x5, [CLS]
    found = seen[0].numpy().reshape(-1, 7)  # of [CLS], x0, …, x5
    np.testing.assert_allclose(np.roll(found, -1, -1), np.reshape(drawn, (-1, 7)), atol=1e-12)
    rule.blocks[0].pattern.register_forward_hook(
        lambda module, given, pattern: torch.full_like(pattern, 1 / 7)
    )
    assert abs(rule(bits).item() - 1) > 0.1  # what looks everywhere knows nothing
    rule(torch.zeros(3, 6, dtype=torch.int64)).sum().backward()
    assert rule.blocks[0].inner_bias.grad.abs().max() > 0


def test_places_that_will_not_do(tmp_path, monkeypatch):
    compiled = compile_rule("x1 & x4", 6)
    with pytest.raises(InputError, match=r"a name that ends in \.pt"):
        compiled.save_torch(tmp_path / "rule.safetensors")
    monkeypatch.setattr(weight_file.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"without PyTorch, which is not installed"):
        compiled.save_torch(tmp_path / "rule.pt")
    assert not list(tmp_path.iterdir())
