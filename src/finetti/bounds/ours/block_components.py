"""Parts of real networks with their Lipschitz constant and the largest norm of their output.

Norms of sequences are those of the longest row. A piece is described by norms alone. On inputs in a
ball it has a Lipschitz constant and an output radius, for all members of its class, and so for all
members of a cover that keeps these norms: weights may be exchanged one after the other.
"""

import abc
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from finetti.bounds import description as fields
from finetti.bounds.description import all_are
from finetti.bounds.ours.cover_allocation import WeightError
from finetti.bounds.ours.weight_classes import GainWeights, MatrixWeights, RowWeights, WeightClass
from finetti.core.arguments import as_positive, as_whole
from finetti.core.checked_fields import checked, one_of
from finetti.core.errors import bad_argument
from finetti.core.numerics.logspace import log_add

# Lipschitz constants, rounded up in the last digit. All of these σ have |σ(x)| ≤ |x|.
_LIPSCHITZ = {
    "identity": 1.0,
    "relu": 1.0,
    "tanh": 1.0,
    "gelu": 1.128905,  # Φ(√2) + √2φ(√2), at x = √2
    "gelu_tanh": 1.128994,  # x/2·(1 + tanh(√(2/π)(x + 0.044715x³))), at x = 1.4185
    "silu": 1.099840,  # x/(1 + e^−x), at x = 2.3994
}
SLOPES = tuple(_LIPSCHITZ)


def log_slope(activation: str) -> float:
    """log Lip(σ) of one of `SLOPES`.

    >>> round(math.exp(log_slope("silu")), 6)
    1.09984
    """
    return math.log(_LIPSCHITZ[activation])


@dataclass(frozen=True)
class ComponentBound:
    """A piece on inputs of a given radius: log Lip, the log of the output radius, its weights."""

    log_lipschitz: float
    log_radius: float
    parts: tuple[WeightError, ...] = ()

    def amplified(self, log_by: float) -> tuple[WeightError, ...]:
        """Its weights, with the multipliers of their errors times e^``log_by``."""
        return tuple(
            replace(each, log_multiplier=each.log_multiplier + log_by) for each in self.parts
        )


class Piece(fields.Description, abc.ABC, kw_only=True):
    """A part of a network that maps sequences to sequences."""

    @abc.abstractmethod
    def propagate(self, log_radius: float) -> ComponentBound:
        """Its constants on inputs whose rows are no longer than e^``log_radius``."""


def compose_pieces(pieces: Iterable[Piece], log_radius: float) -> ComponentBound:
    """One piece after the other: constants multiply, and so do the errors of earlier weights."""
    bounds = []
    for piece in pieces:
        bounds.append(piece.propagate(log_radius))
        log_radius = bounds[-1].log_radius
    # From the last to the first, so that every weight is multiplied once by all that follows.
    log_later, amplified = 0.0, []
    for bound in reversed(bounds):
        amplified.append(bound.amplified(log_later))
        log_later += bound.log_lipschitz
    return ComponentBound(log_later, log_radius, tuple(chain.from_iterable(reversed(amplified))))


def log_plus(*logs: float) -> float:
    """log of a sum."""
    total = -math.inf
    for each in logs:
        total = float(log_add(total, each))
    return total


def log_size(weights: WeightClass | None) -> float:
    """log of the largest norm of the weights; −∞ where there are none."""
    return -math.inf if weights is None else weights.log_size


Part = tuple[str, float, float, WeightClass | None]  # name, local factor, what they read, weights


def chained(*parts: Part) -> tuple[WeightError, ...]:
    """Those that are there, with the logs of their local factor and of the radius they read."""
    return tuple(
        WeightError(name, None, factor, weights, radius)
        for name, factor, radius, weights in parts
        if weights is not None
    )


def weights(kind: type[WeightClass], optional: bool = False) -> Any:
    """A field that holds weights of this kind, or nothing."""

    def check(value: Any, name: str, owner: str) -> Any:
        if not isinstance(value, kind):
            raise bad_argument(name, owner, f"a {kind.__name__}", repr(value))
        return value

    return checked(check, None) if optional else checked(check)


def activation() -> Any:
    """A field that holds the name of an activation."""
    return checked(one_of(*SLOPES), "gelu")


class NormalizationPiece(Piece, kw_only=True):
    """LayerNorm g ⊙ (x − x̄)/√(var + ε) + β, and RMSNorm, for which β is left out

    Lip = max|g|/√ε, because x/√(‖x‖²/d + ε) has the slope 1/√ε at 0 and less elsewhere; radius
    √d·max|g| + ‖β‖, wherever the input is.

    Args:
        gain: g, in the norm of its largest entry; its columns are d.
        shift: β, one row.
        epsilon: ε, under the root.

    >>> norm = NormalizationPiece(gain=GainWeights(rows=1, columns=64), epsilon=1e-4)
    >>> found = norm.propagate(0.0)
    >>> round(math.exp(found.log_lipschitz), 9), round(math.exp(found.log_radius), 9)
    (100.0, 8.0)
    """

    gain: GainWeights = weights(GainWeights)
    shift: RowWeights | None = weights(RowWeights, optional=True)
    epsilon: float = checked(as_positive, 1e-5)

    def propagate(self, log_radius: float) -> ComponentBound:
        """Lipschitz everywhere, and bounded."""
        root = math.log(self.gain.columns) / 2
        return ComponentBound(
            self.gain.log_size - math.log(self.epsilon) / 2,
            log_plus(root + self.gain.log_size, log_size(self.shift)),
            chained(("gain", 0.0, root, self.gain), ("shift", 0.0, 0.0, self.shift)),
        )


