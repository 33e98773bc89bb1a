"""One name, one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import finetti

ROOT = Path(finetti.__file__).parent
# The PyTorch twins of the family keep its names.
TWINS = ROOT / "torch"
MODULES = {
    path: ast.parse(path.read_text())
    for path in sorted(ROOT.rglob("*.py"))
    if TWINS not in path.parents
}


def defined(*kinds):
    """Public names of that kind, and the files that define them."""
    places = defaultdict(list)
    for path, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, kinds) and not node.name.startswith("_") and not overload(node):
                places[node.name].append(str(path.relative_to(ROOT)))
    return places


def overload(node):
    """A further signature of the function below it."""
    return any(getattr(each, "id", "") == "overload" for each in node.decorator_list)


def test_every_class_has_a_name_of_its_own():
    assert {name: at for name, at in defined(ast.ClassDef).items() if len(at) > 1} == {}


def test_what_users_import_has_a_name_of_its_own():
    places = defined(ast.ClassDef, ast.FunctionDef)
    exported = defaultdict(list)
    for stub in sorted(ROOT.rglob("__init__.pyi")):
        if stub.parent in (TWINS, ROOT):  # the front door has names of its rooms
            continue
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    exported[alias.asname or alias.name].append(str(stub.relative_to(ROOT)))
    twice = {
        name: (stubs, places[name])
        for name, stubs in exported.items()
        if len(stubs) > 1 or len(places[name]) > 1
    }
    assert twice == {}
