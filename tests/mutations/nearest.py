"""Which tests are run for a mutant: those nearest to its function come first."""

import ast
import re
import tomllib
from functools import cache

from .mutant import PACKAGE, ROOT, Mutant

CLAIMS = "tests/mutations/claims_of_file.py"


def nearest_tests(mutant: Mutant, most: int) -> list[str]:
    """At most so many files of tests, nearest first.

    The examples in the docstrings of the file come first, and the claims that it measures, with
    their controls. Then come the tests of its subpackage, of those above it, and the pages, sorted
    by how often they name the function, what is defined beside it, and what uses that. Outside of
    its own subpackage only files that name something are run.
    """
    path = ROOT / PACKAGE / mutant.file
    text = path.read_text("utf-8")
    above = rooms_above(mutant.subpackage)
    own_names = set(_definitions(text))
    words = dict.fromkeys(_users(path.stem, own_names), 5.0)
    words |= dict.fromkeys(own_names, 10.0) | {path.stem: 3.0}
    first, *inner = mutant.function.split(".")
    words |= {name: 5.0 for name in inner if not name.startswith("_")}
    words |= {} if first.startswith("_") else {first: 100.0}
    found = []
    for name, tests in _tests().items():
        room = name.split("/")[1]
        own = room == mutant.subpackage
        named = set(re.findall(r"\w+", tests)) & set(words) - (set() if own else {path.stem})
        weight = sum(words[each] for each in named)
        if own or (weight >= 10 and (room in above or name.startswith("docs"))):
            found.append(
                (
                    -weight * (3 if own or room == "conformance" else 1) * (room in above or own),
                    len(tests),
                    name,
                )
            )
    begin = [f"src/finetti/{mutant.file}"] if ">>> " in text else []
    begin += [CLAIMS] if re.match(r"claims/\w+/", mutant.file) else []
    return (begin + [name for _, _, name in sorted(found)])[:most]


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


def _users(stem: str, names: set[str]) -> set[str]:
    """What is defined with these names in the modules that import this one."""
    naming = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    found = set()
    for source in _sources().values():
        if names and f"{stem} import" in source:
            found |= {name for name, text in _definitions(source).items() if naming.search(text)}
    return found


@cache
def _definitions(text: str) -> dict[str, str]:
    """The public functions and classes of a module, with their text."""
    lines = text.splitlines()
    return {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
