"""What is too large for verdicts that are the same on every machine is refused in one sentence."""

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from finetti.boolean import And, Symmetric, TruthTable, compile_rule, load
from finetti.boolean.embeddings.weight_range import MAX_SCORE_LEAD, MAX_WEIGHT
from finetti.cli.main import app
from finetti.core.errors import InputError

pytestmark = pytest.mark.rounding

TOO_LARGE = [np.nan, np.inf, -np.inf, 1.001 * MAX_WEIGHT, -1e18, 1e300]


def with_number(tensors, name, number):
    array = tensors[name].copy()
    array.flat[-1] = number
    return {**tensors, name: array}


@pytest.mark.parametrize("gates", [False, True])
def test_a_file_with_a_weight_outside_is_refused_by_name(gates, tmp_path):
    made = compile_rule("(x1 | x2) & ~x3", 9, gates=gates)
    path = made.save(tmp_path / "rule.safetensors")
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    for name in tensors:
        for number in TOO_LARGE:
            save_file(with_number(tensors, name, number), path, metadata)
            with pytest.raises(InputError, match=r"numbers up to 1e\+06 in size.* has .*: divide"):
                load(path)
    own = "blocks.0.middle_bias"  # gates have numbers in a few places of other matrices only
    save_file(with_number(tensors, own, MAX_WEIGHT), path, metadata)
    assert load(path).function(np.ones(9, dtype=int)) == 0


def test_the_command_says_so_in_one_sentence_and_exits_2(tmp_path):
    path = compile_rule("x1 & ~x2", 6).save(tmp_path / "rule.safetensors")
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    save_file(with_number(load_file(path), "blocks.0.outer", 1e18), path, metadata)
    done = CliRunner().invoke(app, ["compile", "--check", str(path)])
    assert done.exit_code == 2
    assert "outer has 1e+18" in done.stderr
    assert done.stderr.count("\n") == 1
    described = '{"indices": [1, 2], "values": [0, 1e9, 0, 1]}'
    save_file(load_file(path), path, metadata)
    tensors = with_number(load_file(path), "blocks.0.outer", 1.0)
    save_file(tensors, path, {**metadata, "function": described})
    done = CliRunner().invoke(app, ["compile", "--check", str(path)])
    assert done.exit_code == 2
    assert "one is 1e+09" in done.stderr


def test_scores_further_apart_than_their_limit_are_refused():
    compiled = compile_rule("x1 & x4", 8, "bag")
    tables = compiled.network.float64
    # Bits outside the rule have score 0, as the bag has for bits that are 0: [CLS] leads.
    lead = float(np.log(tables.one[[1, 4], 0].max() / tables.always[0]))
    key = compiled.network.heads.key.copy()
    key[0, 3 + 7] = key[0, 3 + 1] * (1 + 2 * MAX_SCORE_LEAD / compiled.certificate.score_scale)
    loud = compiled.changed(key=key)
    assert lead < 1e-9
    for use in (loud.verify, lambda: loud.predict(np.zeros(8, dtype=int))):
        with pytest.raises(InputError, match=r"up to 60 above .* here it is 1[0-9]{2}"):
            use()


@pytest.mark.parametrize("embedding", ["deterministic", "trained", "bag"])
def test_rules_outside_are_refused_and_rules_at_the_limits_are_proven(embedding):
    for values, words in (
        ([0, 2 * MAX_WEIGHT, 1, 0], r"and one is 2e\+06"),
        ([0, 1, 0.5 / MAX_WEIGHT, 0], "and one is 5e-07"),
        ([0, 20, 10 / MAX_WEIGHT, 5], "20 stands beside 1e-05"),
    ):
        with pytest.raises(InputError, match=words):
            compile_rule(TruthTable((1, 3), values), 8, embedding)
        with pytest.raises(InputError, match=words):
            compile_rule("x1 & x3", 8, embedding).verify(TruthTable((1, 3), values))
    for values in ([MAX_WEIGHT, -1, 0, 7], [1, -1 / MAX_WEIGHT, 0, 1 / MAX_WEIGHT]):
        for length in (8, 40):
            check = compile_rule(TruthTable((1, 3), values), length, embedding).check
            assert check.proven
            assert check.error64 < 1e-12
    for values in (np.r_[MAX_WEIGHT * (np.arange(30) % 2), 1.0], np.linspace(-1, 1, 31)):
        assert compile_rule(Symmetric(range(30), values), 40, embedding).check.proven


def test_what_the_compiler_writes_stays_far_below():
    for compiled in (
        compile_rule(And(range(900)), 1000, "trained"),
        compile_rule("x1 & (x70 | ~x500)", 10**4, basis="random"),
        compile_rule("maj(x1, x2, x3)", 1000, "bag", "random", margin=1e4),
    ):
        arrays = (*compiled.network.heads, *compiled.network.lookup.arrays.values())
        assert max(np.abs(array).max() for array in arrays) < MAX_WEIGHT / 100


def test_more_bits_than_weights_can_tell_apart_are_refused():
    with pytest.raises(InputError, match="weights of 1200000, and weights end at 1e\\+06"):
        compile_rule(And(range(300_000)), 300_000, "trained")
