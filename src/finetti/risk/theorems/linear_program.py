"""Linear programs, by HiGHS."""

from typing import Any

from scipy import optimize

_linprog: Any = optimize.linprog  # has no types, and a type checker takes 15 s to infer them


def solve_linear_program(objective: Any, rows: Any, limits: Any, bounds: Any) -> Any:
    """Minimize cᵀx over Ax ≤ b; what SciPy says of it.

    >>> round(float(solve_linear_program([1.0], [[-1.0]], [-2.0], (None, None)).fun), 6)
    2.0
    """
    return _linprog(objective, rows, limits, bounds=bounds, method="highs")
