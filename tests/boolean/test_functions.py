import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.boolean import (
    And,
    Exactly,
    Majority,
    Or,
    Parity,
    Symmetric,
    Threshold,
    TruthTable,
    relevant_indices,
    simplify,
    spectrum,
)
from finetti.boolean.language.rule import all_bits, binary_array
from finetti.boolean.language.simplify import find_profile
from finetti.core.errors import InputError

BITS = all_bits(6)
tables = st.integers(0, 4).flatmap(
    lambda s: st.tuples(
        st.permutations(range(6)).map(lambda order: tuple(order[:s])),
        st.lists(st.integers(0, 3), min_size=2**s, max_size=2**s),
    )
)


@pytest.mark.parametrize(
    ("function", "python"),
    [
        (And((1, 4)), lambda b: b[1] and b[4]),
        (Or((0, 2, 5)), lambda b: b[0] or b[2] or b[5]),
        (Parity((0, 1, 5)), lambda b: (b[0] + b[1] + b[5]) % 2),
        (Majority((0, 1, 2, 3)), lambda b: sum(b[:4]) > 2),
        (Threshold((0, 1, 2, 3), 2), lambda b: sum(b[:4]) >= 2),
        (Exactly((5, 3, 1), 2), lambda b: b[5] + b[3] + b[1] == 2),
        (TruthTable((5, 0), [0.5, -1, 2, 7]), lambda b: [0.5, -1, 2, 7][2 * b[5] + b[0]]),
    ],
)
def test_families_are_what_python_says(function, python):
    wanted = [float(python([int(bit) for bit in row])) for row in BITS]
    assert function(BITS).tolist() == wanted
    assert function(BITS[9]) == wanted[9]
    assert function(BITS.reshape(8, 8, 6)).shape == (8, 8)
    assert simplify(function)(BITS).tolist() == wanted


@given(tables)
def test_simplification_keeps_the_function_and_only_what_matters(drawn):
    function = TruthTable(*drawn)
    smaller = simplify(function)
    values = function(BITS)
    assert (smaller(BITS) == values).all()
    assert list(smaller.indices) == sorted(smaller.indices)
    for index in range(6):
        flipped = BITS.copy()
        flipped[:, index] ^= 1
        assert (index in smaller.indices) == bool((function(flipped) != values).any())


@given(tables)
def test_symmetry_is_invariance_under_permutations(drawn):
    function = TruthTable(*drawn)
    s = function.sparsity
    cube = function.table().reshape((2,) * s)
    swaps = [np.swapaxes(cube, i, i + 1) for i in range(s - 1)]
    assert (find_profile(function) is not None) == all((cube == each).all() for each in swaps)


@given(tables)
def test_spectrum_inverts_and_influences_agree_with_it(drawn):
    function = TruthTable(*drawn)
    found = spectrum(function)
    sets = all_bits(function.sparsity).astype(int)
    signs = (-1.0) ** (sets @ sets.T)
    np.testing.assert_allclose(signs @ found.coefficients, function.table(), atol=1e-12)
    for j, influence in enumerate(found.influences):
        flipped = sets.copy()
        flipped[:, j] ^= 1
        assert influence == (function.evaluate(flipped) != function.table()).mean()
    values = np.unique(function.table())
    if len(values) == 2:  # for two values, Inf_j = 4Σ_{S∋j} f̂(S)²/(a − b)²
        powers = 4 * found.coefficients**2 / (values[1] - values[0]) ** 2
        np.testing.assert_allclose(powers @ sets, found.influences, atol=1e-12)
        assert found.total_influence == pytest.approx(found.influences.sum())


def test_spectrum_of_known_functions():
    assert spectrum(Parity((2, 5, 9))).coefficient(2, 5, 9) == -0.5
    assert spectrum(Parity((2, 5, 9))).coefficient(2, 4) == 0
    assert [spectrum(f).degree for f in (And((1, 2, 3)), Symmetric((), [2]))] == [3, 0]
    assert spectrum(Majority((0, 1, 2))).influences.tolist() == [0.5] * 3
    shown = str(spectrum(And((3, 7))))
    assert "x3 x7" in shown
    assert "total influence" in shown


def test_wide_symmetric_functions_need_no_table():
    wide = And(range(5000))
    assert relevant_indices(wide) == tuple(range(5000))
    assert relevant_indices(Threshold(range(5000), 0)) == ()
    with pytest.raises(InputError, match="2\\^5000"):
        wide.table()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: And((1, 1)), "distinct"),
        (lambda: And((-1, 1)), "counted from 0"),
        (lambda: And((0.5,)), "integers"),
        (lambda: TruthTable((1, 2), [0, 1, 1]), r"2\^2"),
        (lambda: TruthTable((1,), [0, np.nan]), "finite"),
        (lambda: TruthTable(range(30), [0]), "at most 22"),
        (lambda: Symmetric((1, 2), [0, 1]), "3 finite numbers"),
        (lambda: And((7,))([0, 1]), "T > 7"),
        (lambda: And((1,))([[0, 2]]), "zeros and ones"),
        (lambda: And((1,))(["0", "1"]), "zeros and ones"),
        (lambda: And((1,))(np.ones(2, dtype=complex)), "array of complex128"),
        (lambda: And((1,))(np.array([0, 1], dtype=object)), "array of object"),
        (lambda: Threshold((1, 2, 3), 1.5), "a whole number. Got 1.5"),
        (lambda: Exactly((1, 2), 2.7), "a whole number. Got 2.7"),
        (lambda: Exactly((1, 2), True), "a whole number. Got True"),
        (lambda: Threshold((1, 2), "2"), "a whole number. Got '2'"),
    ],
)
def test_wrong_use_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("values", [[0, float("nan")], [1j, 0], ["a", "b"], [1, 2, 3]])
def test_a_table_of_no_numbers_is_refused(values):
    with pytest.raises(InputError, match="2\\^1 finite numbers"):
        TruthTable((1,), values)


def test_bits_may_be_floating_point_numbers():
    assert binary_array([0.0, 1.0, 1.0], "predict").tolist() == [0, 1, 1]
