"""SciPy's solvers as the minimizations of this package call them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize

from finetti.core.process_tuning import limit_threads

Smooth = Callable[[np.ndarray], tuple[float, np.ndarray]]
_linprog: Any = optimize.linprog  # has no types, and a type checker takes 15 s to infer them


def minimize_smooth(
    function: Smooth,
    start: np.ndarray,
    bounds: Any = None,
    *,
    iterations: int = 500,
    ftol: float = 1e-14,
    gtol: float = 1e-9,
) -> np.ndarray:
    """The minimum of a function that returns its value and its gradient, within bounds: L-BFGS-B.

    On one BLAS thread: the matrices inside are tiny, and with several threads on a busy machine a
    step takes milliseconds instead of microseconds.

    >>> minimize_smooth(lambda x: (float(x @ x), 2 * x), np.ones(2)).round(6)
    array([0., 0.])
    """
    options = {"maxiter": iterations, "maxcor": 20, "ftol": ftol, "gtol": gtol}
    with limit_threads(1, "blas"):
        return optimize.minimize(
            function, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).x


def solve_linear_program(objective: Any, rows: Any, limits: Any, bounds: Any) -> Any:
    """Minimize cᵀx over Ax ≤ b by HiGHS; what SciPy says of it.

    >>> round(float(solve_linear_program([1.0], [[-1.0]], [-2.0], (None, None)).fun), 6)
    2.0
    """
    return _linprog(objective, rows, limits, bounds=bounds, method="highs")
