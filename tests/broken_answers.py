"""Claims to which the package answers NaN, infinity or zero, whatever they ask.

The modules of the claims are compiled a second time, with every call ``f(x)`` written as
``__answer__(f)(x)`` and every ``a.b`` as ``__read__(a, "b")``. The numbers that come from the
package are exchanged there, never inside of it. `core` (but for its norms), `display` and `studies`
answer as ever: they collect and show numbers. An answer is computed once, for its shape;
afterwards nothing is called.
"""

import ast
import copy
import inspect
import pkgutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from finetti import claims
from finetti.claims import load_ledger
from finetti.estimators.random_features.learning_curves import Family
from finetti.studies.trials import TrialResult

SPARED = ("finetti.claims", "finetti.core", "finetti.display", "finetti.studies")
GIVEN = ("sample", "uniform")  # methods that draw or describe what is asked about
SHARED = ("measures",)  # by the subpackages of claims
MARKED = tuple(
    f"finetti.claims.{each.name}"
    for each in pkgutil.iter_modules(claims.__path__)
    if each.ispkg or each.name in SHARED
)


def _trials(number: float, trials: Sequence[Any]) -> list[TrialResult]:
    """Trained trials whose accuracies are this number."""
    solved = number >= 0.99
    metrics = {"success": solved, "train_accuracy": number, "best_accuracy": number}
    trace = {"step": [10], "accuracy": [number]}
    return [TrialResult({**metrics, "solved_at": 10 if solved else None}, trace) for _ in trials]


def _errors(number: float, *given: Any, **sizes: int) -> dict[str, float]:
    """Errors of a model on every target that are this number."""
    return {f"{family}_{degree}": number for family in get_args(Family) for degree in range(1, 5)}


# What takes long: nothing is trained, and the answer is made from the number.
TRAINED = {"ProbeTrial.run_cohort": _trials, "learn_targets": _errors}


class _Marker(ast.NodeTransformer):
    """Writes calls and attributes as calls of `Answers`, except in annotations and decorators."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.func = _call("__answer__", node.func, ast.Constant(node.lineno))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            return _call("__read__", node.value, ast.Constant(node.attr))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [self.visit(each) for each in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.value = node.value and self.visit(node.value)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


class Answers:
    """What the package answers to the claims of ``ledger``.

    ``asked`` counts the functions, methods and properties by their names; ``trained`` says whether
    one of `TRAINED` was among them.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._number: float | None = None
        self._only: str | None = None
        self._known: dict[Any, Any] = {}
        self._modules: dict[str, ModuleType] = {}
        with self._installed():
            self.ledger = load_ledger.__wrapped__()  # of the modules that are installed now

    @property
    def trained(self) -> bool:
        return not self.asked.keys().isdisjoint(TRAINED)

    @contextmanager
    def right(self) -> Iterator[None]:
        """The package answers, and the shapes of its answers are remembered."""
        self.asked.clear()
        self._known.clear()
        with self._installed(), _lenient():
            yield

    @contextmanager
    def broken(self, number: float, only: str | None = None) -> Iterator[None]:
        """All answers, or those of ``only`` one function, are ``number``."""
        self._number, self._only = number, only
        try:
            with self._installed(), _lenient():
                yield
        finally:
            self._number = self._only = None

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """The marked modules are those that are imported, also when claims run; nothing is kept
        from one run to the next."""
        originals = {name: sys.modules.pop(name) for name in [*sys.modules] if _is_marked(name)}
        _install(self._modules)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            self._modules = {
                name: sys.modules.pop(name) for name in [*sys.modules] if _is_marked(name)
            }
            _install(originals)
            for module in self._modules.values():
                for each in vars(module).values():
                    if hasattr(each, "cache_clear"):
                        each.cache_clear()

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """For `sys.meta_path`: modules of claims are compiled by `_Loader`."""
        if not _is_marked(name):
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        spec.loader = _Loader(name, str(spec.origin))
        spec.loader.answers = self
        return spec

    def answer(self, function: Any, line: int) -> Any:
        """``function``, or one that breaks its answers."""
        name = _name(function)
        if name is None:
            return function

        def answered(*given: Any, **named: Any) -> Any:
            breaks = self._number is not None and self._only in (None, name)
            if name in TRAINED:
                self.asked[name] += 1
                return TRAINED[name](self._number if breaks else 1.0, *given, **named)
            place, found = (name, line, _shape((given, named))), None
            if not breaks or place not in self._known:
                found = function(*given, **named)
                if found is getattr(function, "__self__", None) or callable(found):
                    return found  # a fitted estimator, or a module: it is asked later
                self._known[place] = _exchange(found, 0.0)  # without tracers
            self.asked[name] += 1
            return _exchange(self._known[place], self._number) if breaks else found

        return answered

    def read(self, owner: Any, name: str) -> Any:
        """The attribute, broken where it is computed rather than given or a method."""
        found = getattr(owner, name)
        kind = type(owner)
        if isinstance(owner, type) or not _answers(kind.__module__) or callable(found):
            return found
        field = getattr(kind, "__dataclass_fields__", {}).get(name)
        if field is not None and field.init:
            return found
        name = f"{kind.__name__}.{name}"
        self.asked[name] += 1
        breaks = self._number is not None and self._only in (None, name)
        return _exchange(found, self._number) if breaks else found


