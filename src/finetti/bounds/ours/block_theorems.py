"""Whole networks by covers without T: paper S's layers, real blocks, and their gaps."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from finetti.bounds import description as fields
from finetti.bounds.bound import (
    ASSUMED_OF_A_SAMPLE,
    FIXED_POSITIONS,
    IN_THE_TOKENS,
    REAL_BLOCKS,
)
from finetti.bounds.covering.network_bounds import (
    ASSUMED_OF_RADII,
    NetworkBound,
    NetworkCovering,
    NetworkGap,
)
from finetti.bounds.ours.block_network import BlockNetwork
from finetti.bounds.ours.cover_allocation import LengthFreeComposition, WeightCover, WeightError
from finetti.bounds.ours.one_ball import OneBallComposition
from finetti.bounds.ours.weight_classes import MatrixWeights, RowWeights
from finetti.bounds.sparse_variables.transformer_class import TransformerClass
from finetti.bounds.sparse_variables.transformer_theorems import ASSUMED_OF_THE_LAYERS
from finetti.bounds.value import Sample

CoverKind = Literal["apart", "together"]
ASSUMED_OF_BLOCKS = (
    REAL_BLOCKS,
    FIXED_POSITIONS,
    IN_THE_TOKENS,
    "attention is softmax over inner products, with or without masks, rotary or linear positions",
    "LayerNorm, or its kin without a mean, has a positive constant under its root (`epsilon`)",
    "activations are those of `activation`, each no larger than its argument",
    "the blocks are alike in kind, with H heads each; other networks are built in Python",
    "tokens are vectors of length B_X, or rows of trained tables (built in Python)",
)


class ProjectedLengthFree(NetworkBound):
    """What both bounds of Theorem A.17's networks share."""

    functions: TransformerClass = fields.part(TransformerClass)

    def composed(self, functions: TransformerClass, sample: Sample) -> LengthFreeComposition:
        """All weights with what multiplies their errors, in spectral norm."""
        return _composition(functions, sample.input_norm)


class ProjectedLengthFreeCovering(ProjectedLengthFree, NetworkCovering):
    """Theorem A.17's networks covered matrix by matrix in spectral norm: no T, no number of points

    The multipliers are those of Theorem A.17; W_C, W_QK and W_V are covered by their spectral norms
    or, through their columns, by their Frobenius norms.

    >>> from finetti.bounds.sparse_variables import ProjectedLayerNorms
    >>> network = TransformerClass(layers=(ProjectedLayerNorms(),) * 2, width=8)
    >>> bound = ProjectedLengthFreeCovering(network)
    >>> bound.evaluate(Sample(100, 10)) == bound.evaluate(Sample(100, 10**9))
    True
    """

    name = "F-cover-length"
    title = "the capacity of a deep Transformer, whatever the context length"
    statement = "log N_∞ of L layers: the covers of all matrices added, whatever T is"
    citation = "Covers without T, finetti"
    assumes = ASSUMED_OF_THE_LAYERS


class ProjectedLengthFreeGap(ProjectedLengthFree, NetworkGap):
    """The generalization gap of a deep Transformer from covers without T."""

    name = "F-cover-length-gap"
    title = "the generalization gap of a deep Transformer, whatever the context length"
    statement = "training and test error of L layers differ by order √(P/n), whatever T is"
    citation = "Covers without T and Lemma 2.2, finetti"
    assumes = (*ASSUMED_OF_THE_LAYERS, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)


class RealBlocks(NetworkBound):
    """What both bounds of real blocks share.

    Args:
        functions: the blocks.
        cover: "apart", weight by weight, or "together": all parameters are one vector.
    """

    functions: BlockNetwork = fields.part(BlockNetwork)
    cover: CoverKind = fields.choice("apart", "together")

    def composed(self, functions: BlockNetwork, sample: Sample) -> WeightCover:
        """Weight by weight, or as one vector."""
        found = functions.composition(sample)
        return OneBallComposition(found.parts) if self.cover == "together" else found


class BlocksCovering(RealBlocks, NetworkCovering):
    """Real blocks, covered weight by weight through the chain of their pieces: `BlockNetwork`

    With ``cover`` "together", all parameters are one vector: `OneBallComposition`.

    >>> from finetti.bounds import BoundSettings
    >>> settings = BoundSettings(n_layers=12, width=64, n_heads=4)
    >>> value = BlocksCovering.from_settings(settings).evaluate(Sample(100, 1000))
    >>> value.text, value.terms[0].layer, value.terms[0].matrix
    ('3.55e7', 1, 'gain')
    """

    name = "F-chain-blocks"
    title = "the capacity of real blocks, whatever the context length"
    statement = "log N_∞ of L real blocks: the covers of all weights added, whatever T is"
    citation = "The chain for real blocks, finetti"
    assumes = ASSUMED_OF_BLOCKS


class BlocksGap(RealBlocks, NetworkGap):
    """The generalization gap of real blocks, or of what a fine-tuning moved."""

    name = "F-chain-blocks-gap"
    title = "the generalization gap of real blocks, whatever the context length"
    statement = "training and test error of L real blocks differ by order √(P/n), whatever T is"
    citation = "Real blocks and Lemma 2.2, finetti"
    assumes = (*ASSUMED_OF_BLOCKS, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)


@lru_cache(maxsize=32)
def _composition(network: TransformerClass, input_norm: float) -> LengthFreeComposition:
    """Kept, with the allocations that it found: every n of an inversion asks for them."""
    return projected_composition(network, Sample(1, 1, input_norm=input_norm))


def projected_composition(
    network: TransformerClass, sample: Sample, n_heads: int = 1
) -> LengthFreeComposition:
    """The matrices of Theorem A.17 with the multipliers of its proof, in spectral norm.

    Of ``n_heads`` that are added in each layer, the matrices of one kind stand in a column: moving
    it by x in Frobenius norm moves the output as √H matrices that move by x do.
    """
    d, k, root = network.width, network.columns, math.sqrt(n_heads)
    names = network.composition(sample, "derived").matrices
    weights: list[Any] = [RowWeights(rows=1, columns=d, norm=network.readout_norm)]
    for layer in network.layers:
        output, score, value = layer.output_norm, layer.score_norm, layer.value_norm
        long = layer.output_column_norm, layer.score_row_norm, layer.value_column_norm
        shapes = (k, d, output, d), (d, d, score, d), (d, k, value, k)
        for (rows, columns, norm, count), longest in zip(shapes, long, strict=True):
            one = MatrixWeights(
                rows=rows, columns=columns, norm=norm, frobenius_norm=math.sqrt(count) * longest
            )
            if n_heads > 1:
                size = root * math.exp(one.log_frobenius)
                one = replace(one, rows=n_heads * rows, norm=root * norm, frobenius_norm=size)
            weights.append(one)
    readout, *others = network.added(n_heads).log_multipliers(sample)
    factors = [readout, *(each + math.log(root) for each in others)]
    parts = zip(names, factors, weights, strict=True)
    return LengthFreeComposition(
        tuple(WeightError(each.name, each.layer, factor, w) for each, factor, w in parts)
    )
