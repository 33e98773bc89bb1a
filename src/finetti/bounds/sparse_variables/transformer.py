"""Theorem A.17: the capacity of a deep Transformer."""

from dataclasses import dataclass
from typing import ClassVar

from finetti.bounds.assumptions import (
    ASSUMED_OF_A_SAMPLE,
    FIXED_POSITIONS,
    NO_RESIDUALS,
    ONE_HEAD,
    UNIT_BALL,
)
from finetti.bounds.base import Bound
from finetti.bounds.covering.composed import ComposedCovering, ComposedGap
from finetti.bounds.settings import BoundSettings
from finetti.bounds.sparse_variables.reading import check_sizes, common_fields, read_layer_norms
from finetti.bounds.sparse_variables.transformer_class import ProjectedLayerNorms, TransformerClass

ASSUMED_OF_THE_LAYERS = (ONE_HEAD, NO_RESIDUALS, UNIT_BALL, FIXED_POSITIONS)


def transformer_class(bound: type[Bound], settings: BoundSettings) -> TransformerClass:
    """The network that ``settings`` describe: layers alike, or one by one in ``layers``."""
    check_sizes(bound, settings, one_layer=False, one_head=True)
    return layers_class(bound, settings)


def layers_class(bound: type[Bound], settings: BoundSettings) -> TransformerClass:
    """The same without a look at the number of heads."""
    parts = settings.each("layers", settings.n_layers)
    layers = tuple(ProjectedLayerNorms(**read_layer_norms(part)) for part in parts)
    for part in parts:
        part.check_used(f"A layer of {bound.name}")
    return TransformerClass(
        layers=layers,
        activation_lipschitz=settings.norm("activation_lipschitz"),
        readout_norm=settings.norm("readout_norm"),
        normalization=settings.value("normalization", "ball"),
        **common_fields(settings),
    )


@dataclass(frozen=True)
class ProjectedTransformerCovering(ComposedCovering):
    """The cover of a depth-L network: every matrix of every layer           Theorem A.17

        c_C(i) = B_wA_i d L_σ q_i B_C^∞,  c_QK(i) = B_wA_i C d L_σB_CB_VB_QK^∞ r_i³,
        c_V(i) = B_wA_i k L_σB_CB_V^∞ r_i,  c_w = B_w r_{L+1},  A_i = Π_{j>i} p_j

    composed as in Corollary 4.4, on N = m(T+1) points. Printed: a scaling quantity with the
    product over the layers before i and without B_w (errata 2 and 10).

    Args:
        functions: a `TransformerClass`.
        resolution: ε.

    >>> from finetti.bounds import Sample
    >>> names = ("output_norm", "value_norm", "score_norm",
    ...          "output_column_norm", "value_column_norm", "score_row_norm")
    >>> layers = [ProjectedLayerNorms(**dict(zip(names, norms))) for norms in
    ...           ((1.1, .8, .6, .5, .4, .3), (.7, 1.3, .4, .3, .6, .2))]
    >>> network = TransformerClass(layers=tuple(layers), width=8, head_dimension=4,
    ...                            readout_norm=2.0, norm_lipschitz=2.0)
    >>> bound = ProjectedTransformerCovering(network, resolution=0.3)
    >>> round(bound.evaluate(Sample(n_samples=1000, context_length=49)).value, 3)
    100528543.081
    """

    name: ClassVar[str] = "S-thm-A.17"
    title: ClassVar[str] = "the capacity of a deep Transformer"
    statement: ClassVar[str] = "log N_∞ of L layers: each matrix times the layers after it, log T"
    citation: ClassVar[str] = "Theorem A.17, edelman2022"
    assumes: ClassVar[tuple[str, ...]] = ASSUMED_OF_THE_LAYERS

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "ProjectedTransformerCovering":
        """Any number of layers of one head."""
        network = transformer_class(cls, settings)
        return cls(network, settings.resolution, form=settings.form)


@dataclass(frozen=True)
class ProjectedTransformerGap(ComposedGap):
    """The generalization gap of a deep Transformer, from Theorem A.17 by Dudley and A.4."""

    name: ClassVar[str] = "S-thm-A.17-gap"
    title: ClassVar[str] = "the generalization gap of a deep Transformer"
    statement: ClassVar[str] = "training and test error of L layers differ by order √(log T / n)"
    citation: ClassVar[str] = "Theorem A.17 with Lemma 2.2, edelman2022"
    assumes: ClassVar[tuple[str, ...]] = (*ASSUMED_OF_THE_LAYERS, *ASSUMED_OF_A_SAMPLE)

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "ProjectedTransformerGap":
        """Any number of layers of one head."""
        return cls(transformer_class(cls, settings), form=settings.form)
