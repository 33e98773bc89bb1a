"""A.5: the capacity of a layer of heads that are added."""

from dataclasses import dataclass
from typing import ClassVar

from finetti.bounds.assumptions import ASSUMED_OF_A_SAMPLE
from finetti.bounds.base import Bound
from finetti.bounds.covering.composed import ComposedCovering, ComposedGap
from finetti.bounds.settings import BoundSettings
from finetti.bounds.sparse_variables.head import ASSUMED_OF_A_LAYER
from finetti.bounds.sparse_variables.head_class import MultiHeadClass, SoftmaxHeadNorms
from finetti.bounds.sparse_variables.reading import attention_fields, check_sizes, read_head_norms


def multihead_class(bound: type[Bound], settings: BoundSettings, scalar: bool) -> MultiHeadClass:
    """The heads that ``settings`` describe: all alike, or one by one in the list ``heads``."""
    check_sizes(bound, settings, one_layer=True, one_head=False)
    parts = settings.each("heads", settings.n_heads)
    heads = tuple(SoftmaxHeadNorms(**read_head_norms(part)) for part in parts)
    for part in parts:
        part.check_used(f"A head of {bound.name}")
    return MultiHeadClass(heads=heads, **attention_fields(settings, scalar))


@dataclass(frozen=True)
class MultiHeadCovering(ComposedCovering):
    """The cover of a sum of heads: the terms of Corollary 4.4 of all heads together   Lemma A.12

    H equal heads multiply γ³ by H³. Printed: with 2B_QK^∞B_V and without B_X B_τ (erratum 1).

    Args:
        functions: a `MultiHeadClass`.
        resolution: ε.

    >>> from finetti.bounds import Sample
    >>> heads = [SoftmaxHeadNorms(value_norm=a, value_column_norm=b, score_row_norm=c,
    ...                           out_lipschitz=1.2)
    ...          for a, b, c in ((.9, .7, .8), (.5, .4, .3), (1.1, .6, .2))]
    >>> layer = MultiHeadClass(heads=tuple(heads), width=8, norm_lipschitz=2.0)
    >>> sample = Sample(n_samples=1000, context_length=50, input_norm=1.5)
    >>> round(MultiHeadCovering(layer, resolution=0.3).evaluate(sample).value, 3)
    314357142.239
    """

    name: ClassVar[str] = "S-lemma-A.12"
    title: ClassVar[str] = "the capacity of several heads"
    statement: ClassVar[str] = (
        "log N_∞ of a sum of H heads: all terms together, H³ if they are alike"
    )
    citation: ClassVar[str] = "Lemma A.12, edelman2022"
    assumes: ClassVar[tuple[str, ...]] = ASSUMED_OF_A_LAYER

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "MultiHeadCovering":
        """One layer of heads."""
        layer = multihead_class(cls, settings, scalar=False)
        return cls(layer, settings.resolution, form=settings.form)


@dataclass(frozen=True)
class MultiHeadGap(ComposedGap):
    """The generalization gap of a layer of heads with a readout, by Dudley and A.4."""

    name: ClassVar[str] = "S-lemma-A.12-gap"
    title: ClassVar[str] = "the generalization gap of several heads"
    statement: ClassVar[str] = "training and test error of H heads differ by order √(log T / n)"
    citation: ClassVar[str] = "Lemma A.12 with Lemma 2.2, edelman2022"
    assumes: ClassVar[tuple[str, ...]] = (*ASSUMED_OF_A_LAYER, *ASSUMED_OF_A_SAMPLE)

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "MultiHeadGap":
        """One layer of heads and a readout."""
        return cls(multihead_class(cls, settings, scalar=True), form=settings.form)
