"""Nadaraya–Watson regression, softmax attention's relative, with its bandwidth by leave-one-out."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import RegressorMixin

from finetti.core.arguments import as_positive
from finetti.core.errors import InputError, UnsupportedError, bad_argument, warn_user
from finetti.core.numerics.float64 import float64
from finetti.display.card import Card
from finetti.display.charts.line_charts import line_chart
from finetti.display.displayable import Displayable
from finetti.display.progress import Progress, late_progress
from finetti.estimators.grams import chunks, in_float64, median_distance, padding
from finetti.estimators.ridge import Floats
from finetti.estimators.tables import TableModel
from finetti.estimators.targets import numbers
from finetti.estimators.undo import all_or_nothing
from finetti.kernels.kernel import Kernel, check_kernel
from finetti.kernels.rbf import RBF

GRID_SIZE = 31
GRID_RANGE = 1e-2, 1e1  # times the median distance of two rows
REFINEMENTS = 2
LEAST, MOST = 1e-150, 1e153  # whose inverse squares are numbers


@dataclass(frozen=True)
class BandwidthPath(Displayable):
    """The leave-one-out error at every bandwidth of the grid, and which one was chosen."""

    bandwidths: Floats
    criterion: Floats

    @cached_property
    def best(self) -> int:
        """Where the error is least; of equal ones the largest bandwidth."""
        return int(np.flatnonzero(self.criterion <= self.criterion.min())[-1])

    @property
    def bandwidth(self) -> float:
        """The chosen one."""
        return float(self.bandwidths[self.best])

    @property
    def at_edge(self) -> bool:
        """Whether a bandwidth beyond the grid may be better."""
        return self.best in (0, len(self.bandwidths) - 1)

    def joined(self, other: "BandwidthPath") -> "BandwidthPath":
        """Both curves as one."""
        bandwidths, places = np.unique([*self.bandwidths, *other.bandwidths], return_index=True)
        criterion = np.concatenate([self.criterion, other.criterion])[places]
        return BandwidthPath(bandwidths, criterion)

    def plot(self) -> dict[str, Any]:
        """The curve as a Vega-Lite chart."""
        records = [
            {"bandwidth": bandwidth, "criterion": value}
            for bandwidth, value in zip(
                self.bandwidths.tolist(), self.criterion.tolist(), strict=True
            )
        ]
        title = "Bandwidth by leave-one-out"
        return line_chart(records, "bandwidth", "criterion", log_x=True, title=title)

    def __card__(self) -> Card:
        edge = "The best one lies at the edge of the grid: give `bandwidths` that reach further."
        return Card(
            title="Bandwidth by leave-one-out",
            fields=(
                ("bandwidth", self.bandwidth),
                ("mean squared error", float(self.criterion[self.best])),
            ),
            notes=(edge,) if self.at_edge else (),
        )


class _Rows(NamedTuple):
    """The rows of a fit with their padding: tokens (n, d), values (n, t), logarithms of weights."""

    tokens: Any
    values: Any
    log_weights: Any


@jax.jit
def _smooth(kernel: Kernel, queries: Any, own: Any, rows: _Rows) -> tuple[Any, Any]:
    """Σ w v / Σ w over all rows but ``own``, and whether there is any w > 0 (else it is 0)."""
    logits = kernel.log_gram(queries, rows.tokens) + rows.log_weights[None, :]
    places = jnp.arange(len(rows.tokens))
    logits = jnp.where(places[None, :] == own[:, None], -jnp.inf, logits)
    highest = jnp.max(logits, axis=1, keepdims=True)
    has_neighbor = highest > -jnp.inf
    scores = jnp.exp(logits - jnp.where(has_neighbor, highest, 0.0))
    total = jnp.sum(scores, axis=1, keepdims=True)
    return scores @ rows.values / jnp.where(has_neighbor, total, 1.0), has_neighbor[:, 0]


@jax.jit
def _left_out(kernel: Kernel, bandwidths: Any, places: Any, rows: _Rows) -> Any:
    """Squared error, over the targets on average, of some rows at every bandwidth."""

    def at(bandwidth: Any) -> Any:
        scaled = kernel.on_scaled_tokens(bandwidth**-2)
        found, _ = _smooth(scaled, rows.tokens[places], places, rows)
        return jnp.mean((found - rows.values[places]) ** 2, axis=1)

    return jax.lax.map(at, bandwidths)


class KernelSmootherRegressor(RegressorMixin, TableModel):
    """The mean of the targets around a row, weighted by a kernel (Nadaraya and Watson).

    f(x) = Σ_i s_i K(x/h, x_i/h) y_i / Σ_i s_i K(x/h, x_i/h)                  (4.9), zhang2022

    s are the sample weights, h is the bandwidth. With ``Exponential()`` it is softmax attention at
    temperature h². Weights are taken in log space, so that a row far from all others gets the
    targets of the nearest ones; where all scores are exactly 0 it gets the mean, with a warning.

    Args:
        kernel: K, any nonnegative kernel of `finetti.kernels`; by default RBF(), whose lengthscale
            then is h. One with a lengthscale for each column has the shape of that.
        bandwidth: h: a number, or "loo", the least exact leave-one-out error over a grid.
        bandwidths: the grid; by default 31 values from 1/100 to 10 times the median distance,
            refined around the best.

    Attributes:
        kernel_: K(·/h, ·/h).
        bandwidth_, bandwidth_path_: h, and the curve it was chosen by.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
    >>> model = KernelSmootherRegressor().fit(X, y)
    >>> 0.1 < model.bandwidth_ < 0.5
    True
    >>> bool(np.abs(model.predict([[1.0], [1e6]]) - [np.sin(1), y[X.argmax()]]).max() < 0.1)
    True

    Reference: (4.9), zhang2022; Nadaraya (1964); Watson (1964).
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        bandwidth: float | Literal["loo"] = "loo",
        bandwidths: Any = None,
    ):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.bandwidths = bandwidths

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Keep rows ``X`` (n, d) and targets ``y``, (n,) or (n, t), and choose the bandwidth."""
        owner = type(self).__name__
        table = self._table(X)
        targets, weights = numbers(self, X, y), self._weights(table, sample_weight)
        table, targets, weights = (part[weights > 0] for part in (table, targets, weights))
        kernel = RBF() if self.kernel is None else self.kernel
        check_kernel(kernel, owner)
        if not kernel.is_positive:
            raise UnsupportedError(
                f"{owner} divides by the sum of the kernel's values, and {kernel} takes both "
                "signs. Use ConditionalMeanRegressor, or a nonnegative kernel such as RBF()."
            )
        kernel = in_float64(kernel)
        values = targets.reshape(len(targets), -1)
        # About the mean, so that little cancels, and what has no neighbor is 0.
        self._mean = weights @ values / weights.sum()
        places = padding(len(table))
        is_padding = np.arange(len(places)) >= len(table)
        self._rows = _Rows(
            table[places],
            (values - self._mean)[places],
            np.where(is_padding, -np.inf, np.log(weights[places])),
        )
        self._is_single = targets.ndim == 1
        self.X_fit_, self.bandwidth_path_ = table, None
        if isinstance(self.bandwidth, str):
            if self.bandwidth != "loo":
                raise bad_argument(
                    "bandwidth", owner, 'a number > 0 or "loo"', repr(self.bandwidth)
                )
            path = self._path(kernel, self._grid(table), weights)
            # Between the neighbors of the best of the default grid: steps of 2 %, then of 0.1 %.
            for _ in range(0 if self.bandwidths is not None else REFINEMENTS):
                if path.at_edge or not np.isfinite(path.criterion[path.best]):
                    break
                low, high = path.bandwidths[path.best - 1], path.bandwidths[path.best + 1]
                # An even number of points: the one in the middle, the best so far, is not among
                # them a second time, where rounding would decide which of the two is its neighbor.
                inner = np.geomspace(low, high, GRID_SIZE - 1)[1:-1]
                path = path.joined(self._path(kernel, inner, weights))
            self.bandwidth_path_ = path
            self.bandwidth_ = self.bandwidth_path_.bandwidth
        else:
            self.bandwidth_ = as_positive(self.bandwidth, "bandwidth", owner)
            if not LEAST <= self.bandwidth_ <= MOST:
                wanted = f"between {LEAST:g} and {MOST:g}, or its square is no number"
                raise bad_argument("bandwidth", owner, wanted, self.bandwidth)
        with float64():
            self.kernel_ = in_float64(kernel.on_scaled_tokens(jnp.asarray(self.bandwidth_**-2)))
        return self

    def predict(self, X: Any) -> Floats:
        """(m,) or (m, t)."""
        table = self._again(X)
        found = np.empty((len(table), len(self._mean)))
        n_alone = 0
        with float64():
            for rows, places in chunks(len(table)):
                outside = np.full(len(places), -1)
                part, has_neighbor = _smooth(self.kernel_, table[places], outside, self._rows)
                size = rows.stop - rows.start
                found[rows] = np.asarray(part)[:size] + self._mean
                n_alone += int(np.sum(~np.asarray(has_neighbor)[:size]))
        if n_alone:
            warn_user(
                f"{n_alone} of {len(table)} rows have similarity 0 to all rows of the fit, and get "
                "the mean. Scale the columns, or raise `bandwidth`."
            )
        return found[:, 0] if self._is_single else found

    def _grid(self, table: Floats) -> Floats:
        if self.bandwidths is None:
            distance = median_distance(table)
            if distance * GRID_RANGE[0] < LEAST:
                raise InputError(
                    f"Rows of X are {distance:.3g} apart, and {type(self).__name__} divides by "
                    "squares of a hundredth of that, which are 0. Scale the columns."
                )
            return np.geomspace(*GRID_RANGE, GRID_SIZE) * distance
        grid = np.sort(np.atleast_1d(np.asarray(self.bandwidths, np.float64)))
        if grid.ndim != 1 or not grid.size or not ((grid >= LEAST) & (grid <= MOST)).all():
            wanted = f"a list of numbers between {LEAST:g} and {MOST:g}"
            raise bad_argument("bandwidths", type(self).__name__, wanted, repr(self.bandwidths))
        return grid

    def _path(self, kernel: Kernel, grid: Floats, weights: Floats) -> BandwidthPath:
        """The mean squared error of every row from all others; ∞ where there is one row only."""
        if len(weights) == 1:
            return BandwidthPath(grid, np.full(len(grid), np.inf))
        totals = np.zeros(len(grid))
        name, activity = type(self).__name__, f"left out at {len(grid)} bandwidths"
        with float64(), late_progress(name, len(weights), "rows") as report:
            for rows, places in chunks(len(weights)):
                squares = np.asarray(_left_out(kernel, grid, places, self._rows))
                totals += squares[:, : rows.stop - rows.start] @ weights[rows]
                report(Progress(rows.stop, 0, activity))
        return BandwidthPath(grid, totals / weights.sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
