"""Errors, ratios and bounds are collected by `largest_of` and `smallest_of`, which keep NaN.

Python's ``max(0.0, nan)`` is 0.0: an error that is collected by it is small although nothing was
computed. What may be collected by `max` and `min` are whole numbers, settings, and pairs.
"""

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from finetti.core.numerics.extremes import largest_of, smallest_of

ROOT = Path(__file__).parent.parent
WHOLE = {  # counts, widths and depths
    "probe/cls_attention/dropped_tokens.py": ("max(size for size in range",),
    "attention/cme/conjugate_gradients.py": ("min(rank,",),
    "attention/fast_weights/chunked_scan.py": ("min(chunk,",),
    "boolean/language/gate_graph.py": ("max(levels.get(",),
    "boolean/network/weight_file.py": ("max(read.head ",),
    "boolean/network/gate_network.py": (
        "max(gate.level ",
        "max(read.head ",
        "max(len(",
        "max(block.n_heads ",
    ),
    "boolean/network/gate_lookup.py": ("max(len(",),
    "boolean/verify/gate_proof.py": ("min(limit,", "max(len(read.sources) "),
    "bounds/certificates/error_counts.py": ("min(errors + 1",),
    "bounds/exchangeability/residual_class.py": ("max(len(",),
    "bounds/sparse_variables/transformer_class.py": ("max(np.shape(",),
    "claims/exchangeability/residual_capacity.py": ("max(network.dimension,", "max((4 + heads) "),
    "claims/random_features/interpolation_norms.py": ("max(r, s)",),
    "claims/sparse_variables/learned_positions.py": ("max(steps,",),
    "cli/commands/bound_command.py": ("max(len(",),
    "estimators/constrained/constrained_estimators.py": ("max(each.n_iter ",),
    "probe/probe_result.py": ("max(length ",),
}
SETTINGS = {  # limits of charts, of memory and of searches, no results
    "claims/results.py": ("max((end for end",),
    "probe/probe_charts.py": ("max(low,",),
    "probe/search/search_design.py": ("min(high,", "max(low, high)"),
    "display/charts/bar_charts.py": ("max(float(row['size'])",),
    "display/charts/line_charts.py": ("min((row[f] ",),
    "studies/executors/resource_limits.py": ("min(total,",),
}
PAIRS = {  # a number and what belongs to it; the number is checked, or compared with, elsewhere
    "bounds/covering/dudley.py": ("min(best, (",),
    "bounds/covering/linear_covering.py": ("min((log_log_refined_cover(",),
    "claims/exchangeability/stationary_points.py": ("min(answers, key=",),
    "tests/bounds/exchangeability/test_exchangeability_mpmath.py": (
        "max(gamma,",
        "max(kappa,",
        "max(zeta,",
    ),
    "tests/estimators/test_learning_curves.py": ("min(best, (",),
}
ALLOWED = {path: calls for table in (WHOLE, SETTINGS, PAIRS) for path, calls in table.items()}


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func) in ("max", "min"):
            yield each


def _accumulations(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls of ``x = max(x, …)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = {ast.unparse(each) for each in ast.walk(ast.Tuple(node.targets))}
            for call in _calls(node.value):
                if targets & set(map(ast.unparse, call.args)):
                    yield call


def forgetful(source: str, place: str) -> set[str]:
    """The calls of `max` and `min` that may forget a NaN.

    In claims, all; in the package, those that collect in a loop or from a generator; in tests,
    those that collect in a loop.
    """
    tree = ast.parse(source)
    found = list(_calls(tree)) if place.startswith("claims/") else list(_accumulations(tree))
    if not place.startswith("tests/"):
        found += [each for each in _calls(tree) if isinstance(each.args[0], ast.GeneratorExp)]
    return {_text(each) for each in found}


def _text(call: ast.Call) -> str:
    """As people write it: without the second parentheses of a generator."""
    if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.GeneratorExp):
        return ast.unparse(call.func) + ast.unparse(call.args[0])
    return ast.unparse(call)


def _files() -> Iterator[tuple[str, str]]:
    for folder, base in (("src/finetti", "src/finetti"), ("tests", ".")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT / base).as_posix(), path.read_text(encoding="utf-8")


def test_no_maximum_forgets_nan():
    found = {(place, call) for place, source in _files() for call in forgetful(source, place)}
    found = {
        (place, call)
        for place, call in found
        if place != "core/numerics/extremes.py" and not call.startswith(ALLOWED.get(place, ()))
    }
    assert not found, "collect with largest_of or smallest_of of finetti.core.numerics.extremes"


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("audit/a.py", "worst = max(worst, error)"),
        ("audit/a.py", "worst, least = max(worst, error), min(least, error)"),
        ("audit/a.py", "self.worst = max(0.0, self.worst)"),
        ("audit/a.py", "f(max(abs(each) for each in errors))"),
        ("claims/a.py", "close('all', max(errors), 1e-9)"),
        ("tests/a.py", "worst = max(worst, error)"),
    ],
)
def test_the_rule_sees_what_forgets(place, source):
    assert forgetful(source, place)


@pytest.mark.parametrize("worst", [largest_of, smallest_of])
@pytest.mark.parametrize("place", range(3))
def test_what_is_not_a_number_stays(worst, place):
    numbers = [np.float64(1.0), -2.0, 3]
    numbers[place] = math.nan
    assert math.isnan(worst(*numbers))
    assert math.isnan(worst(iter(numbers)))


def test_without_nan_they_are_the_largest_and_the_smallest():
    numbers = [1.0, -2.0, 3, -math.inf, np.float32(0.5)]
    assert (largest_of(*numbers), smallest_of(numbers)) == (3.0, -math.inf)
