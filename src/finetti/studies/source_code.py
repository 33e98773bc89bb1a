"""Where a kind lives: its source as it was hashed, and importing just that."""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import operator
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from finetti.core.errors import FinettiError, InputError
from finetti.core.files import read_file
from finetti.studies.trials import canonical_json, digest

PACKAGE = "finetti"
KIND_FORMS = "Write package.module:Name, or file.py:Name"
FINGERPRINT_DIGITS = 16  # of a hash, hexadecimal


@dataclass(frozen=True)
class SourceSnapshot:
    """A kind by name, with all that another process needs to load it. Plain data only.

    Args:
        reference: ``package.module:Name``, or ``file.py:Name`` without the folder, so that the ids
            of trials are the same wherever the file stands.
        fingerprint: hash of the user's source; empty for kinds of this package, whose ``version``
            speaks for them.
        files: module name → (path, source) of a ``file.py`` and of the modules beside it that it
            imports: a snapshot, so that editing them during a run changes nothing.
        versioned: whether the user's own ``code_version`` stands in the place of the hash.
        named: further snapshots, of the files that parameters name (a network, say), by the text
            that names them; see `using_sources`.
    """

    reference: str
    fingerprint: str = ""
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    versioned: bool = False
    named: "dict[str, SourceSnapshot]" = field(default_factory=dict)

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


_named_now: dict[str, SourceSnapshot] = {}


@contextmanager
def using_sources(source: SourceSnapshot) -> Iterator[None]:
    """Within the block, the files that parameters name are those that ``source`` brings along."""
    before = dict(_named_now)
    _named_now.update(source.named)
    try:
        yield
    finally:
        _named_now.clear()
        _named_now.update(before)


def find_source(
    kind: str, directory: str | Path, code_version: str | None = None, argument: str = "kind"
) -> SourceSnapshot:
    """Find the source of ``kind`` without running any of it; errors call it ``argument``.

    In a worker, what was planned is found, wherever the file is and whatever it says by now.
    """
    if kind in _named_now:
        return _named_now[kind]
    place, colon, name = kind.rpartition(":")
    if not (place and colon and all(part.isidentifier() for part in name.split("."))):
        raise InputError(f"The {argument} {kind!r} cannot be read. {KIND_FORMS}.")
    if place.endswith(".py"):
        path = (Path(directory) / place).absolute()
        if not path.is_file():
            raise InputError(
                f"The {argument} {kind!r} was not found: there is no file {path}. {KIND_FORMS}."
            )
        files = _closure(path.stem, path, path.parent)
        reference = f"{path.name}:{name}"
        fingerprint = code_version or _fingerprint(files)
        return SourceSnapshot(reference, fingerprint, files, bool(code_version))
    if not all(part.isidentifier() for part in place.split(".")):
        raise InputError(f"The {argument} {kind!r} cannot be read. {KIND_FORMS}.")
    package = place.partition(".")[0]
    if package == PACKAGE:
        return SourceSnapshot(kind, code_version or "", versioned=bool(code_version))
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
        return SourceSnapshot(kind, code_version or spec.origin or "", versioned=bool(code_version))
    # Only what belongs to the same package is the user's own; it is imported by name elsewhere.
    origin = Path(spec.origin)
    depth = place.count(".") + (origin.name == "__init__.py")
    root = origin.parents[depth]
    return SourceSnapshot(kind, _fingerprint(_closure(place, origin, root, package)))


def _fingerprint(files: dict[str, tuple[str, str]]) -> str:
    """Short enough to be read in a table, and copied from there as a ``code_version``."""
    texts = {name: text for name, (_, text) in files.items()}
    return digest(canonical_json(texts)).hex()[:FINGERPRINT_DIGITS]


def _closure(
    name: str, path: Path, root: Path, only: str | None = None
) -> dict[str, tuple[str, str]]:
    """The module ``name``, and what it and its imports import from below ``root``.

    ``only``: from this package.
    """
    found: dict[str, tuple[str, str]] = {}
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
            if top != PACKAGE and only in (None, top):
                todo += _files(imported, root)
    return dict(sorted(found.items()))


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


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None for what may change without changing it.

    That is a package on ``PYTHONPATH`` or installed as a link to its source, and what is none.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None  # half loaded, or a name that no module can have
    places = [*map(sysconfig.get_path, ("purelib", "platlib")), *site.getsitepackages()]
    folders = {Path(place).resolve() for place in (*places, site.getusersitepackages())}
    above = Path(spec.origin).resolve().parents if spec and spec.origin else ()
    if not folders.intersection(above):
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        # Some packages are installed under another name, which takes longer to find.
        owners = metadata.packages_distributions().get(package, [])
        return " ".join(f"{owner} {metadata.version(owner)}" for owner in owners) or None


WORKER_VARIABLE = "FINETTI_STUDY_WORKER"  # no study may start in a trial, or in the file of a kind


class SnapshotFinder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules of one snapshot, wherever their files are now."""

    def __init__(self, files: dict[str, tuple[str, str]]) -> None:
        self.files = files
        self.before = frozenset(sys.modules)  # what others have loaded is not the kind's doing
        self.folder = ""  # that was added to the path for it

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of the snapshot, or of a folder that holds some."""
        is_folder = any(name.startswith(f"{fullname}.") for name in self.files)
        if fullname not in self.files and not is_folder:
            return None
        origin, _ = self.files.get(fullname, ("snapshot", ""))
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=origin, is_package=self.is_package(fullname)
        )
        spec.has_location = fullname in self.files
        return spec

    def is_package(self, fullname: str) -> bool:
        """Whether modules can stand below this one."""
        path, _ = self.files.get(fullname, ("__init__.py", ""))
        return Path(path).name == "__init__.py"

    def get_source(self, fullname: str) -> str:
        """The source in the snapshot; tracebacks show its lines."""
        return self.files.get(fullname, ("", ""))[1]

    def get_code(self, fullname: str) -> Any:
        """The compiled source."""
        path, text = self.files.get(fullname, ("snapshot", ""))
        return compile(text, path, "exec", dont_inherit=True)


