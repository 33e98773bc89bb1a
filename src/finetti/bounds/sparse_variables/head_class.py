"""Descriptions of one attention head and of several that are added (Section 3.2, A.5)."""

import abc
import math
from typing import Any, ClassVar

import numpy as np

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.bound import Bound, NetworkShape, PositionKind
from finetti.bounds.covering.composition import Composition, Matrix
from finetti.bounds.covering.network_bounds import NetworkClass
from finetti.bounds.description import BoundSettings
from finetti.bounds.sparse_variables.array_norms import head_norms, query_key
from finetti.bounds.value import OF_THE_LOSS, Sample, log_of
from finetti.core.arguments import Form, as_norm
from finetti.core.errors import bad_argument
from finetti.core.numerics.logspace import log_sum


def _read_positions(settings: BoundSettings, name: str, bound: Any) -> str:
    return settings.value(name, "fixed" if settings.norm("position_norm", 0.0) else "none")


class SoftmaxClass(NetworkClass, abc.ABC, kw_only=True):
    """Functions with sizes, positions and a constant of softmax, covered matrix by matrix.

    Args:
        width: d, the dimension of a token; in cross-attention that of the query.
        head_dimension: k, the number of columns of W_V; the width by default.
        positions: "none", "fixed" vectors added to the tokens, or "trained" ones (refused).
        position_norm: B_P, the length of the longest of them: B_X becomes B_X + B_P (A.4).
        norm_lipschitz: C of Corollary A.7; by default 1, which is sharp (printed: 2).
    """

    width: int = fields.size("width")
    head_dimension: int | None = fields.size("head_width", None)
    positions: PositionKind = fields.choice("none", "fixed", "trained", read=_read_positions)
    position_norm: float = fields.norm(0.0)
    norm_lipschitz: float | None = fields.number(None, as_norm)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "head_dimension", self.columns)
        if self.positions == "none" and self.position_norm:
            raise bad_argument(
                "positions", type(self).__name__, "'fixed' where there is a `position_norm`", "none"
            )

    @property
    def columns(self) -> int:
        """k, the number of columns of W_V."""
        return self.width if self.head_dimension is None else self.head_dimension

    @property
    def constant(self) -> float:
        """C with ‖softmax(θ) − softmax(θ')‖₁ ≤ C‖θ − θ'‖_∞."""
        return softmax_constant() if self.norm_lipschitz is None else self.norm_lipschitz

    def token_norm(self, sample: Sample) -> float:
        """B_X + B_P."""
        return sample.input_norm + self.position_norm

    @property
    def shape(self) -> NetworkShape:
        """What a bound may not cover; trained positions, for one."""
        return NetworkShape(positions=self.positions, position_norm=self.position_norm)

    def notes(self) -> tuple[str, ...]:
        """That positions make the tokens longer."""
        return ("Positions make the tokens longer: B_X + B_P (A.4).",) if self.position_norm else ()


class SoftmaxHeadNorms(fields.Description, kw_only=True):
    """The norms of one head σ(softmax(zᵀW_QW_KᵀXᵀ)XW_V)W_C.

    Args:
        value_norm: B_V, the spectral norm of W_V.
        value_column_norm: B_V^∞, the largest COLUMN norm of W_V (erratum 9).
        score_row_norm: B_QK^∞, the largest ROW norm of W_QK = W_QW_Kᵀ (erratum 9).
        out_lipschitz: L_out: L_σ, times the spectral norm of W_C where there is one (not trained).
    """

    value_norm: float = fields.norm(1.0)
    value_column_norm: float = fields.norm(1.0, like="value_norm")  # no column is longer
    score_row_norm: float = fields.norm(1.0, like="score_norm")
    out_lipschitz: float = fields.norm(1.0, like="activation_lipschitz")


def _read_readout(settings: BoundSettings, name: str, bound: type[Bound]) -> Any:
    """A loss needs one number per sequence, so there is a readout in a bound of a gap."""
    return settings.value(name, 1.0 if bound.quantity in OF_THE_LOSS else None)


