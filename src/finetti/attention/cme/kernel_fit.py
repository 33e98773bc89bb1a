"""Fitting the kernel's parameters together with the ridge, by marginal likelihood."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.optimize import minimize

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.cme.ridge_selection import choose_ridge
from finetti.core.arguments import as_real, as_whole
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import float64
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable
from finetti.display.progress import Progress
from finetti.kernels.kernel import Kernel
from finetti.kernels.rbf import RBF

PROFILE_POINTS = 21
# A profile reaches as far as the likelihood falls by this: e⁻⁸ of the best, four standard errors.
PROFILE_DEPTH = 8.0
# Half the 95 % quantile of χ² with one degree of freedom: where a profile interval ends.
INTERVAL_DEPTH = 1.92
# A search starts at this many times the smallest ridge of `choose_ridge`, or above: a thousandth of
# the kernel's mean size.
FIRST_RIDGE = 1e7


@dataclass(frozen=True)
class KernelFit(Displayable):
    """CME attention with fitted kernel and ridge, and what the search saw.

    ``starts`` holds the best log marginal likelihood that each start reached: where they differ,
    there are several optima. ``at_bound`` names parameters that want to leave their bounds;
    ``converged`` says of each start whether its search came to an end by itself.
    """

    module: ConditionalMean
    log_likelihood: float
    starts: np.ndarray
    converged: np.ndarray
    at_bound: tuple[str, ...]
    _search: "_Search"

    def profile(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Values of one parameter, and the log likelihood at each with all others fitted again."""
        return self._search.profile(self._search.index(name))

    def interval(self, name: str) -> tuple[float, float]:
        """The 95 % interval of a parameter by its profile likelihood.

        An end that the likelihood does not bound is where the search ended.
        """
        values, curve = self.profile(name)
        top, logs = int(np.argmax(curve)), np.log(values)
        level = curve[top] - INTERVAL_DEPTH

        def end(step: int) -> float:
            # The first place outward that is too low: beyond it the likelihood may rise again.
            here = top
            while 0 <= here + step < len(curve):
                here += step
                if curve[here] < level:
                    pair = [here, here - step]
                    return float(np.exp(np.interp(level, curve[pair], logs[pair])))
            return float(values[here])

        return end(-1), end(1)

    def __card__(self) -> Card:
        values = np.exp(self._search.best)
        rows = tuple(zip(self._search.names, values.tolist(), strict=True))
        notes = []
        if self.at_bound:
            notes.append(f"At the bound of the search: {', '.join(self.at_bound)}.")
        if not self.converged[np.argmax(self.starts)]:
            notes.append("The best search did not converge: give more `starts`.")
        return Card(
            title="Kernel and ridge of CME attention",
            fields=(
                ("kernel", repr(self.module.kernel)),
                ("log marginal likelihood", self.log_likelihood),
                ("starts within 0.1 of the best", int(sum(self.starts > self.starts.max() - 0.1))),
            ),
            tables=(Table("Parameters", ("parameter", "value"), rows),),
            notes=tuple(notes),
        )


def fit_kernel(
    keys: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    starts: int = 4,
    factor: float = 1e3,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    on_change: Callable[[Progress], None] = lambda progress: None,
) -> KernelFit:
    """Kernel parameters and ridge of the highest marginal likelihood, one set for all contexts.

    L-BFGS in the logarithms, in float64, from the given kernel with the ridge of `choose_ridge`
    and from random starts. A first kernel that fits badly may have no noise at all: the search
    starts with a thousandth of the kernel's mean size at least, and the ridge may go wherever
    `choose_ridge` looks.

    Args:
        keys, values, mask: contexts, as in `ConditionalMean`.
        kernel: the family, and where to start; by default ``1.0 * RBF()``.
        starts: how many searches.
        factor: each parameter of the kernel stays within this factor of its start,
        bounds: or between these, the ridge too, by its name in the result:
            ``{"lengthscale": (0.1, 10)}``; two equal ones keep it there.
        seed: of the random starts.
        on_change: is told about the progress after every evaluation of the likelihood.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> keys = rng.uniform(-4, 4, size=(80, 1))
    >>> values = np.sin(2 * keys) + 0.1 * rng.normal(size=(80, 1))
    >>> fit = fit_kernel(keys, values, starts=2)
    >>> 0.005 < float(fit.module.ridge) < 0.02  # the noise variance is 0.01
    True
    """
    starts = as_whole(starts, "starts", "fit_kernel")
    factor = as_real(factor, "factor", "fit_kernel", "a finite number > 1")
    if not 1 < factor < math.inf:
        raise bad_argument("factor", "fit_kernel", "a finite number > 1", factor)
    kernel = 1.0 * RBF() if kernel is None else kernel
    choice = choose_ridge(keys, values, mask, kernel=kernel)
    least, high = float(choice.grid[0]), float(choice.grid[-1])
    first = ConditionalMean(kernel, ridge=max(choice.ridge, FIRST_RIDGE * least))
    bounds = {"ridge": (least / factor, high), **(bounds or {})}
    with float64():
        module = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), first)
        search = _Search(module, np.asarray(keys), np.asarray(values), mask, np.log(factor), bounds)
        rng = np.random.default_rng(seed)
        begin = [search.origin]
        for _ in range(starts - 1):
            begin.append(search.origin + rng.uniform(-2.3, 2.3, size=search.origin.shape))
        found = []
        for start in begin:
            search.report = functools.partial(_report, on_change, len(found), itertools.count(1))
            found.append(search.climb(start))
        search.report = None
        heights = np.array([climb.height for climb in found])
        search.best = found[int(np.argmax(heights))].point
        fitted = search.module_at(search.best)
    low, high = search.limits.T
    near = (np.minimum(search.best - low, high - search.best) < 1e-3) & (low < high)
    return KernelFit(
        # In the precision of the caller: a float64 array where JAX has none warns at every use.
        jax.tree.map(lambda leaf: as_array(np.asarray(leaf)), fitted),
        float(heights.max()),
        heights,
        np.array([climb.converged for climb in found]),
        tuple(name for name, hits in zip(search.names, near, strict=True) if hits),
        search,
    )