def _is_marked(name: str) -> bool:
    return name.startswith(MARKED)


def _install(modules: Mapping[str, ModuleType]) -> None:
    """Let ``modules`` be those that are found, by import and as attributes of their packages."""
    sys.modules.update(modules)
    for name in MARKED:
        vars(claims).pop(name.rpartition(".")[2], None)
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)


@contextmanager
def _lenient() -> Iterator[None]:
    """As users run claims: types are promoted, and NaN is no error."""
    with (
        warnings.catch_warnings(action="ignore"),
        np.errstate(all="ignore"),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def _answers(module: Any) -> bool:
    """Whether what is defined in ``module`` gives answers to claims."""
    if not isinstance(module, str) or not module.startswith("finetti."):
        return False
    return module == "finetti.core.linalg.norms" or not module.startswith(SPARED)


def _name(function: Any) -> str | None:
    """How a function, method or callable object of the package is called; None for others."""
    while not _answers(getattr(function, "__module__", None)):
        inner = getattr(function, "__wrapped__", getattr(function, "func", None))
        if not callable(inner):
            break
        function = inner  # of jit, vmap, partial
    if isinstance(function, type) or getattr(function, "__name__", "").startswith(GIVEN):
        return None
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        kind = owner if isinstance(owner, type) else type(owner)
        if _answers(kind.__module__):
            return f"{kind.__name__}.{function.__name__}"
    if hasattr(function, "__qualname__"):
        return function.__qualname__ if _answers(function.__module__) else None
    return type(function).__name__ if _answers(type(function).__module__) else None


def _shape(given: Any) -> Any:
    """What the shape of an answer may depend on."""
    if isinstance(given, tuple | list):
        return tuple(map(_shape, given))
    if isinstance(given, dict):
        return tuple((name, _shape(each)) for name, each in given.items())
    if isinstance(given, np.ndarray | jax.Array):
        return given.shape
    return given if isinstance(given, int | str | None) else type(given)


def _exchange(found: Any, number: float | None, depth: int = 0) -> Any:
    """``found`` with ``number`` for its numbers, also in tuples, dictionaries and objects of the
    package; a module that can be called stays."""
    if isinstance(found, bool | np.bool_) or (callable(found) and not depth):
        return found
    if isinstance(found, np.ndarray | jax.Array):
        if not jnp.issubdtype(found.dtype, jnp.floating):
            return found
        full = np.full if isinstance(found, np.ndarray) else jnp.full
        return full(found.shape, number, found.dtype)
    if isinstance(found, float | np.floating):
        return type(found)(number)
    if isinstance(found, int) and not depth:
        return number
    return _exchange_parts(found, lambda part: _exchange(part, number, depth + 1))


def _exchange_parts(found: Any, exchange: Callable[[Any], Any]) -> Any:
    if isinstance(found, tuple):
        parts = map(exchange, found)
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    if isinstance(found, list):
        return [exchange(part) for part in found]
    if isinstance(found, dict):
        return {name: exchange(part) for name, part in found.items()}
    if _answers(type(found).__module__) and not isinstance(found, type):
        found = copy.copy(found)
        for name, part in vars(found).items():
            object.__setattr__(found, name, exchange(part))
    return found


class _Loader(SourceFileLoader):
    """Compiles what `_Marker` makes of a module."""

    answers: Answers

    def get_code(self, fullname: str) -> Any:
        tree = _Marker().visit(ast.parse(str(self.get_source(fullname))))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(__answer__=self.answers.answer, __read__=self.answers.read)
        super().exec_module(module)
