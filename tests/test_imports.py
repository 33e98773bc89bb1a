"""The house has one direction: no circle of modules or folders, and no test above its room."""

import ast
import functools
import graphlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC, TESTS = ROOT / "src", ROOT / "tests"
FILES = [path for suffix in ("py", "pyi") for path in SRC.rglob(f"*.{suffix}")]
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ROOMS = [room.strip() for layer in CONTRACT[0]["layers"] for room in layer.split("|")]


def name_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path) for path in FILES}


def imported(path: Path, package: str = "") -> Iterator[str]:
    """The package's modules in all imports of a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: package.count(".") + 2 - node.level]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            yield from {name if name in MODULES else base for name in names} & MODULES


@functools.cache
def graph() -> dict[str, set[str]]:
    """Module → the modules that it imports; a lazy package imports what its stub names."""
    found: dict[str, set[str]] = {name: set() for name in MODULES}
    for path in FILES:
        name = name_of(path)
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        found[name] |= set(imported(path, package)) - {name}
    return found


def circle(edges: dict[str, set[str]]) -> str:
    """The first circle, or nothing."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return " → ".join(reversed(error.args[1]))
    return ""


def members(package: str) -> dict[str, set[str]]:
    """The graph of a package's modules and folders."""

    def member(name: str) -> str:
        return ".".join(name.split(".")[: package.count(".") + 2])

    edges: dict[str, set[str]] = {}
    for name, targets in graph().items():
        inside = {member(each) for each in targets if each.startswith(f"{package}.")}
        if name.startswith(f"{package}."):
            edges.setdefault(member(name), set()).update(inside - {member(name)})
    return edges


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_imported_in_a_circle(room):
    inside = {name for name in MODULES if f"{name}.".startswith(f"finetti.{room}.")}
    packages = {name for name in inside if any(each.startswith(f"{name}.") for each in inside)}
    circles = {circle({name: graph()[name] & inside for name in inside})}
    circles |= {circle(members(package)) for package in packages}
    assert circles == {""}


def test_a_circle_would_be_seen(tmp_path):
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == "a → b → c → a"
    from_stub = graph()["finetti.attention"]
    assert "finetti.attention.modules.attention_module" in from_stub
    file = tmp_path / "module.py"
    file.write_text(
        "if TYPE_CHECKING:\n    import finetti.core.linalg.norms\n"
        "def f():\n    from ..core import files, InputError\n    from .kernel import Kernel\n"
    )
    expected = {
        "finetti.core.linalg.norms",
        "finetti.core.files",
        "finetti.core",
        "finetti.kernels.kernel",
    }
    assert set(imported(file, "finetti.kernels")) == expected


@pytest.mark.parametrize("room", ROOMS)
def test_tests_of_a_room_import_no_room_above_it(room):
    above = ROOMS[: ROOMS.index(room)]
    found = [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in sorted((TESTS / room).rglob("*.py"))
        for name in imported(path)
        if name.split(".")[1:2] and name.split(".")[1] in above
    ]
    assert not found
