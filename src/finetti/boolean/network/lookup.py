"""A table as a ReLU network: exact at its points, and within a noise around them.

With z = (x − a)/δ the bump ψ(z) = r(z+2) − r(z+1) − r(z−1) + r(z−2) is 1 for |z| ≤ 1 and 0 for
|z| ≥ 2. A point (a_1, …, a_d) is recognized by r(Σ_jψ_j − d + 1) − r(Σ_jψ_j − d): 1 if all its
bumps are 1, 0 if any of them is 0. Points whose coordinate j is the same share that bump.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.weight_range import freeze_arrays

CORNERS = np.array([2.0, 1.0, -1.0, -2.0])
SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
LOOKUP_NAMES = ("inner", "inner_bias", "middle", "middle_bias", "outer")
BLOCK_UNITS = 2**22  # hidden units of a block of inputs


@dataclass(frozen=True, eq=False)
class Lookup:
    """x ↦ r(r(xW1 + b1)W2 + b2)w, or r(xW1 + b1)w where one layer is enough."""

    inner: NDArray[Any]  # W1 (features, bumps)
    inner_bias: NDArray[Any]  # b1
    middle: NDArray[Any] | None  # W2 (bumps, units); None for one feature
    middle_bias: NDArray[Any] | None  # b2
    outer: NDArray[Any]  # w; two columns where a gate writes into e_0 and e_1

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __call__(
        self, features: NDArray[Any], inner_bias: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """The values at ``features`` (…, features), with b1 or a bias of every token in its place:
        what it knows of itself beside what it has read."""
        bias = self.inner_bias if inner_bias is None else inner_bias
        return self._by_blocks(lambda rows: self._values(rows, bias), features, features.dtype)

    def _by_blocks(self, function: Any, features: NDArray[Any], dtype: Any) -> NDArray[Any]:
        out = np.empty((*features.shape[:-1], *self.outer.shape[1:]), dtype=dtype)
        n_units = max(len(self.inner_bias), len(self.outer))
        step = max(1, BLOCK_UNITS // (n_units * math.prod(features.shape[1:-1])))
        for start in range(0, len(features), step):
            out[start : start + step] = function(features[start : start + step])
        return out

    def _values(self, rows: NDArray[Any], inner_bias: NDArray[Any]) -> NDArray[Any]:
        hidden = rows @ self.inner
        hidden += inner_bias
        np.maximum(hidden, 0, out=hidden)
        if self.middle is None or self.middle_bias is None:
            return hidden @ self.outer
        if self.selected is None:
            hidden = hidden @ self.middle
            hidden += self.middle_bias
            return np.maximum(hidden, 0, out=hidden) @ self.outer
        bumps = hidden.reshape(len(hidden), -1, len(SIGNS)) @ SIGNS.astype(hidden.dtype)
        totals = bumps @ self.selected
        out = np.zeros((len(hidden), *self.outer.shape[1:]), dtype=hidden.dtype)
        for half in (slice(0, None, 2), slice(1, None, 2)):
            units = totals + self.middle_bias[half]
            out += np.maximum(units, 0, out=units) @ self.outer[half]
        return out

    def resolution(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """How far rounding alone may move the value at each row: what float64 cannot tell apart.

        The errors of all sums, each a few roundings of its largest terms, carried to the end.
        """
        return self._by_blocks(self._resolution, features, np.float64)

    def _resolution(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        eps = float(np.finfo(rows.dtype).eps)
        error = 2 * eps * (np.abs(rows) @ np.abs(self.inner) + np.abs(self.inner_bias))
        sums = rows @ self.inner + self.inner_bias
        error = np.where(sums > -error, error, 0.0)  # units that are off stay off
        hidden = np.maximum(sums, 0)
        if self.middle is None or self.middle_bias is None:
            return (error + 4 * eps * hidden) @ np.abs(self.outer)
        if self.selected is None:
            size, halves = np.abs(self.middle), (slice(None),)
            sums, error = hidden @ self.middle, (error + 4 * eps * hidden) @ size
        else:  # by fours and pairs, as in `_values`
            ramps, errors = (each.reshape(len(rows), -1, len(SIGNS)) for each in (hidden, error))
            size, halves = np.abs(self.selected), (slice(0, None, 2), slice(1, None, 2))
            sums = (ramps @ SIGNS.astype(hidden.dtype)) @ self.selected
            error = (errors + 4 * eps * ramps).sum(axis=2) @ size
        out = np.zeros((len(rows), *self.outer.shape[1:]))
        for half in halves:
            bias = self.middle_bias[half]
            units, wrong = sums + bias, error + 4 * eps * np.abs(bias)
            np.copyto(wrong, 0.0, where=units <= -wrong)
            wrong += 4 * eps * np.maximum(units, 0, out=units)
            out += wrong @ np.abs(self.outer[half])
        return out

    def most_resolution(self, largest: float) -> float:
        """More than `resolution` at any features up to ``largest``: as if every unit were on."""
        sizes = {name: np.abs(array) for name, array in self.arrays.items()}
        every = replace(self, **sizes)  # with weights and features that are all positive
        return float(every.resolution(np.full((1, len(self.inner)), largest))[0])

    @cached_property
    def selected(self) -> NDArray[Any] | None:
        """Which bumps belong to which point, if W2 has the form of Lemma B.8; else None.

        Ramps then come in fours that make a bump, and units in pairs that see the same sum, so that
        the same function takes an eighth of the work.
        """
        if self.middle is None:
            return None
        rows, columns = self.middle.shape
        if rows % len(SIGNS) or columns % 2:
            return None
        first = self.middle[:, ::2]
        fours = first.reshape(-1, len(SIGNS), columns // 2)
        whole = fours[:, :1] * SIGNS.astype(first.dtype)[None, :, None]
        same = np.array_equal(first, self.middle[:, 1::2]) and np.array_equal(fours, whole)
        return np.ascontiguousarray(fours[:, 0]) if same else None

    @cached_property
    def single_bumps(self) -> tuple[NDArray[Any], ...] | None:
        """For every feature, how much of each of its bumps goes to each unit (bumps, units), if
        every unit takes one bump of a feature at most, and none negatively; else None."""
        if self.middle is None:
            return None
        found = []
        for row in self.inner:
            own = np.flatnonzero(row)
            starts = own[:: len(SIGNS)]
            together = (starts[:, None] + np.arange(len(SIGNS))).ravel()
            if not np.array_equal(own, together):
                return None
            fours = self.middle[own].reshape(len(starts), len(SIGNS), -1)
            once = fours[:, 0]
            alike = np.array_equal(fours, once[:, None] * SIGNS[None, :, None])
            if not alike or (once < 0).any() or (np.count_nonzero(once, axis=0) > 1).any():
                return None
            found.append(once)
        return tuple(found)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The matrices by name, those that exist."""
        named = {name: getattr(self, name) for name in LOOKUP_NAMES}
        return {name: array for name, array in named.items() if array is not None}

    @property
    def work(self) -> int:
        """Multiplications for one input."""
        if self.middle is None:
            return self.inner.size + self.outer.size
        largest = self.middle if self.selected is None else self.selected
        return self.inner.size + largest.size + 2 * self.outer.size

    def astype(self, dtype: Any) -> "Lookup":
        """The same network in another precision."""
        arrays: dict[str, Any] = {n: array.astype(dtype) for n, array in self.arrays.items()}
        return replace(self, **arrays)


