import subprocess
import sys

import numpy as np
import pytest

from finetti.boolean import TruthTable, compile, compose
from finetti.core.errors import InputError

D, ONB = "deterministic", "orthonormal"
LONG = " ^ ".join(f"x{i}" for i in range(300))
# Every input another number of times, so that no two can be exchanged.
REPEATED = f"maj({', '.join(', '.join([f'x{i}'] * (i + 1)) for i in range(17))})"
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
        (("x1 & x2", 10, "deterministic", "orthonormal", 8), "at least 13"),
        (("x1 & x2", 10, "deterministic", "random", 3), "leaves no room"),
        (("x1 & x2 & x3", 10, "deterministic", "random", 5), "linearly dependent"),
        (("x1 & x2 & x3 & x4", 500, "bag", "random", 9), "sparsity 4 is above what width 9"),
        (("x1 & ~x2", 500, "deterministic", "random", 6), "is above what width 6"),
        (("x1 & x2", 100, "bag", "random", 30, 0.1), "above the 0.1 asked for"),
        (("x1 & x2", 10, "bag", "random", None, 1.5), "not between 0 and 1"),
        (("x1 & x2", 10, "bag", "random", None, None, 0.0), "margin 0.0"),
        (("x1 & x2", 10, "bag", "random", None, None, 0.5), "margin 0.5 is not a finite number"),
        (("x1 & x2", 10, "bag", "random", None, None, float("inf")), "margin inf"),
        (("x1 & x2", 10, "bag", "random", None, None, float("nan")), "margin nan"),
        (("x1 & x2", 10, "bag", "random", None, None, "a"), "margin 'a'"),
        (("x1 & x2", 10, "bag", "random", None, None, True), "margin True"),
        (("x1 & x2", 10, "bag", "random", "9"), "width '9' is not a dimension"),
        (("x1 & x2", 10, "bag", "random", 9.5), "width 9.5 is not a dimension"),
        (("x1 & x2", 10, "bag", "random", None, "b"), "coherence 'b'"),
        (("x1 & x2", 10, "bag", "random", None, None, 1.0, -1), "seed -1"),
        (("x1 & x2", 10, "bag", "random", None, None, 1.0, 1.5), "seed 1.5"),
        (("x0", True), "whole number"),
    ],
)
def test_refused_by_name(arguments, words):
    with pytest.raises(InputError, match=words):
        compile(*arguments)


def test_an_index_outside_is_the_reason_for_vectors_of_ones_own_too():
    with pytest.raises(InputError, match="x20, outside"):
        compile("x1 & x20", 10, basis=np.eye(10))


def test_every_reason_at_once():
    with pytest.raises(InputError) as caught:
        compile(RANDOM_RULE, 10, "bag", "random", width=9, max_bytes=2**20)
    said = str(caught.value)
    assert "for 3 reasons" in said
    for words in ("(1) it uses x10, x11, outside", "(2) its lookup on", "(3) sparsity 12"):
        assert words in said, said


def test_a_table_too_long_is_one_reason_among_others():
    text = " | ".join(f"x{2 * i} & x{2 * i + 1}" for i in range(13))
    with pytest.raises(InputError) as caught:
        compile(text, 20, width=9, margin=0.5)
    for words in ("4 reasons", "x20, x21", "margin 0.5", "2^26 values", "width 9 is too small"):
        assert words in str(caught.value), str(caught.value)


def test_networks_of_gates_say_every_reason_at_once():
    with pytest.raises(InputError) as caught:
        compose("(x1 | x2) & x20", 15, "bag", width=9, seed=-1, margin=0.5)
    for words in (
        "5 reasons",
        "x20, outside",
        "seed -1",
        "margin 0.5",
        "no token for a bit that is 0",
        "width 9 is too small for 21",
    ):
        assert words in str(caught.value), str(caught.value)
    with pytest.raises(InputError) as caught:
        compose(REPEATED, 15, width="a", coherence=2)
    for words in ("4 reasons", "x15, x16", "width 'a'", "coherence 2", "Split it"):
        assert words in str(caught.value), str(caught.value)


def test_lookups_are_refused_by_bytes_not_by_sparsity():
    assert compile(RANDOM_RULE, 13).certificate.holds
    with pytest.raises(InputError, match=r"MiB, above the budget of 1 MiB.*compose"):
        compile(RANDOM_RULE, 13, max_bytes=2**20)
    dense = TruthTable(range(18), np.ones(2**18) - (np.arange(2**18) == 5))
    with pytest.raises(InputError, match=r"MiB, above the budget of 512 MiB"):
        compile(dense, 30)
    few = TruthTable(range(17), np.arange(2**17) == 5)  # one point: its lookup is small
    assert compile(few, 30).check.exact


def test_a_random_basis_too_large_is_refused_by_bytes():
    with pytest.raises(InputError, match=r"random basis.*orthonormal"):
        compile("x1 & x2 & x3", 10**5, basis="random", max_bytes=2**20)


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
        compile("x1 & x2", 10, basis=basis)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("(x1 | x2) & x30", 10), "x30, outside"),
        (("x1 & ~x1", 10), "constant"),
        (("(x1 | x2) & x3", 10, "bag"), "bag of vectors has no token for a bit that is 0"),
        (("(x1 | x2) & x3", 10, "bags"), "deterministic, trained, bag"),
        (("(x1 | x2) & x3", 10, D, "orthonormal", 5), "too small for 10"),
        (("(x1 | x2) & x3", 10, "trained", "orthonormal", 5), "too small for 3"),
        (("(x1 & x2 & x3) | x4", 300, D, "random", 8), "above what width 8"),
        (("(x1 & x2 & x3) | x4", 300, D, "random", 3), "leaves no room"),
        (("(x1 & x2 & x3) | x4", 300, D, "random", 30, 0.1), "above the 0.1 asked for"),
        (("(x1 | x2) & x3", 10, D, "hadamard"), "neither orthonormal nor random"),
        (("(x1 | x2) & x3", 10, D, np.eye(5)), "of compose must be .* 10 unit vectors"),
        (("(x1 | x2) & x3", 10, D, ["a"]), "of compose must be .* 10 unit vectors"),
        (("(x1 | x2) & x3", 10**9), "tables of 2 reads over 1000000000 bits take"),
        ((REPEATED, 30), "Split it"),
        ((f"({LONG}) & x5000", 6000, D, ONB, None, None, 1.0, 0, 2**16), "lookup of its block 1"),
        (("(x1 | x2) & x3", 10**5, D, "random", None, None, 1.0, 0, 2**10), "a random basis"),
        ((TruthTable((1, 2), [0, 1, 1, 3]), 30), "A table has no gates"),
        ((3, 30), "an expression, a parsed rule"),
    ],
)
def test_networks_of_gates_are_refused_by_name(arguments, words):
    with pytest.raises(InputError, match=words):
        compose(*arguments)


def test_the_room_and_its_compiler_need_no_jax():
    code = (
        "import sys; import finetti.boolean as b; c = b.compile('x1 & ~x4', 50); "
        "str(c); b.compose('(x1 | x2) & x3', 30); str(c.explain()); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