class AttentionClass(SoftmaxClass, kw_only=True):
    """What a head and a layer of heads have in common; sizes and positions as in `SoftmaxClass`.

    Args:
        query_norm: B_τ, the length of the query; None for self-attention, where it is a token.
        class_token: whether a token [CLS] is added, so that there are T + 1 tokens.
        readout_norm: B_w of a trained readout wᵀy; None: the output is the vector y.
    """

    query_norm: float | None = fields.norm(None)
    class_token: bool = fields.flag(False)
    readout_norm: float | None = fields.setting(None, as_norm, _read_readout, norm=True)

    # What stands before B_QK^∞B_V in print: 1 in Corollary 4.4, 2 in A.12 (erratum 1).
    printed_constant: ClassVar[float] = 1.0

    @property
    @abc.abstractmethod
    def each(self) -> tuple[SoftmaxHeadNorms, ...]:
        """The norms of every head."""

    @property
    def scalar(self) -> bool:
        """Whether there is a readout."""
        return self.readout_norm is not None

    def log_points(self, sample: Sample) -> float:
        """log N of the tokens: mT, or m(T + 1) with [CLS]."""
        return sample.log_samples + log_of(sample.context_length + self.class_token)

    def log_range(self, sample: Sample) -> float:
        """log of B_w Σ_h L_out B_V B_X: outputs are no longer than their largest value vector."""
        total = log_sum(
            [log_of(each.out_lipschitz) + log_of(each.value_norm) for each in self.each]
        )
        readout = 1.0 if self.readout_norm is None else self.readout_norm
        return float(total) + log_of(self.token_norm(sample)) + log_of(readout)

    def log_costs(self, head: SoftmaxHeadNorms, sample: Sample, form: Form) -> tuple[float, float]:
        """log c_V and log c_QK of `HeadCovering`.

        Printed: c_QK lacks B_X B_τ, and the constant is 1, or 2 in A.12 (erratum 1). With positions
        A.4 prints 2·B_X in their place.
        """
        token = log_of(self.token_norm(sample))
        common = log_of(head.out_lipschitz) + token
        value = math.log(self.columns) + common + log_of(head.value_column_norm)
        score = (
            math.log(self.width) + common + log_of(head.value_norm) + log_of(head.score_row_norm)
        )
        if form == "printed" and self.positions == "fixed":
            return value, score + math.log(2) + token
        if form == "printed":
            return value, score + log_of(self.printed_constant)
        query = token if self.query_norm is None else log_of(self.query_norm + self.position_norm)
        return value, score + token + query + log_of(self.constant)

    def composition(self, sample: Sample, form: Form) -> Composition:
        """W_V and W_QK of every head, and w."""
        points = self.log_points(sample)
        readout = 0.0 if self.readout_norm is None else log_of(self.readout_norm)
        matrices = []
        for index, head in enumerate(self.each, start=1):
            value, score = (cost + readout for cost in self.log_costs(head, sample, form))
            mark = f" of head {index}" if len(self.each) > 1 else ""
            matrices.append(Matrix(f"W_V{mark}", None, value, self.columns, points))
            matrices.append(Matrix(f"W_QK{mark}", None, score, self.width, points))
        if self.readout_norm is not None:
            cost = self.log_range(sample)
            matrices.append(Matrix("w", None, cost, 1, sample.log_samples))
        return Composition(tuple(matrices))


class HeadClass(AttentionClass, SoftmaxHeadNorms, kw_only=True):
    """All heads with these norms (Corollary 4.4, edelman2022).

    >>> head = HeadClass(width=8, value_norm=0.9, value_column_norm=0.7, score_row_norm=0.8)
    >>> head.head_dimension, head.out_lipschitz
    (8, 1.0)
    """

    @property
    def each(self) -> tuple[SoftmaxHeadNorms, ...]:
        """This head."""
        return (self,)

    @classmethod
    def from_arrays(
        cls,
        *,
        query: Any,
        key: Any,
        value: Any,
        output: Any = None,
        activation_lipschitz: float = 1.0,
        **others: Any,
    ) -> "HeadClass":
        """The smallest class that contains a given head.

        Args:
            query, key: W_Q and W_K, which give scores zᵀW_QW_Kᵀx without a factor 1/√d_k.
            value, output: W_V, and W_C if there is one.
            activation_lipschitz: L_σ.
            others: the other fields, as ``readout_norm``.

        >>> import numpy as np
        >>> eye = np.eye(3)
        >>> head = HeadClass.from_arrays(query=eye, key=eye, value=2 * np.ones((3, 2)))
        >>> head.width, head.head_dimension, round(head.value_norm, 6), head.score_row_norm
        (3, 2, 4.898979, 1.0)
        """
        scores = query_key(query, key)
        norms = head_norms(scores, value, output, activation_lipschitz)
        # W_QK has one output per row: as many as the query is wide, also in cross-attention.
        sizes = {"width": len(scores), "head_dimension": np.shape(value)[-1]}
        return cls(**{**sizes, **norms, **others})


class MultiHeadClass(AttentionClass, kw_only=True):
    """All sums of heads with these norms (A.5, edelman2022)."""

    printed_constant = 2.0

    heads: tuple[SoftmaxHeadNorms, ...] = fields.parts(SoftmaxHeadNorms)

    @property
    def each(self) -> tuple[SoftmaxHeadNorms, ...]:
        """The heads."""
        return self.heads

    @classmethod
    def from_arrays(
        cls,
        *,
        query: Any,
        key: Any,
        value: Any,
        output: Any = None,
        activation_lipschitz: float = 1.0,
        **others: Any,
    ) -> "MultiHeadClass":
        """As `HeadClass.from_arrays`, of arrays with the heads as their first axis."""
        outputs = [None] * len(value) if output is None else output
        norms = (
            SoftmaxHeadNorms(**head_norms(query_key(q, k), v, c, activation_lipschitz))
            for q, k, v, c in zip(query, key, value, outputs, strict=True)
        )
        sizes = {"width": np.shape(query)[1], "head_dimension": np.shape(value)[2]}
        return cls(heads=tuple(norms), **{**sizes, **others})