# Compiled once for contexts and kernels of one shape, not once for each search.
@jax.jit
@jax.value_and_grad
def _loss(module: ConditionalMean, keys: Any, values: Any, mask: Any) -> Any:
    return -jnp.sum(module.log_marginal_likelihood(keys, values, mask))


def _report(
    on_change: Callable[[Progress], None], done: int, evaluations: Iterator[int], height: float
) -> None:
    text = f"evaluation {next(evaluations)}, log likelihood {height:.6g}"
    on_change(Progress(done, 0, text))


def _flat(leaves: list[Any]) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(np.float64)


class _Climb(NamedTuple):
    point: np.ndarray
    height: float
    converged: bool


class _Search:
    """The likelihood as a function of the logarithms of all parameters."""

    def __init__(
        self,
        module: ConditionalMean,
        keys: Any,
        values: Any,
        mask: Any,
        reach: float,
        bounds: Mapping[str, tuple[float, float]],
    ) -> None:
        self.contexts = keys, values, mask
        self.report: Callable[[float], None] | None = None
        leaves, self.structure = jax.tree.flatten(module)
        self.shapes = [np.shape(leaf) for leaf in leaves]
        flat = _flat(leaves)
        paths = jax.tree_util.tree_leaves_with_path(module)
        self.names = [
            "".join(map(str, path)).removeprefix(".kernel").removeprefix(".").replace("log_", "")
            + (f"[{place}]" if np.size(leaf) > 1 else "")
            for path, leaf in paths
            for place in range(np.size(leaf))
        ]

        self.limits = np.stack([flat - reach, flat + reach], axis=1)  # (parameters, 2)
        for name, pair in bounds.items():
            if np.shape(pair) != (2,) or not 0 < pair[0] <= pair[1] < np.inf:
                raise bad_argument("bounds", "fit_kernel", "pairs 0 < low ≤ high", {name: pair})
            self.limits[self.index(name, "bounds", "fit_kernel")] = np.log(pair)
        self.origin = self.best = np.clip(flat, *self.limits.T)

    def module_at(self, parameters: np.ndarray) -> ConditionalMean:
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = zip(np.split(parameters, ends), self.shapes, strict=True)
        return self.structure.unflatten([part.reshape(shape) for part, shape in parts])

    def loss(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _loss(self.module_at(parameters), *self.contexts)
        if self.report is not None:
            self.report(-float(value))
        return float(value), _flat(jax.tree.leaves(gradient))

    def index(self, name: str, argument: str = "name", owner: str = "KernelFit") -> int:
        if name not in self.names:
            raise bad_argument(argument, owner, f"for one of {self.names}", repr(name))
        return self.names.index(name)

    def climb(self, start: np.ndarray, fixed: int | None = None) -> _Climb:
        """The best point that this start leads to, and its log likelihood."""
        limits, start = self.limits.copy(), np.clip(start, *self.limits.T)
        if fixed is not None:
            limits[fixed] = start[fixed]

        # The first step is as long as the gradient: of length 1 it stays where it was measured.
        scale = max(1.0, float(np.abs(self.loss(start)[1]).max()))

        def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.loss(parameters)
            return value / scale, gradient / scale

        found: Any = minimize(
            loss, start, jac=True, bounds=limits, method="L-BFGS-B", options={"gtol": 1e-5 / scale}
        )
        return _Climb(found.x, -scale * float(found.fun), bool(found.success))

    def profile(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Outward from the best point in both directions, each fit starting at the last one."""
        with float64():
            top = -self.loss(self.best)[0]
            points = [(self.best[index], top)]
            for direction in (-1.0, 1.0):
                point, step = self.best, 0.05
                for _ in range(PROFILE_POINTS):
                    point = point.copy()
                    point[index] += direction * step
                    if not self.limits[index, 0] <= point[index] <= self.limits[index, 1]:
                        break
                    point, height, _ = self.climb(point, fixed=index)
                    points.append((point[index], height))
                    if top - height > PROFILE_DEPTH:
                        break
                    # Longer steps where the likelihood is flat.
                    step *= 1.5 if top - points[-1][1] < 1.0 else 1.0
        values, curve = np.array(sorted(points)).T
        return np.exp(values), curve
