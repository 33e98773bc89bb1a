"""Which tests are run for a mutant: those nearest to its function come first."""

import ast
import re
import tomllib
from functools import cache

from .mutant import PACKAGE, ROOT, Mutant

CLAIMS = "tests/mutations/claims_of_file.py"


def nearest_tests(mutant: Mutant, most: int) -> list[str]:
    """At most so many files of tests, nearest first.

    The examples in the docstrings of the file come first, and its claims with their controls if it
    states some. Then come the tests of its subpackage, of those above it, and the pages, sorted by
    how often they name the function, what is defined beside it, and what is defined in the modules
    that import it. Outside of its own subpackage only files that name something are run.
    """
    path = ROOT / PACKAGE / mutant.file
    text = path.read_text("utf-8")
    above = rooms_above(mutant.subpackage)
    users = {name for name, source in _sources().items() if f"{path.stem} import" in source}
    words = {name: 1.0 for user in users for name in _public(_sources()[user])}
    words |= dict.fromkeys(_public(text), 10.0) | {path.stem: 3.0}
    words |= {name: 100.0 for name in mutant.function.split(".") if not name.startswith("_")}
    found = []
    for name, tests in _tests().items():
        room = name.split("/")[1]
        own = room == mutant.subpackage
        named = set(re.findall(r"\w+", tests)) & set(words) - (set() if own else {path.stem})
        weight = sum(words[each] for each in named)
        if own or (weight >= 10 and (room in above or name.startswith("docs"))):
            found.append((-weight * (3 if own else 1), len(tests), name))
    first = [f"src/finetti/{mutant.file}"] if ">>> " in text else []
    first += [CLAIMS] if "@claim(" in text else []
    return (first + [name for _, _, name in sorted(found)])[:most]


@cache
def rooms_above(subpackage: str) -> frozenset[str]:
    """The subpackages that may use this one, and the folder of common suites."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = [layer.split(" | ") for layer in contracts["contracts"][0]["layers"]]
    own = next((at for at, layer in enumerate(layers) if subpackage in layer), 0)
    return frozenset({"conformance", *(room for layer in layers[:own] for room in layer)})


@cache
def _tests() -> dict[str, str]:
    """The text of every file of tests and of every page with examples."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "docs").rglob("*.md")]
    names = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(files)}
    return {
        name: text
        for name, text in names.items()
        if not name.startswith("tests/mutations/") and (name.endswith(".py") or ">>> " in text)
    }


@cache
def _sources() -> dict[str, str]:
    files = (ROOT / PACKAGE).rglob("*.py")
    return {str(path): path.read_text("utf-8") for path in files}


@cache
def _public(text: str) -> frozenset[str]:
    names = (getattr(node, "name", "_") for node in ast.parse(text).body)
    return frozenset(name for name in names if not name.startswith("_"))
