import subprocess
import sys

import numpy as np
import pytest

from finetti.boolean import And, Parity, TruthTable, compile_rule
from finetti.core.errors import InputError

D = "deterministic"
# Every input another number of times, so that no two can be exchanged.
REPEATED = f"maj({', '.join(', '.join([f'x{i}'] * (i + 1)) for i in range(17))})"
MARGINS = (0.0, 0.5, float("inf"), float("nan"), "a", True)
RANDOM_RULE = TruthTable(range(12), np.random.default_rng(0).integers(0, 2, 4096))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("x1 & x20", 10), "x20, outside the context of 10 bits, x0 to x9"),
        (("x1", 0), "at least 1"),
        (("x1", 10.5), "whole number"),
        (("x1", 10**9), "tables over 1000000000 bits take"),
        ((lambda bits: bits[0], 10), "a BooleanFunction or an expression"),
        (("x1 & x2", 10, "bags"), "deterministic, trained, bag"),
        (("x1 & x2", 10, "bag", "hadamard"), "orthonormal nor random"),
        (("x0", True), "whole number"),
    ],
)
def test_refused_by_name(arguments, words):
    with pytest.raises(InputError, match=words):
        compile_rule(*arguments)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("x1 & x2", 10), {"width": 8}, "at least 13"),
        (("x1 & x2", 10, D, "random"), {"width": 3}, "leaves no room"),
        (("x1 & x2 & x3", 10, D, "random"), {"width": 5}, "linearly dependent"),
        (("x1 & x2 & x3 & x4", 500, "bag", "random"), {"width": 9}, "sparsity 4 is above what"),
        (("x1 & ~x2", 500, D, "random"), {"width": 6}, "is above what width 6"),
        *((("x1", 10), {"margin": margin}, f"margin {margin!r} is not") for margin in MARGINS),
        *((("x1", 10), {"width": width}, f"width {width!r} is not a dim") for width in ("9", 9.5)),
        *((("x1", 10), {"seed": seed}, f"seed {seed!r} is not a whole") for seed in (-1, 1.5)),
    ],
)
def test_options_are_refused_by_name(arguments, options, words):
    with pytest.raises(InputError, match=words):
        compile_rule(*arguments, **options)


def test_an_index_outside_is_the_reason_for_vectors_of_ones_own_too():
    with pytest.raises(InputError, match="x20, outside"):
        compile_rule("x1 & x20", 10, basis=np.eye(10))


def test_every_reason_at_once():
    rule = TruthTable(range(20), np.ones(2**20) - (np.arange(2**20) == 5))
    with pytest.raises(InputError) as caught:
        compile_rule(rule, 18, width=9)
    said = str(caught.value)
    assert "for 3 reasons" in said
    for words in ("(1) it uses x18, x19, outside", "(2) the matrices of its lookup", "(3) width 9"):
        assert words in said, said


def test_a_table_too_long_is_one_reason_among_others():
    text = " | ".join(f"x{2 * i} & x{2 * i + 1}" for i in range(13))
    with pytest.raises(InputError) as caught:
        compile_rule(text, 20, width=9, margin=0.5)
    for words in ("4 reasons", "x20, x21", "margin 0.5", "2^26 values", "width 9 is too small"):
        assert words in str(caught.value), str(caught.value)


def test_networks_of_gates_say_every_reason_at_once():
    with pytest.raises(InputError) as caught:
        compile_rule("(x1 | x2) & x20", 15, "bag", width=9, seed=-1, margin=0.5, gates=True)
    for words in (
        "5 reasons",
        "x20, outside",
        "seed -1",
        "margin 0.5",
        "no token for a bit that is 0",
        "width 9 is too small for 15",
    ):
        assert words in str(caught.value), str(caught.value)
    with pytest.raises(InputError) as caught:
        compile_rule(REPEATED, 15, width="a", seed=-2, gates=True)
    for words in ("4 reasons", "x15, x16", "width 'a'", "seed -2", "Split it"):
        assert words in str(caught.value), str(caught.value)


def test_lookups_are_refused_by_bytes_not_by_sparsity():
    assert compile_rule(RANDOM_RULE, 13).certificate.holds
    dense = TruthTable(range(18), np.ones(2**18) - (np.arange(2**18) == 5))
    with pytest.raises(InputError, match=r"GiB, above the limit of 2 GiB.*gates=True"):
        compile_rule(dense, 30)
    few = TruthTable(range(17), np.arange(2**17) == 5)  # one point: its lookup is small
    assert compile_rule(few, 30).check.exact


def test_a_random_basis_too_large_is_refused_by_bytes():
    with pytest.raises(InputError, match=r"random basis.*orthonormal"):
        compile_rule(And(range(50)), 10**7, basis="random", width=2000)


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (np.eye(5), "10 unit vectors"),
        (2 * np.eye(10), "other lengths"),
        (np.zeros((10, 0)), "10 unit vectors"),
    ],
)
def test_vectors_of_ones_own_are_checked(basis, words):
    with pytest.raises(InputError, match=words):
        compile_rule("x1 & x2", 10, basis=basis)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("(x1 | x2) & x30", 10), "x30, outside"),
        (("x1 & ~x1", 10), "constant"),
        (("(x1 | x2) & x3", 10, "bag"), "bag of vectors has no token for a bit that is 0"),
        (("(x1 | x2) & x3", 10, "bags"), "deterministic, trained, bag"),
        (("(x1 | x2) & x3", 10, D, "hadamard"), "neither orthonormal nor random"),
        (("(x1 | x2) & x3", 10, D, np.eye(5)), "of compile_rule must be .* 10 unit vectors"),
        (("(x1 | x2) & x3", 10, D, ["a"]), "of compile_rule must be .* 10 unit vectors"),
        (("(x1 | x2) & x3", 10**9), "tables of 2 reads over 1000000000 bits take"),
        ((REPEATED, 30), "Split it"),
        ((TruthTable((1, 2), [0, 1, 1, 3]), 30), "A table has no gates"),
        ((3, 30), "`rule` .* a BooleanFunction or an expression"),
    ],
)
def test_networks_of_gates_are_refused_by_name(arguments, words):
    with pytest.raises(InputError, match=words):
        compile_rule(*arguments, gates=True)


@pytest.mark.parametrize(
    ("rule", "options", "words"),
    [
        ("(x1 | x2) & x3", {"width": 5}, "too small for 300"),
        ("(x1 | x2) & x3", {"embedding": "trained", "width": 5}, "too small for 3"),
        ("(x1 & x2 & x3) | x4", {"basis": "random", "width": 8}, "above what width 8"),
        ("(x1 & x2 & x3) | x4", {"basis": "random", "width": 3}, "leaves no room"),
    ],
)
def test_options_of_gates_are_refused_by_name(rule, options, words):
    with pytest.raises(InputError, match=words):
        compile_rule(rule, 300, gates=True, **options)


def test_a_lookup_of_gates_is_refused_by_bytes():
    with pytest.raises(InputError, match="lookup of its block 1 take"):
        compile_rule(Parity(range(9000)), 9000, gates=True)


def test_the_room_and_its_compiler_need_no_jax():
    code = (
        "import sys; import finetti.boolean as b; c = b.compile_rule('x1 & ~x4', 50); "
        "str(c); str(c.explain()); b.compile_rule('(x1 | x2) & x3', 30, gates=True); "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
