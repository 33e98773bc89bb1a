"""Imports modules from the snapshot of a source: what was fingerprinted is what runs."""

import importlib
import importlib.abc
import importlib.machinery
import operator
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from finetti.core.errors import FinettiError, InputError
from finetti.studies.sources import KindSource

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
def loading(source: KindSource, argument: str = "kind") -> Iterator[None]:
    """What a user's file raises is an error of ours that names it; errors call it ``argument``."""
    try:
        yield
    except FinettiError:
        raise
    except (Exception, SystemExit) as error:
        # A file that ends the process when it is imported is as wrong as one that raises.
        text = f"{type(error).__name__}: {error}".rstrip(".")
        raise InputError(f"The {argument} {source.reference} cannot be loaded: {text}.") from error


def load_object(source: KindSource, argument: str = "kind") -> Any:
    """Import what ``source`` names; errors call it ``argument``."""
    place, _, name = source.reference.rpartition(":")
    with loading(source, argument):
        module = import_snapshot(source) if source.is_file else importlib.import_module(place)
        try:
            return operator.attrgetter(name)(module)
        except AttributeError as error:
            own = [
                each
                for each, value in vars(module).items()
                if callable(value) and getattr(value, "__module__", None) == module.__name__
            ]
            raise InputError(
                f"The {argument} {source.reference!r} was not found: {place} has no {name!r}. "
                f"It defines {', '.join(own) or 'nothing that can be called'}."
            ) from error


def import_snapshot(source: KindSource) -> ModuleType:
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


def _import_snapshot(source: KindSource) -> ModuleType:
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

    def __init__(self, source: KindSource) -> None:
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
