"""Networks of gates: exact, proven, and what their certificates say."""

import json
import subprocess
import sys
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from finetti.boolean import And, Parity, compile_rule, load, parse
from finetti.boolean.compiler.compiler_options import BASES
from finetti.boolean.language.gate_graph import split
from finetti.boolean.language.rule import all_bits
from finetti.bounds import Sample
from finetti.bounds.sparse_variables import MultiHeadClass, MultiHeadCovering
from finetti.core.errors import InputError

DEEP = "~((x1 | x2) & (x3 | ~x4)) ^ maj(x1 & x5, x6 & x7, (x0 | x2) & x3)"
RULES = [
    ("(x1 | x2 | x3) & (x4 | ~x5) & maj(x6, x7, x8)", 2),
    ("((x0 | x1) & (x2 | x3)) ^ ((x4 | x5) & (x6 | x7))", 3),
    ("maj((x0 ^ x1) & x2, ~(x3 & ~x4) | x5, exactly(1; x6, x7, ~x8))", 3),
    (DEEP, 4),
    ("~x3", 1),
    ("~(x1 & x2)", 2),
    ("atleast(2; x1 ^ x2, x3, ~x4, 1)", 2),
    ("atleast(4; x1, x1, x1, x2, x2, ~x3, x4) & (x5 | x6)", 2),  # inputs that count several times
]


def and_of_ors(n_gates, n_inputs):
    groups = (range(g * n_inputs, (g + 1) * n_inputs) for g in range(n_gates))
    return " & ".join("(" + " | ".join(f"x{i}" for i in group) + ")" for group in groups)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("embedding", ["deterministic", "trained"])
@pytest.mark.parametrize(("text", "depth"), RULES)
def test_exact_on_all_inputs(text, depth, embedding, basis):
    compiled = compile_rule(text, 9, embedding, basis, gates=True)
    bits = all_bits(9)
    assert compiled.network.depth == depth
    assert compiled.certificate.check.complete
    assert compiled.certificate.check.error_bound < 1e-12  # proven by intervals as well
    assert compiled.certificate.holds
    np.testing.assert_allclose(compiled.predict(bits), parse(text)(bits), atol=1e-12)
    np.testing.assert_allclose(compiled.predict(bits, np.float32), parse(text)(bits), atol=1e-4)


def test_depth_three_at_a_thousand_bits():
    text = " | ".join(f"({and_of_ors(3, 4)})".replace("x", f"x{k}") for k in (1, 2, 3, 4))
    compiled = compile_rule(text, 1000, basis="random", gates=True)
    certificate = compiled.certificate
    assert compiled.network.depth == 3
    assert len(certificate.indices) == 48
    assert certificate.holds
    rng = np.random.default_rng(0)
    bits = (rng.random((500, 1000)) < 0.25).astype(np.uint8)
    wanted = compiled.function(bits)
    assert 0.1 < wanted.mean() < 0.9
    np.testing.assert_allclose(compiled.predict(bits), wanted, atol=1e-9)


def test_sparsity_counts_per_gate():
    """50 relevant bits, no gate of more than 10: far beyond any table of 2^50 settings."""
    compiled = compile_rule(and_of_ors(10, 5), 1000, basis="random", gates=True)
    certificate = compiled.certificate
    assert certificate.holds
    assert max(gate.sparsity for gate in certificate.gates) == 10
    assert "of 2^50 settings" in certificate.check.method
    assert "every number of ones in every gate" in certificate.check.method
    assert "64 random" in certificate.check.method
    rng = np.random.default_rng(0)
    bits = (rng.random((400, 1000)) < 0.35).astype(np.uint8)
    wanted = compiled.function(bits)
    assert 0.1 < wanted.mean() < 0.9  # the inputs decide something
    np.testing.assert_allclose(compiled.predict(bits), wanted, atol=1e-9)
    rows = scipy.sparse.csr_array(bits)
    np.testing.assert_allclose(compiled.predict(rows), wanted, atol=1e-9)


