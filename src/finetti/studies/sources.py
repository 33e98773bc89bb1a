"""Where a kind lives, the source and the packages it depends on, and the fingerprint of them."""

import ast
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from finetti.core.errors import InputError
from finetti.core.files import read_file
from finetti.studies.canonical import canonical_json, digest

PACKAGE = "finetti"
COMPUTED = "*"  # in the place of the name of a module that only running the file tells
KIND_FORMS = "Write package.module:Name, or file.py:Name"
FINGERPRINT_DIGITS = 16  # of a hash, hexadecimal


@dataclass(frozen=True)
class KindSource:
    """A kind by name, with all that another process needs to load it. Plain data only.

    Args:
        reference: ``package.module:Name``, or ``file.py:Name`` without the folder, so that the ids
            of trials are the same wherever the file stands.
        fingerprint: hash of the user's source; empty for kinds of this package, whose ``version``
            speaks for them.
        files: module name → (path, source) of a ``file.py`` and of the modules beside it that it
            imports: a snapshot, so that editing them during a run changes nothing.
        versioned: whether the user's own ``code_version`` stands in the place of the hash.
        imports: the packages outside of the snapshot that it may import; None if unknown.
    """

    reference: str
    fingerprint: str = ""
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    versioned: bool = False
    imports: tuple[str, ...] | None = None

    @property
    def is_file(self) -> bool:
        """Whether the kind stands in a file of the user's own."""
        return self.reference.rpartition(":")[0].endswith(".py")

    @property
    def module(self) -> str:
        """The name of the module of a ``file.py``."""
        return Path(self.reference.rpartition(":")[0]).stem

    @property
    def folder(self) -> Path:
        """Where a ``file.py`` stands."""
        return Path(self.files[self.module][0]).parent


def find_source(
    kind: str, directory: str | Path, code_version: str | None = None, argument: str = "kind"
) -> KindSource:
    """Find the source of ``kind`` without running any of it; errors call it ``argument``."""
    place, colon, name = kind.rpartition(":")
    if not (place and colon and all(part.isidentifier() for part in name.split("."))):
        raise InputError(f"The {argument} {kind!r} cannot be read. {KIND_FORMS}.")
    if place.endswith(".py"):
        path = (Path(directory) / place).absolute()
        if not path.is_file():
            raise InputError(
                f"The {argument} {kind!r} was not found: there is no file {path}. {KIND_FORMS}."
            )
        files, imports = _closure(path.stem, path, path.parent)
        reference = f"{path.name}:{name}"
        fingerprint = code_version or _fingerprint(files)
        return KindSource(reference, fingerprint, files, bool(code_version), imports)
    if not all(part.isidentifier() for part in place.split(".")):
        raise InputError(f"The {argument} {kind!r} cannot be read. {KIND_FORMS}.")
    package = place.partition(".")[0]
    if package == PACKAGE:
        return KindSource(kind, code_version or "", versioned=bool(code_version))
    try:
        spec = importlib.util.find_spec(place)
    except ImportError as error:
        raise InputError(
            f"The {argument} {kind!r} was not found: {error}. {KIND_FORMS}."
        ) from error
    if spec is None:
        raise InputError(
            f"The {argument} {kind!r} was not found: there is no module {place}. {KIND_FORMS}."
        )
    if code_version or not (spec.origin and spec.origin.endswith(".py")):
        return KindSource(kind, code_version or spec.origin or "", versioned=bool(code_version))
    # Only what belongs to the same package is the user's own; it is imported by name elsewhere.
    origin = Path(spec.origin)
    depth = place.count(".") + (origin.name == "__init__.py")
    root = origin.parents[depth]
    files, imports = _closure(place, origin, root, package)
    return KindSource(kind, _fingerprint(files), imports=imports)


def _fingerprint(files: dict[str, tuple[str, str]]) -> str:
    """Short enough to be read in a table, and copied from there as a ``code_version``."""
    texts = {name: text for name, (_, text) in files.items()}
    return digest(canonical_json(texts)).hex()[:FINGERPRINT_DIGITS]


def _closure(
    name: str, path: Path, root: Path, only: str | None = None
) -> tuple[dict[str, tuple[str, str]], tuple[str, ...] | None]:
    """The module ``name``, and what it and its imports import from below ``root``.

    ``only``: from this package. Also the packages from elsewhere; None if a name is computed.
    """
    found: dict[str, tuple[str, str]] = {}
    imports: set[str] = set()
    todo = [(name, path)]
    while todo:
        name, path = todo.pop()
        if name in found:
            continue
        try:
            # As text files are read, so that the fingerprint does not depend on line ends.
            text = read_file(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
            tree = ast.parse(text, str(path))
        except InputError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(f"The file {path} is not Python: {error}.") from error
        found[name] = (str(path), text)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for imported in _imports(tree, package):
            top = imported.partition(".")[0]
            imports.add(top)
            if top != PACKAGE and only in (None, top):
                todo += _files(imported, root)
    outside = imports - {name.partition(".")[0] for name in found} - {PACKAGE}
    return dict(sorted(found.items())), None if COMPUTED in imports else tuple(sorted(outside))


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """The full names of all modules that a file may import, wherever in the file it does so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".") if package else []
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            if base:
                yield base
            # `from package import name` imports a module where the name is one.
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            if called in ("__import__", "import_module"):
                match node.args:
                    case [ast.Constant(value=str(name))] if not name.startswith("."):
                        yield name
                    case _:
                        yield COMPUTED


def _files(name: str, root: Path) -> list[tuple[str, Path]]:
    """The files of a module and of the packages around it, as far as they stand below ``root``."""
    parts = name.split(".")
    files = []
    for depth in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:depth])
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                files.append((".".join(parts[:depth]), path))
                break
    return files


def installed_versions(names: Iterable[str]) -> list[list[str | None]] | None:
    """Name and version of each top-level package; None if one of them is not an installed one.

    The standard library goes without saying: its version is that of Python. A package on
    ``PYTHONPATH``, or installed as a link to its source, can change without changing its version.

    >>> installed_versions(["math", "json"])
    []
    """
    found: list[list[str | None]] = []
    places = [*map(sysconfig.get_path, ("purelib", "platlib")), *site.getsitepackages()]
    folders = {Path(place).resolve() for place in (*places, site.getusersitepackages())}
    for name in names:
        if name in sys.stdlib_module_names:
            continue
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None  # half loaded, or a name that no module can have
        version = None
        if spec is not None:
            above = Path(spec.origin).resolve().parents if spec.origin else ()
            version = _version_of(name) if folders.intersection(above) else None
            if version is None:
                return None
        found.append([name, version])
    return found


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        # Some packages are installed under another name, which takes longer to find.
        owners = metadata.packages_distributions().get(name, [])
        return " ".join(f"{owner} {metadata.version(owner)}" for owner in owners) or None
