"""The stored mutants can be made in the code as it is, and a mutant that matters is found."""

import ast

import pytest

from .__main__ import choose_tests, nearest_files
from .draw import NUMBER, file_mutants
from .mutant import PACKAGE, ROOT, Mutant, load_mutants
from .operators import OPERATORS


@pytest.mark.parametrize("mutant", load_mutants(), ids=lambda each: f"{each.file}:{each.function}")
def test_every_stored_mutant_applies_and_parses(mutant: Mutant) -> None:
    """Where it does not, code has moved: `python -m tests.mutations.draw` finds another."""
    text = (ROOT / PACKAGE / mutant.file).read_text("utf-8")
    changed = mutant.mutate(text)
    assert changed != text
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


def test_enough_mutants_of_every_operator() -> None:
    mutants = load_mutants()
    assert len(mutants) >= NUMBER
    assert {each.operator for each in mutants} >= set(OPERATORS)


def test_operators_on_a_small_function() -> None:
    text = (
        "def f(a, b):\n    if a < 1:\n        raise ValueError\n    return g(a[1:], b) * 2.0 - b\n"
    )
    found = {(each.operator, each.new) for each in file_mutants(text, "x.py")}
    assert found == {
        ("comparison", "if a <= 1:"),
        ("constant", "if a < 2:"),
        ("dropped check", "if False:"),
        ("sign", "return (g(a[1:], b) * 2.0) + b"),
        ("missing factor", "return g(a[1:], b) - b"),
        ("missing factor", "return 2.0 - b"),
        ("constant", "return g(a[1:], b) * 4.0 - b"),
        ("constant", "return g(a[2:], b) * 2.0 - b"),
        ("off by one", "return g(a[1 + 1:], b) * 2.0 - b"),
        ("swapped arguments", "return g(b, a[1:]) * 2.0 - b"),
    }


def test_a_line_that_is_gone_is_refused() -> None:
    with pytest.raises(LookupError, match="not there"):
        Mutant("x.py", "f", "sign", "return 1", "return 2").mutate("def f():\n    return 3\n")


def test_tests_that_reach_a_function_come_first_then_those_beside_them() -> None:
    mutant = Mutant("core/norms.py", "f", "sign", "return 1", "return 2")
    reach = ["tests/core/test_a.py::slow", "tests/core/test_a.py::quick", "tests/cli/test_b.py::c"]
    times = dict(zip(reach, (9.0, 1.0, 0.1), strict=True))
    times |= {"tests/core/test_a.py::beside": 0.2, "tests/core/test_d.py::other": 0.1}
    times["tests/core/test_a.py::fails"] = float("inf")
    known = {"reach": {mutant.file: {"f": reach}}, "times": times, "measured": ["tests/core"]}
    everything = [reach[1], reach[0], reach[2], "tests/core/test_a.py::beside"]
    assert choose_tests(mutant, known, 90.0) == (everything, 3)
    assert choose_tests(mutant, known, 2.0) == ([reach[1], reach[2], everything[3]], 3)


def test_without_a_map_files_that_name_the_module_come_first() -> None:
    mutant = Mutant("core/norms.py", "f", "sign", "return 1", "return 2")
    files = nearest_files(mutant)
    assert files[0] == "tests/core/test_norms.py"
    assert choose_tests(mutant, {"measured": []}, 90.0) == (files, len(files))