def make_lookup(
    points: NDArray[np.float64], values: NDArray[np.float64], tolerance: float
) -> Lookup:
    """f(x_i) = y_i for every x within ``tolerance`` = δ of a point, in the maximum norm.

    Args:
        points: x_i, shape (n, d), at least 4δ apart in the maximum norm.
        values: y_i. Points of value 0 need no unit.
        tolerance: δ.

    >>> step = make_lookup(np.array([[-1.0], [1.0]]), np.array([0.0, 1.0]), tolerance=0.5)
    >>> step(np.array([[-1.4], [-0.6], [0.6], [1.0], [1.5]])).tolist()
    [0.0, 0.0, 1.0, 1.0, 1.0]

    Reference: Lemma B.8, edelman2022, with the bump of erratum 16.
    """
    kept = np.flatnonzero(values) if values.any() else np.arange(1)
    points, values = points[kept], values[kept]
    dimension = points.shape[1]
    pairs = [np.unique(points[:, j], return_inverse=True) for j in range(dimension)]
    owner = np.concatenate([np.full(len(centers), j) for j, (centers, _) in enumerate(pairs)])
    centers = np.concatenate([centers for centers, _ in pairs])
    corner, sign = np.tile(CORNERS, len(centers)), np.tile(SIGNS, len(centers))
    inner = np.zeros((dimension, len(corner)))
    inner[np.repeat(owner, 4), np.arange(len(corner))] = 1 / tolerance
    inner_bias = corner - np.repeat(centers, 4) / tolerance
    # selected[k, i]: whether bump k is one of those of point i.
    offsets = np.cumsum([0, *(len(each) for each, _ in pairs)])
    selected = np.zeros((len(centers), len(points)))
    for j, (_, which) in enumerate(pairs):
        selected[offsets[j] + which, np.arange(len(points))] = 1.0
    if dimension == 1:
        return Lookup(inner, inner_bias, None, None, sign * np.repeat(selected @ values, 4))
    totals = sign[:, None] * np.repeat(selected, 4, axis=0)  # Σ_jψ_j of every point
    thresholds = np.array([1.0 - dimension, -dimension])
    return Lookup(
        inner,
        inner_bias,
        np.repeat(totals, 2, axis=1),
        np.tile(thresholds, len(points)),
        np.repeat(values, 2) * np.tile([1.0, -1.0], len(points)),
    )