class LinearPiece(Piece, kw_only=True):
    """σ(xW + b): a projection of patches, a pooler, or the readout

    Lip(σ)‖W‖; radius ‖W‖ρ + ‖b‖.

    >>> found = LinearPiece(matrix=MatrixWeights(rows=8, columns=1, norm=3.0)).propagate(0.0)
    >>> round(math.exp(found.log_lipschitz), 9), len(found.parts)
    (3.0, 1)
    """

    matrix: MatrixWeights = weights(MatrixWeights)
    bias: RowWeights | None = weights(RowWeights, optional=True)
    activation: str = checked(one_of(*SLOPES), "identity")
    name: str = "W"

    def propagate(self, log_radius: float) -> ComponentBound:
        """On a ball of any radius."""
        steep, size = log_slope(self.activation), self.matrix.log_size
        return ComponentBound(
            steep + size,
            log_plus(size + log_radius, log_size(self.bias)),
            chained(
                (self.name, steep, log_radius, self.matrix),
                (f"bias of {self.name}", steep, 0.0, self.bias),
            ),
        )


class EmbeddingPiece(Piece, kw_only=True):
    """A row for the token, one for its position, one for its segment: rows that are added

    It comes first, and is the same wherever its input is: what is before it does not matter. A
    table is as long as it was made, whatever the length of a sequence.

    >>> tokens, positions = (RowWeights(rows=n, columns=8, norm=0.5) for n in (1000, 512))
    >>> round(math.exp(EmbeddingPiece(tables=(tokens, positions)).propagate(0.0).log_radius), 9)
    1.0
    """

    tables: tuple[RowWeights, ...] = checked(all_are(RowWeights))

    def propagate(self, log_radius: float) -> ComponentBound:
        """Rows of all tables, added."""
        names = (f"embedding {i}" for i in range(1, len(self.tables) + 1))
        parts = (WeightError(n, None, 0.0, t) for n, t in zip(names, self.tables, strict=True))
        return ComponentBound(0.0, log_plus(*map(log_size, self.tables)), tuple(parts))


class ResidualPiece(Piece, kw_only=True):
    """x + f(norm(x)), or norm(x + f(x)): 1 + Lip(f)Lip(norm), or Lip(norm)(1 + Lip(f))

    Args:
        piece: f.
        normalization: norm; None for x + f(x).
        order: "pre" or "post".
        layer: what its weights are counted by, from 1.
    """

    piece: Piece
    normalization: NormalizationPiece | None = None
    order: Literal["pre", "post"] = checked(one_of("pre", "post"), "pre")
    layer: int | None = None

    def propagate(self, log_radius: float) -> ComponentBound:
        """A residual adds 1."""
        norm = self.normalization
        before = (norm, self.piece) if norm is not None and self.order == "pre" else (self.piece,)
        inside = compose_pieces(before, log_radius)
        lipschitz = log_plus(0.0, inside.log_lipschitz)
        radius = log_plus(log_radius, inside.log_radius)
        found = ComponentBound(lipschitz, radius, inside.parts)
        if norm is not None and self.order == "post":
            after = norm.propagate(radius)
            parts = (*found.amplified(after.log_lipschitz), *after.parts)
            found = ComponentBound(after.log_lipschitz + lipschitz, after.log_radius, parts)
        numbered = tuple(replace(each, layer=self.layer) for each in found.parts)
        return replace(found, parts=numbered)


class RepeatedPiece(Piece, kw_only=True):
    """Pieces that run several times with the same weights, one round after the other

    An error of shared weights enters in every round: what it is multiplied by is added up, and
    they are covered once.

    Args:
        pieces: of one round.
        times: how many rounds.

    >>> once = LinearPiece(matrix=MatrixWeights(rows=8, columns=8, norm=2.0))
    >>> found = RepeatedPiece(pieces=(once,), times=3).propagate(0.0)
    >>> round(math.exp(found.log_lipschitz), 9), len(found.parts)
    (8.0, 1)
    >>> round(math.exp(found.parts[0].log_factor), 9)                       # 4·1 + 2·2 + 1·4
    12.0
    """

    pieces: tuple[Piece, ...] = checked(all_are(Piece))
    times: int = checked(as_whole)

    def propagate(self, log_radius: float) -> ComponentBound:
        """All rounds."""
        found = compose_pieces(self.pieces * self.times, log_radius)
        count = len(found.parts) // self.times
        merged = (
            replace(
                found.parts[i],
                log_multiplier=log_plus(*(each.log_factor for each in found.parts[i::count])),
                log_radius=0.0,
            )
            for i in range(count)
        )
        return replace(found, parts=tuple(merged))