def test_wide_gates_with_negations_need_no_table():
    parts = [f"{'~' * (i % 3 == 0)}x{i}" for i in range(60)]
    for text in (" | ".join(parts), " & ".join(parts), f"maj({', '.join(parts)})"):
        compiled = compile_rule(f"({text}) & (x60 | x61)", 80, gates=True)
        assert compiled.certificate.holds
        bits = np.random.default_rng(0).integers(0, 2, size=(200, 80), dtype=np.uint8)
        bits[:100, :60] = [i % 3 == 0 for i in range(60)]  # all literals 0
        bits[np.arange(60), np.arange(60)] ^= 1  # but one
        np.testing.assert_allclose(compiled.predict(bits), compiled.function(bits), atol=1e-9)


def test_equal_gates_share_their_units():
    made = [compile_rule(and_of_ors(count, 5), 100, gates=True).network for count in (2, 20)]
    one, many = (network.blocks[0].lookup for network in made)
    assert one.middle.shape == many.middle.shape == (5, 2)
    twice = split(parse("(x1 | x2) & x3 | (x1 | x2) & x4"))
    assert [gate.text for gate in twice].count("(x1 | x2)") == 1


LARGE = """
import pathlib
from finetti.boolean import compile_rule
for basis, length in (("orthonormal", 100_000), ("random", 30_000)):
    compiled = compile_rule({rule!r}, length, basis=basis, gates=True)
    assert compiled.certificate.holds
    assert compiled.certificate.check.proven
peak = int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
print(peak / 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thousand_relevant_bits_of_a_hundred_thousand():
    code = LARGE.format(rule=and_of_ors(20, 50))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.6  # GB: vectors written out would take 75 and 1.3


def test_long_contexts():
    for embedding, basis in (("deterministic", "random"), ("trained", "orthonormal")):
        compiled = compile_rule(
            "(x1 | x50000) & (x7 | ~x99999)", 100_000, embedding, basis, gates=True
        )
        assert compiled.certificate.holds
    assert compile_rule("(x1 | x50000) & (x7 | ~x999999)", 10**6, gates=True).certificate.holds


def test_margin_divides_the_error_of_every_gate():
    one, ten = (
        compile_rule(DEEP, 40, margin=margin, gates=True).certificate for margin in (1.0, 10.0)
    )
    assert one.asked_margin == 1.0
    assert ten.asked_margin == 10.0
    assert ten.margin >= 10
    assert ten.holds
    for small, large in zip(one.gates, ten.gates, strict=True):
        assert large.margin > 8 * small.margin > 8
        assert large.score_scale == pytest.approx(small.score_scale + np.log(10))
    assert not replace(ten, asked_margin=10 * ten.margin).holds


def test_the_certificate_has_every_norm_gap_and_capacity():
    compiled = compile_rule("(x1 | x2 | x3) & (x4 | ~x5)", 30, basis="random", gates=True)
    certificate = compiled.certificate
    names = [norm.name for norm in certificate.norms]
    for block in (1, 2):
        for part in ("W_Q‖_F", "W_K‖_F", "W_V‖_F", "W_C‖_F", "W_1‖_∞", "W_2‖_∞", "w‖_∞"):
            assert f"‖{part}, block {block}" in names
    weights = compiled.weights
    for norm in certificate.norms[:4]:  # measured without writing out what is written out here
        part = {"Q": "query", "K": "key", "V": "value", "C": "output"}[norm.name[3]]
        sizes = np.linalg.norm(weights[f"blocks.0.{part}"], axis=(1, 2))
        assert norm.value == pytest.approx(sizes.max())
    assert certificate.n_parameters == sum(array.size for array in weights.values())
    for proof in certificate.gates:
        assert proof.attention_mass == pytest.approx(1, abs=proof.head_error)
        assert proof.score_gap >= np.log(8 * 33 / proof.separation) * (1 - 1e-9)
    first = {name: weights[f"blocks.0.{name}"] for name in ("query", "key", "value", "output")}
    layer = MultiHeadClass.from_arrays(**first, query_norm=2**0.5)
    sample = Sample(1000, 33, input_norm=2**0.5)
    wanted = MultiHeadCovering(layer, min(1 / 6, 1 / 2)).evaluate(sample)
    assert certificate.capacities[0].log_value == pytest.approx(wanted.log_value)
    document = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
    assert document["holds"] is True
    assert document["gates"][2]["text"] == "(g0 & g1)"
    assert len(document["capacities"]) == document["depth"] == 2
    trained = compile_rule("(x1 | x2 | x3) & (x4 | ~x5)", 30, "trained", gates=True).certificate
    assert trained.norms[-1].name == "‖Pᵀ‖_{2,1}"
    assert trained.norms[-1].value == pytest.approx(5)
    assert trained.holds


def test_features_stay_within_the_errors_that_are_certified():
    compiled = compile_rule("(x1 | x2 | x3) & (x4 | ~x5)", 12, basis="random", gates=True)
    bits = all_bits(12)
    features, _ = next(compiled.network.float64.levels(compiled.network.float64.sums(bits)))
    wanted = 1 - 2 * bits[:, 1:4].mean(axis=1)
    worst = np.abs(features[:, 0, 0] - wanted).max()
    assert worst == pytest.approx(compiled.certificate.gates[0].head_error, rel=1e-9)


def test_gates_and_their_names():
    gates = split(parse("(x1 | x2) & ~(x3 & x3) & 1"))
    assert [gate.text for gate in gates] == ["(x1 | x2)", "(g0 & ~x3 & 1)"]
    assert [str(source) for source in gates[-1].sources] == ["g0", "x3"]
    shown = str(compile_rule("(x1 | x2) & x3", 12, gates=True))
    for words in ("2 blocks", "g1 = (g0 & x3)", "all 2^12 = 4096 inputs", "‖W_Q‖_F, block 2"):
        assert words in shown
    assert compile_rule("(x1 | x2) & x3", 12, gates=True).certificate.to_dict()["depth"] == 2
    single = str(compile_rule("x0", 1, gates=True))
    for words in ("1 block, 1 head, read by 1 gate token", "over 1 bit,", "at most 1 source"):
        assert words in single
    assert "1 bits" not in single


def test_one_gate_is_what_compile_makes_of_it():
    deep, flat = (compile_rule(And((1, 4, 7)), 9, gates=gates) for gates in (True, False))
    bits = all_bits(9)
    np.testing.assert_allclose(deep.predict(bits), flat.predict(bits), atol=1e-12)
    assert deep.network.depth == 1
    # One token more shares the attention: R = log(8(T + 1)/γ).
    scales = deep.certificate.gates[0].score_scale, flat.certificate.score_scale
    assert scales[0] == pytest.approx(scales[1] + np.log(10 / 9))


def test_explanation_shows_what_every_gate_reads(tmp_path):
    compiled = compile_rule("(x1 | x2 | x3) & (x4 | ~x5)", 400, basis="random", gates=True)
    bits = np.zeros(400, dtype=int)
    bits[[2, 5]] = 1
    seen = compiled.explain(bits)
    assert seen.value == pytest.approx(compiled.function(bits)) == 0
    assert [len(level) for level in seen.readings] == [3, 1]
    for readings, attention in zip(seen.readings, seen.attention, strict=True):
        np.testing.assert_allclose(attention.sum(axis=1), 1)
        for reading, row in zip(readings, attention, strict=True):
            assert set(np.argsort(-row)[: len(reading.places)]) == set(reading.places)
    assert [seen.name(place) for place in seen.readings[0][0].places] == [
        "x1 = 0",
        "x2 = 1",
        "x3 = 0",
    ]
    assert [reading.value for reading in seen.readings[0]] == pytest.approx([1, 0, 0])
    for block in (0, 1):
        total = np.sum([column for _, column in seen.columns(block)], axis=0)
        np.testing.assert_allclose(total, 1)
    for words in ("Block 2", "g2 = (g0 &", "x4 = 0"):
        assert words in str(seen)
    picture = seen.save(tmp_path / "seen.svg").read_text(encoding="utf-8")
    for words in ("Block 1", "g1, head 2", "x5 = 1", "397 other tokens"):
        assert words in picture
    wide = compile_rule(and_of_ors(30, 4), 150, gates=True).explain()
    assert wide.value == 1
    assert len(wide.columns(0)) <= 26
    assert "6 more are not listed" in str(wide)


@pytest.mark.parametrize("wrong", [[2] * 12, [0.5] * 12, [1, 0], ["1"] * 12, np.zeros((2, 12))])
def test_what_is_not_binary_is_refused(wrong):
    for gates in (True, False):
        made = compile_rule("(x1 | x2) & x3", 12, gates=gates)
        calls = [made.explain]
        if np.ndim(wrong) == 1:
            calls += [made.predict, made.module()]
        for call in calls:
            with pytest.raises(InputError, match=r"The `bits` argument of .* must be"):
                call(wrong)


def test_matrices_too_large_to_write_out_are_refused():
    compiled = compile_rule("(x1 | x2) & x3", 10**5, gates=True)
    for call in (lambda: compiled.weights, compiled.module):
        with pytest.raises(InputError, match=r"writes all matrices out, .* Use `predict`"):
            call()


def test_the_module_is_the_network():
    compiled = compile_rule(DEEP, 8, gates=True)
    found = eqx.filter_jit(compiled.module())(jnp.asarray(all_bits(8)))
    np.testing.assert_allclose(found, compiled.function(all_bits(8)), atol=1e-12)
    assert compiled.module().blocks[0].heads.n_heads == compiled.network.blocks[0].n_heads


def test_files(tmp_path):
    for embedding, basis in (("deterministic", "random"), ("trained", "orthonormal")):
        compiled = compile_rule(DEEP, 30, embedding, basis, margin=2.0, gates=True)
        path = compiled.save(tmp_path / "network.safetensors")
        loaded = load(path)
        bits = np.random.default_rng(0).integers(0, 2, size=(50, 30))
        np.testing.assert_allclose(loaded.predict(bits), compiled.predict(bits), atol=1e-12)
        assert loaded.certificate.holds
        assert loaded.certificate.embedding == embedding
        assert loaded.certificate.asked_margin == 2.0
        assert loaded.verify(DEEP).proven
        assert loaded.verify(f"({DEEP}) & (x20 | ~x20)").proven  # the same rule, written otherwise
        assert not loaded.verify("x1 & x2").exact


def test_wide_parities_are_proven_bump_by_bump():
    compiled = compile_rule(Parity(range(60)), 80, gates=True)
    assert compiled.check.proven
    assert compiled.check.error64 <= compiled.check.error_bound < 1e-9
    lookup = compiled.network.blocks[0].lookup
    assert lookup.outer.shape == (31, 2)  # 30 bumps, and the usual value
    narrow = lookup.inner_bias.copy()
    narrow[4] -= 3.0  # the second bump begins too late
    found = compiled.changed(inner_bias=narrow).verify()
    assert not found.proven
    assert found.counterexample is not None


@pytest.mark.parametrize(
    "rule",
    [
        "(x1 | x2) & (1 | (x3 & x4))",  # the last gate that is written is not the value
        "(x0 & x5) & (atleast(0; x1, x2) | (x3 ^ x4))",
        "((x1 & x2) & 0) | (x3 ^ x4) | (x5 & x6)",
        "(x1 & x2) ^ (x1 & x2) ^ (x3 | x4) ^ (x5 & ~x6)",
    ],
)
def test_gates_that_nothing_reads_are_left_out(rule, tmp_path):
    compiled = compile_rule(rule, 8, gates=True)
    assert compiled.certificate.check.proven
    read = {s.index for gate in compiled.network.gates for s in gate.sources if s.is_gate}
    assert read == set(range(len(compiled.network.gates) - 1))
    bits = all_bits(8)
    loaded = load(compiled.save(tmp_path / "network.safetensors"))
    np.testing.assert_allclose(loaded.predict(bits), parse(rule)(bits), atol=1e-9)