@contextmanager
def loading(source: SourceSnapshot, argument: str = "kind") -> Iterator[None]:
    """What a user's file raises is an error of ours that names it; errors call it ``argument``."""
    try:
        yield
    except FinettiError:
        raise
    except (Exception, SystemExit) as error:
        # A file that ends the process when it is imported is as wrong as one that raises.
        text = f"{type(error).__name__}: {error}".rstrip(".")
        raise InputError(f"The {argument} {source.reference} cannot be loaded: {text}.") from error


def load_object(source: SourceSnapshot, argument: str = "kind") -> Any:
    """Import what ``source`` names; errors call it ``argument``."""
    place, _, name = source.reference.rpartition(":")
    with loading(source, argument):
        module = import_snapshot(source) if source.is_file else importlib.import_module(place)
        try:
            return operator.attrgetter(name)(module)
        except AttributeError as error:
            try:
                own = defined_names(inspect.getsource(module))
            except (OSError, TypeError):  # a module without a source in Python
                own = [each for each in vars(module) if not each.startswith("_")]
            raise InputError(
                f"The {argument} {source.reference!r} was not found: {place} has no {name!r}. "
                f"It defines {', '.join(own) or 'nothing'}."
            ) from error


def defined_names(text: str) -> list[str]:
    """Return the public names that the top level of a file defines, in its order.

    >>> defined_names("import os\\ndef f(): ...\\nnet = (1, 2)\\n_own = 3\\nclass Net: ...")
    ['f', 'net', 'Net']
    """
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [each.id for each in targets if isinstance(each, ast.Name)]
    return [each for each in dict.fromkeys(found) if not each.startswith("_")]


def import_snapshot(source: SourceSnapshot) -> ModuleType:
    """The module of a ``file.py:Name``, from its snapshot."""
    before = os.environ.get(WORKER_VARIABLE)
    os.environ[WORKER_VARIABLE] = "1"
    try:
        module = _import_snapshot(source)
    finally:
        if before is None:
            del os.environ[WORKER_VARIABLE]
        else:
            os.environ[WORKER_VARIABLE] = before
    Strays(source).refuse()
    return module


def _import_snapshot(source: SourceSnapshot) -> ModuleType:
    finders = [each for each in sys.meta_path if isinstance(each, SnapshotFinder)]
    finder = next((each for each in finders if each.files == source.files), None)
    if finder is None:
        for each in finders:
            sys.meta_path.remove(each)
            if each.folder in sys.path:
                sys.path.remove(each.folder)
        finder = SnapshotFinder(source.files)
        sys.meta_path.insert(0, finder)
        folder = str(source.folder)
        if Path(folder).is_dir() and folder not in sys.path:
            finder.folder = folder
            sys.path.append(folder)  # for imports that only running the file reveals
    wanted = source.module
    for name, module in list(sys.modules.items()):
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        if isinstance(loader, SnapshotFinder) and loader is not finder:
            # The files were edited since: modules of an older snapshot are not this study's.
            del sys.modules[name]
        elif name == wanted and loader is not finder:
            raise InputError(
                f"A module called {name!r} is already loaded, so that {name}.py cannot be. "
                "Give the file another name."
            )
    return importlib.import_module(wanted)


class Strays:
    """Watches for modules beside the file of a kind that run without being in its snapshot.

    Which files a program imports by names that it computes is known only when it does so; their
    source is not in the ids of the trials, whose results would be stale after an edit.
    """

    def __init__(self, source: SourceSnapshot) -> None:
        self.source = source
        self.seen = -1
        if source.is_file:
            # The path may name the folder directly, or as the user did: through links.
            self.folders = {source.folder, source.folder.resolve()}
            self.prefixes = tuple(map(str, self.folders))

    def refuse(self) -> None:
        """Raise if there is such a module, and forget it, so that the next trial stands alone."""
        if not self.source.is_file or self.source.versioned or len(sys.modules) == self.seen:
            return
        finders = [each for each in sys.meta_path if isinstance(each, SnapshotFinder)]
        before = frozenset[str]().union(*(finder.before for finder in finders))
        known = {*before, *self.source.files}
        names = [name for name in list(sys.modules) if name not in known and self._is_beside(name)]
        for name in names:
            del sys.modules[name]
        self.seen = len(sys.modules)
        if names:
            raise InputError(
                f"{self.source.reference} imported {', '.join(sorted(names))} by a computed name "
                "or as compiled code, so that its source is not in the ids of the trials. Import "
                "it with an import statement, or set `code_version`."
            )

    def _is_beside(self, name: str) -> bool:
        file = getattr(sys.modules.get(name), "__file__", None)
        if not isinstance(file, str) or not file.startswith(self.prefixes):
            return False
        path = Path(file)
        module = path.parent / path.name.partition(".")[0]  # also of fast.cpython-311-x86_64.so
        places = [folder.joinpath(*name.split(".")) for folder in self.folders]
        return any(place in (path.parent, module) for place in places)
