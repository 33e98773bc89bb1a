"""The stored mutants can be made in the code as it is, and a mutant that matters is found."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from .draw import NUMBER, file_mutants
from .mutant import PACKAGE, ROOT, Mutant, load_mutants
from .nearest import CLAIMS, nearest_tests
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


def test_the_nearest_tests_come_first() -> None:
    mutant = Mutant("core/linalg/norms.py", "dual_exponent", "sign", "return 1", "return 2")
    files = nearest_tests(mutant, 3)
    assert "tests/core/test_norms.py" in files[:2]
    assert nearest_tests(mutant, 1) == files[:1]
    mutant = Mutant("claims/exchangeability/head_sums.py", "_parabola", "sign", "a", "b")
    assert nearest_tests(mutant, 1) == [CLAIMS]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return (", 'if a:\n        raise RuntimeError("reached")\n        return ('),
        ("b,", 'if a:\n        raise RuntimeError("reached")\n        return ('),
        ("elif c:", 'def f(a, b, c):\n    raise RuntimeError("reached")\n    if a:'),
    ],
)
def test_an_error_stands_before_the_statement_of_the_line(line: str, expected: str) -> None:
    text = (
        "def f(a, b, c):\n    if a:\n        return (\n            b,\n        )\n"
        "    elif c:\n        pass\n"
    )
    changed = Mutant("x.py", "f", "sign", line, "0").interrupt(text)
    assert expected in changed
    ast.parse(changed)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("assert double(2) == 4", "killed"),
        ("assert double(0) == 0", "survived"),
        ("pass", "not reached"),
        ("assert double(2) == 5", "undecided"),
        ("import time; time.sleep(100 * (double(2) != 4))", "killed"),
    ],
)
def test_what_becomes_of_a_mutant(tmp_path: Path, body: str, outcome: str) -> None:
    """A small tree of its own: killed, survived, not reached, or red without the mutation, too."""
    package, tests = tmp_path / PACKAGE / "core", tmp_path / "tests" / "core"
    package.mkdir(parents=True)
    tests.mkdir(parents=True)
    (package / "doubled_number.py").write_text("def double(n):\n    return 2 * n\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tests / "test_double.py").write_text(
        "import runpy\n\ndef test_double():\n"
        f"    path = {str(package / 'doubled_number.py')!r}\n"
        f"    double = runpy.run_path(path)['double']\n    {body}\n"
    )
    mutant = Mutant("core/doubled_number.py", "double", "constant", "return 2 * n", "return 3 * n")
    # A process of its own: it forks, and here JAX may have threads already.
    code = (
        "from tests.mutations.__main__ import run_mutant; from pathlib import Path; "
        "from tests.mutations.mutant import Mutant; "
        f"found = run_mutant(Mutant(**{vars(mutant)!r}), "
        f"Path({str(tmp_path)!r}), ['tests/core/test_double.py'], set(), 10.0, 15.0); "
        "print(); print('outcome:', found['outcome'])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1].partition(",")[0] == f"outcome: {outcome}"
    assert (package / "doubled_number.py").read_text().endswith("2 * n\n")
