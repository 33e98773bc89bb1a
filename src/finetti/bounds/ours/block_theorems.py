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
    Bound,
)
from finetti.bounds.covering.dudley import dudley_upper_sum, gap_terms
from finetti.bounds.ours.block_network import BlockNetwork
from finetti.bounds.ours.cover_allocation import ChainedWeights, LengthFreeComposition
from finetti.bounds.ours.one_ball import OneBallComposition
from finetti.bounds.ours.radius_grid import Strata, Stratified
from finetti.bounds.ours.weight_classes import MatrixWeights, RowWeights
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.networks import ASSUMED_OF_THE_LAYERS
from finetti.bounds.sparse_variables.transformer_class import TransformerClass
from finetti.bounds.value import BoundKind, BoundValue, log_of
from finetti.core.numbers import smallest_of

CoverKind = Literal["apart", "together"]
Composed = LengthFreeComposition | OneBallComposition
RadiiKind = Literal["fixed", "stratified", "measured"]
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
ASSUMED_OF_RADII = (
    "norms bound the class: fixed before training (`radii` 'fixed'), or trained ones, each moved "
    "to the next point of a grid, which costs a term ('stratified'); trained norms without it "
    "('measured') give a scaling quantity",
)
_NOT_TRAINED = ("activation_lipschitz", "position_norm")  # of a TransformerClass
RICH = "The class is too rich for this sample: its complexity is as large as it can be."
MEASURED = "Norms are as measured after training, without the price of choosing the class then."


class LengthFreeCovering(Bound):
    """log N of a network at one ``resolution`` ε: the covers of its weights, added."""

    quantity = "log covering number"

    functions: Any
    resolution: float = fields.resolution()

    def composed(self, functions: Any, sample: Sample) -> Composed:
        """All weights with what multiplies their errors."""
        return _composition(functions, sample.input_norm)

    def _evaluate(self, sample: Sample) -> BoundValue:
        composition = self.composed(self.functions, sample)
        return self.value(sample, *composition.terms(math.log(self.resolution)))


class LengthFreeGap(Bound):
    """The gap: Dudley's integral of the cover by an upper sum, then Lemma 2.2.

    The integral is that of the losses, whose cover at L·ε is that of the functions at ε.

    Args:
        functions: the class.
        radii: whether its norms were "fixed" before training; trained ones are rounded up to a
            grid and pay for it ("stratified"), or do not ("measured"): a scaling quantity.
        two_sided: bound |gap|; False: only how much the test error exceeds the training error.
    """

    quantity = "generalization gap"
    needs_bounded_loss = True

    functions: Any
    radii: RadiiKind = fields.choice("fixed", "stratified", "measured")
    two_sided: bool = True

    @property
    def kind(self) -> BoundKind:
        """An upper bound, unless trained norms are taken for a class that was fixed."""
        return "scaling" if self.radii == "measured" else super().kind

    @property
    def strata(self) -> Stratified[Any]:
        """The class that is bounded, and the price of its radii."""
        return (
            _strata(self.functions)
            if self.radii == "stratified"
            else Stratified(self.functions, ())
        )

    def composed(self, functions: Any, sample: Sample) -> Composed:
        """All weights with what multiplies their errors."""
        return _composition(functions, sample.input_norm)

    def _evaluate(self, sample: Sample) -> BoundValue:
        strata = self.strata
        composition = self.composed(strata.rounded, sample)
        # A fixed function may be subtracted from all, the one with every Δ = 0, for example. Losses
        # lie in an interval of length b, so that one is enough where ε·L exceeds half of it.
        loss = math.log(sample.loss_bound / 2) - log_of(sample.loss_lipschitz)
        log_range = smallest_of(strata.rounded.log_range(sample), composition.log_spread, loss)
        found = dudley_upper_sum(composition.log_log_cover, log_range, sample.log_samples)
        shared = found.log_resolution > -math.inf
        parts = composition.terms(found.log_resolution)[1] if shared else ()
        post_hoc = strata.post_hoc
        total, terms = gap_terms(found.log_value, sample, parts, self.two_sided, post_hoc)
        notes = [RICH] if found.trivial else []
        if strata.radii:
            count = len(strata.radii)
            notes.append(f"{count} radii chosen after training add {post_hoc:.4g} to log(3/δ).")
        notes += [MEASURED] * (self.radii == "measured")
        return self.value(sample, total, terms, notes=notes)


