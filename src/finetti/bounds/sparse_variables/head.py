"""Corollary 4.4: the capacity of one attention head, logarithmic in the context length."""

from dataclasses import dataclass
from typing import ClassVar

from finetti.bounds.assumptions import (
    ASSUMED_OF_A_SAMPLE,
    FIXED_POSITIONS,
    NO_LAYER_NORM,
    NO_RESIDUALS,
    ONE_HEAD,
    ONE_LAYER,
)
from finetti.bounds.base import Bound
from finetti.bounds.covering.composed import ComposedCovering, ComposedGap
from finetti.bounds.settings import BoundSettings
from finetti.bounds.sparse_variables.head_class import HeadClass
from finetti.bounds.sparse_variables.reading import (
    attention_fields,
    check_sizes,
    read_head_norms,
)

ASSUMED_OF_A_LAYER = (ONE_LAYER, NO_RESIDUALS, NO_LAYER_NORM, FIXED_POSITIONS)
ASSUMED_OF_A_HEAD = (ONE_HEAD, *ASSUMED_OF_A_LAYER)


def head_class(bound: type[Bound], settings: BoundSettings, scalar: bool) -> HeadClass:
    """The head that ``settings`` describe."""
    check_sizes(bound, settings, one_layer=True, one_head=True)
    return HeadClass(**read_head_norms(settings), **attention_fields(settings, scalar))


@dataclass(frozen=True)
class HeadCovering(ComposedCovering):
    """log N_∞ ≤ 36(γ²/ε²) Σ_j c_j^{2/3} log(2⌈4γc_j^{1/3}/(√d_j ε) + 2⌉N + 1)   Corollary 4.4

        γ = Σ c_j^{2/3},  c_V = k L_σ B_V^∞ B_X,  c_QK = C d L_σ B_V B_QK^∞ B_X² B_τ

    Printed: (dL_σB_X)²((B_V^∞)^{2/3} + (B_QK^∞B_V)^{2/3})³/ε² · log(mT), a scaling quantity without
    B_X B_τ (erratum 1).

    Args:
        functions: a `HeadClass`.
        resolution: ε.

    >>> from finetti.bounds import Sample
    >>> head = HeadClass(width=8, value_norm=.9, value_column_norm=.7, score_row_norm=.8,
    ...                  out_lipschitz=1.2, norm_lipschitz=2.0)
    >>> sample = Sample(n_samples=1000, context_length=50, input_norm=1.5)
    >>> round(HeadCovering(head, resolution=0.3).evaluate(sample).value, 3)
    37434167.337
    """

    name: ClassVar[str] = "S-cor-4.4"
    title: ClassVar[str] = "the capacity of one head"
    statement: ClassVar[str] = "log N_∞ of a head grows with its norms and with log T"
    citation: ClassVar[str] = "Corollary 4.4, edelman2022"
    assumes: ClassVar[tuple[str, ...]] = ASSUMED_OF_A_HEAD

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "HeadCovering":
        """One head; with ``readout_norm`` in the norms, one number per sequence."""
        head = head_class(cls, settings, scalar=False)
        return cls(head, settings.resolution, form=settings.form)


@dataclass(frozen=True)
class HeadGap(ComposedGap):
    """The generalization gap of one head with a readout, from Corollary 4.4 by Dudley and A.4."""

    name: ClassVar[str] = "S-cor-4.4-gap"
    title: ClassVar[str] = "the generalization gap of one head"
    statement: ClassVar[str] = "training and test error of a head differ by order √(log T / n)"
    citation: ClassVar[str] = "Corollary 4.4 with Lemma 2.2, edelman2022"
    assumes: ClassVar[tuple[str, ...]] = (*ASSUMED_OF_A_HEAD, *ASSUMED_OF_A_SAMPLE)

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "HeadGap":
        """One head and a readout."""
        return cls(head_class(cls, settings, scalar=True), form=settings.form)
