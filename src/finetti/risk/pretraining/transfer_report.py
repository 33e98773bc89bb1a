"""Theorem 6.4, both sides: what a pretrained function is worth to another task."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from finetti.bounds import Sample
from finetti.bounds.exchangeability import TransferApproximation, transfer_matrix
from finetti.core.arguments import check_finite
from finetti.core.errors import bad_argument
from finetti.display import Card, Chart, Displayable, Table, waterfall
from finetti.risk.theorems.context_table import ContextTable, largest_squares, uniform_error
from finetti.risk.theorems.minimax_fit import uniform_fit
from finetti.risk.theorems.recovery_gap import recovery_gap

# The terms of the bound: its name there, what it is made of, and which error it is.
_TERMS = (
    ("aggregation", "3ε_agg²(B)", "ε_agg(B)"),
    ("pretraining", "6μE^PT", "E^PT"),
    ("transfer", "6με_SSL²", "ε_SSL"),
    ("latent to target", "3ε_g²", "ε_g"),
)
ROUNDING = 1e-24  # squares of differences between answers of size 1


@dataclass(frozen=True, eq=False)
class TransferReport(Displayable):
    """Both sides of  E ≤ 3ε_agg²(B) + 6μ(E^PT + ε_SSL²) + 3ε_g²        Theorem 6.4, zhang2022

    B = W_DSᵀ(W_SSL W_SSLᵀ)⁻¹W_SSL, μ = ‖B‖². E^PT is the whole excess risk of f̂_PT (erratum 10).

    Args:
        contexts: all X with their posteriors.
        pretraining: g*_PT, E[y_PT | z], one row per atom.
        downstream: g*_DS, E[y_DS | z], one row per atom.
        features: ψ_DS, what a value at the downstream mask says of z, one row per atom.
        pretraining_weights: W_SSL with ψ_DS W_SSL near g*_PT.
        downstream_weights: W_DS with ψ_DS W_DS near g*_DS.
        pretrained: f̂_PT(X), one row per context.
        aligned: the downstream function nearest to B f̂_PT, one row per context.
        best: the downstream function of least risk; the aligned one unless given.
    """

    contexts: ContextTable
    pretraining: np.ndarray
    downstream: np.ndarray
    features: np.ndarray
    pretraining_weights: np.ndarray
    downstream_weights: np.ndarray
    pretrained: np.ndarray
    aligned: np.ndarray
    best: np.ndarray | None = None

    @cached_property
    def matrix(self) -> np.ndarray:
        """B, (d_y, d)."""
        return transfer_matrix(self.downstream_weights, self.pretraining_weights)

    @property
    def condition_number(self) -> float:
        """μ = ‖B‖²."""
        return float(np.linalg.norm(self.matrix, 2) ** 2)

    @property
    def pretraining_excess(self) -> float:
        """E^PT = E‖f̂_PT − f*_PT‖²: approximation, generalization and optimization together."""
        return self.contexts.squared(self.pretrained - self.contexts.mean(self.pretraining))

    @property
    def transfer_error(self) -> float:
        """ε_SSL: how far g*_PT is from what the downstream mask can see, (6.9)."""
        return _distance(self.pretraining, self.features, self.pretraining_weights)

    @property
    def latent_error(self) -> float:
        """ε_g: how far g*_DS is from it, (6.8)."""
        return _distance(self.downstream, self.features, self.downstream_weights)

    @property
    def aggregation_error(self) -> float:
        """ε_agg(B) = sup_X ‖f(X) − B f̂_PT(X)‖ of the aligned f, (6.11)."""
        return uniform_error(self.aligned - self.pretrained @ self.matrix.T)

    @property
    def excess(self) -> float:
        """The left side: E‖f − f*_DS‖² of the best downstream function."""
        return self._excess(self.aligned if self.best is None else self.best)

    @property
    def aligned_excess(self) -> float:
        """The same of the aligned function, for which the proof shows the inequality."""
        return self._excess(self.aligned)

    def _excess(self, function: np.ndarray) -> float:
        return self.contexts.squared(function - self.contexts.mean(self.downstream))

    def bound_with(self, pretraining_excess: float) -> Any:
        """The right side with another E^PT, a `BoundValue`."""
        bound = TransferApproximation(
            pretraining_excess,
            self.transfer_error,
            self.latent_error,
            self.aggregation_error,
            condition_number=self.condition_number,
        )
        return bound.evaluate(Sample(1, 1))

    @cached_property
    def bound(self) -> Any:
        """The right side, with its terms."""
        return self.bound_with(self.pretraining_excess)

    @property
    def ratio(self) -> float:
        """Left over right, of the aligned function: at most 1; 0 where both are rounding only."""
        if self.bound.value > ROUNDING:
            return self.aligned_excess / self.bound.value
        return np.inf if self.aligned_excess > ROUNDING else 0.0

    @property
    def terms(self) -> list[dict[str, Any]]:
        """Return the terms of the right side: term, formula, and value."""
        values = {term.name: term.value for term in self.bound.terms}
        return [
            {"term": name, "formula": formula, "value": values.get(name, 0.0)}
            for name, formula, _ in _TERMS
        ]

    def chart(self) -> Chart:
        """A waterfall: from 0 by the terms to the bound; dashed, the downstream excess risk."""
        parts = [(term["formula"], term["value"]) for term in self.terms]
        title = "The bound of Theorem 6.4, and the excess risk (dashed)"
        total = ("bound", self.bound.value)
        return waterfall(parts, total, title, "excess risk", reference=self.excess)

    def __card__(self) -> Card:
        sizes = (
            self.aggregation_error,
            self.pretraining_excess,
            self.transfer_error,
            self.latent_error,
        )
        rows = tuple(
            (term["term"], symbol, size, term["formula"], term["value"])
            for term, (_, _, symbol), size in zip(self.terms, _TERMS, sizes, strict=True)
        )
        fields = (
            ("downstream excess risk", self.excess),
            ("its bound", self.bound.value),
            ("condition number μ", self.condition_number),
            ("contexts", len(self.contexts.mass)),
        )
        columns = ("term", "error", "size", "in the bound", "value")
        notes = (f"The aligned function has {100 * self.ratio:.3g} % of the bound.",)
        title = "What pretraining carries over (Theorem 6.4)"
        return Card(title, fields, (Table("", columns, rows),), notes)


def _distance(target: np.ndarray, features: np.ndarray, weights: np.ndarray) -> float:
    return largest_squares(target - features @ weights) ** 0.5


def transfer_report(
    contexts: ContextTable,
    *,
    pretraining: Any,
    downstream: Any,
    pretrained: Any,
    readout: Any,
    features: Any = None,
) -> TransferReport:
    """Measure every ε of Theorem 6.4 for a frozen network, exactly, over all contexts.

    W_SSL and W_DS are sup-norm projections (Assumption 6.1); the downstream class is all Wᵀh(X).

    Args:
        contexts: all X.
        pretraining: g*_PT, (atoms, d).
        downstream: g*_DS, (atoms, d_y).
        pretrained: f̂_PT(X), (contexts, d).
        readout: h(X), what the frozen attention gives to the downstream aggregation, (contexts, p).
        features: ψ_DS, (atoms, p'); by default g*_PT, as if both tasks had the same mask.

    >>> contexts = ContextTable(np.eye(2), [0.5, 0.5])
    >>> table = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> report = transfer_report(
    ...     contexts,
    ...     pretraining=table,
    ...     downstream=table[:, :1],
    ...     pretrained=0.5 + 0.4 * (table - 0.5),
    ...     readout=np.ones((2, 1)),
    ... )
    >>> round(report.excess, 3), round(report.pretraining_excess, 3)
    (0.25, 0.18)
    """
    n_contexts, n_atoms = contexts.posteriors.shape
    source = _table(pretraining, "pretraining", "atoms", n_atoms)
    target = _table(downstream, "downstream", "atoms", n_atoms)
    psi = source if features is None else _table(features, "features", "atoms", n_atoms)
    learned = _table(pretrained, "pretrained", "contexts", n_contexts)
    frozen = _table(readout, "readout", "contexts", n_contexts)
    source_weights, target_weights = (
        recovery_gap(table, psi).weights for table in (source, target)
    )
    matrix = transfer_matrix(target_weights, source_weights)
    aligned = frozen @ uniform_fit(frozen, learned @ matrix.T).weights
    root = np.sqrt(contexts.mass)[:, None]
    best = frozen @ np.linalg.lstsq(root * frozen, root * contexts.mean(target), rcond=None)[0]
    return TransferReport(
        contexts,
        source,
        target,
        psi,
        source_weights,
        target_weights,
        learned,
        aligned,
        best,
    )


def _table(value: Any, name: str, axis: str, length: int) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != 2 or len(array) != length or not array.size:
        wanted = f"a table with one row for each of {length} {axis}"
        raise bad_argument(name, "transfer_report", wanted, f"shape {array.shape}")
    check_finite(array, name, "transfer_report")
    return array