class ProjectedLengthFreeCovering(LengthFreeCovering):
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

    functions: TransformerClass = fields.part(TransformerClass)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_network(self.functions.shape, self.form)


class ProjectedLengthFreeGap(LengthFreeGap):
    """The generalization gap of a deep Transformer from covers without T."""

    name = "F-cover-length-gap"
    title = "the generalization gap of a deep Transformer, whatever the context length"
    statement = "training and test error of L layers differ by order √(P/n), whatever T is"
    citation = "Covers without T and Lemma 2.2, finetti"
    assumes = (*ASSUMED_OF_THE_LAYERS, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)

    functions: TransformerClass = fields.part(TransformerClass)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_network(self.functions.shape, self.form)


class BlocksCovering(LengthFreeCovering):
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

    functions: BlockNetwork = fields.part(BlockNetwork)
    cover: CoverKind = fields.choice("apart", "together")

    def composed(self, functions: Any, sample: Sample) -> Composed:
        """Weight by weight, or as one vector."""
        return _one_way(self.cover, super().composed(functions, sample))


class BlocksGap(LengthFreeGap):
    """The generalization gap of real blocks, or of what a fine-tuning moved."""

    name = "F-chain-blocks-gap"
    title = "the generalization gap of real blocks, whatever the context length"
    statement = "training and test error of L real blocks differ by order √(P/n), whatever T is"
    citation = "Real blocks and Lemma 2.2, finetti"
    assumes = (*ASSUMED_OF_BLOCKS, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)

    functions: BlockNetwork = fields.part(BlockNetwork)
    cover: CoverKind = fields.choice("apart", "together")

    def composed(self, functions: Any, sample: Sample) -> Composed:
        """Weight by weight, or as one vector."""
        return _one_way(self.cover, super().composed(functions, sample))


def _one_way(cover: CoverKind, found: Composed) -> Composed:
    return OneBallComposition(found.parts) if cover == "together" else found


@lru_cache(maxsize=32)
def _composition(functions: Any, input_norm: float) -> LengthFreeComposition:
    """Kept, with the allocations that it found: every n of an inversion asks for them."""
    sample = Sample(1, 1, input_norm=input_norm)
    if isinstance(functions, TransformerClass):
        return projected_composition(functions, sample)
    return functions.composition(sample)


@lru_cache(maxsize=32)
def _strata(functions: Any) -> Stratified[Any]:
    return Strata().round_class(functions, _NOT_TRAINED)


def projected_composition(network: TransformerClass, sample: Sample) -> LengthFreeComposition:
    """The matrices of Theorem A.17 with the multipliers of its proof, in spectral norm."""
    d, k = network.width, network.columns
    names = network.composition(sample, "derived").matrices
    weights: list[Any] = [RowWeights(rows=1, columns=d, norm=network.readout_norm)]
    for layer in network.layers:
        output, score, value = layer.output_norm, layer.score_norm, layer.value_norm
        long = layer.output_column_norm, layer.score_row_norm, layer.value_column_norm
        shapes = (k, d, output, d), (d, d, score, d), (d, k, value, k)
        for (rows, columns, norm, count), longest in zip(shapes, long, strict=True):
            matrix = MatrixWeights(rows=rows, columns=columns, norm=norm)
            weights.append(replace(matrix, frobenius_norm=math.sqrt(count) * longest))
    parts = zip(names, network.log_multipliers(sample), weights, strict=True)
    return LengthFreeComposition(
        tuple(ChainedWeights(each.name, each.layer, factor, w) for each, factor, w in parts)
    )
