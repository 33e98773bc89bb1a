"""Corollary 4.4, A.4, A.5 and Theorem A.17: heads, layers of heads, and deep networks."""

import math

from finetti.attention.lipschitz.sparse_constants import layer_constant
from finetti.bounds import description as fields
from finetti.bounds.bound import (
    ASSUMED_OF_A_SAMPLE,
    FIXED_POSITIONS,
    NO_LAYER_NORM,
    NO_RESIDUALS,
    ONE_HEAD,
    ONE_LAYER,
    UNIT_BALL,
    Bound,
)
from finetti.bounds.covering.composition import Composition, Matrix
from finetti.bounds.covering.network_bounds import (
    ASSUMED_OF_RADII,
    NetworkCovering,
    NetworkGap,
    log_log_points,
)
from finetti.bounds.sparse_variables.head_class import HeadClass, MultiHeadClass
from finetti.bounds.sparse_variables.transformer_class import TransformerClass
from finetti.bounds.value import BoundValue, Sample, Term, log_of
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.log_number import LogNumber

ASSUMED_OF_A_LAYER = (ONE_LAYER, NO_RESIDUALS, NO_LAYER_NORM, FIXED_POSITIONS)
ASSUMED_OF_A_HEAD = (ONE_HEAD, *ASSUMED_OF_A_LAYER)
ASSUMED_OF_THE_LAYERS = (ONE_HEAD, NO_RESIDUALS, UNIT_BALL, FIXED_POSITIONS)


class HeadCovering(NetworkCovering):
    """log N_∞ ≤ 36(γ²/ε²) Σ_j c_j^{2/3} log(2⌈4γc_j^{1/3}/(√d_j ε) + 2⌉N + 1)   Corollary 4.4

        γ = Σ c_j^{2/3},  c_V = k L_σ B_V^∞ B_X,  c_QK = C d L_σ B_V B_QK^∞ B_X² B_τ

    Printed: (dL_σB_X)²((B_V^∞)^{2/3} + (B_QK^∞B_V)^{2/3})³/ε² · log(mT), a scaling quantity without
    B_X B_τ (erratum 1).

    >>> head = HeadClass(width=8, value_norm=.9, value_column_norm=.7, score_row_norm=.8,
    ...                  out_lipschitz=1.2, norm_lipschitz=2.0)
    >>> sample = Sample(n_samples=1000, context_length=50, input_norm=1.5)
    >>> round(HeadCovering(head, resolution=0.3).evaluate(sample).value, 3)
    37434167.337
    """

    name = "S-cor-4.4"
    title = "the capacity of one head"
    statement = "log N_∞ of a head grows with its norms and with log T"
    citation = "Corollary 4.4, edelman2022"
    assumes = ASSUMED_OF_A_HEAD
    printed_kind = "scaling"

    functions: HeadClass = fields.part(HeadClass)


class HeadGap(NetworkGap):
    """The generalization gap of one head with a readout, from Corollary 4.4 by Dudley and A.4."""

    name = "S-cor-4.4-gap"
    title = "the generalization gap of one head"
    statement = "training and test error of a head differ by order √(log T / n)"
    citation = "Corollary 4.4 with Lemma 2.2, edelman2022"
    assumes = (*ASSUMED_OF_A_HEAD, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)
    printed_kind = "scaling"

    functions: HeadClass = fields.part(HeadClass)


class MultiHeadCovering(NetworkCovering):
    """The cover of a sum of heads: the terms of Corollary 4.4 of all heads together   Lemma A.12

    H equal heads multiply γ³ by H³. Printed: with 2B_QK^∞B_V and without B_X B_τ (erratum 1).

    >>> from finetti.bounds.sparse_variables import SoftmaxHeadNorms
    >>> heads = [SoftmaxHeadNorms(value_norm=a, value_column_norm=b, score_row_norm=c,
    ...                           out_lipschitz=1.2)
    ...          for a, b, c in ((.9, .7, .8), (.5, .4, .3), (1.1, .6, .2))]
    >>> layer = MultiHeadClass(heads=tuple(heads), width=8, norm_lipschitz=2.0)
    >>> sample = Sample(n_samples=1000, context_length=50, input_norm=1.5)
    >>> round(MultiHeadCovering(layer, resolution=0.3).evaluate(sample).value, 3)
    314357142.239
    """

    name = "S-lemma-A.12"
    title = "the capacity of several heads"
    statement = "log N_∞ of a sum of H heads: all terms together, H³ if they are alike"
    citation = "Lemma A.12, edelman2022"
    assumes = ASSUMED_OF_A_LAYER
    printed_kind = "scaling"

    functions: MultiHeadClass = fields.part(MultiHeadClass)


class MultiHeadGap(NetworkGap):
    """The generalization gap of a layer of heads with a readout, by Dudley and A.4."""

    name = "S-lemma-A.12-gap"
    title = "the generalization gap of several heads"
    statement = "training and test error of H heads differ by order √(log T / n)"
    citation = "Lemma A.12 with Lemma 2.2, edelman2022"
    assumes = (*ASSUMED_OF_A_LAYER, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)
    printed_kind = "scaling"

    functions: MultiHeadClass = fields.part(MultiHeadClass)


class ProjectedTransformerCovering(NetworkCovering):
    """The cover of a depth-L network: every matrix of every layer           Theorem A.17

        c_C(i) = B_wA_i d L_σ q_i B_C^∞,  c_QK(i) = B_wA_i C d L_σB_CB_VB_QK^∞ r_i³,
        c_V(i) = B_wA_i k L_σB_CB_V^∞ r_i,  c_w = B_w r_{L+1},  A_i = Π_{j>i} p_j

    composed as in Corollary 4.4, on N = m(T+1) points. Printed: a scaling quantity with α_i, the
    product over the layers before i, for A_i, and without B_w (errata 2 and 10).

    >>> from finetti.bounds.sparse_variables import ProjectedLayerNorms
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

    name = "S-thm-A.17"
    title = "the capacity of a deep Transformer"
    statement = "log N_∞ of L layers: each matrix times the layers after it, log T"
    citation = "Theorem A.17, edelman2022"
    assumes = ASSUMED_OF_THE_LAYERS
    printed_kind = "scaling"

    functions: TransformerClass = fields.part(TransformerClass)


class ProjectedTransformerGap(NetworkGap):
    """The generalization gap of a deep Transformer, from Theorem A.17 by Dudley and A.4."""

    name = "S-thm-A.17-gap"
    title = "the generalization gap of a deep Transformer"
    statement = "training and test error of L layers differ by order √(log T / n)"
    citation = "Theorem A.17 with Lemma 2.2, edelman2022"
    assumes = (*ASSUMED_OF_THE_LAYERS, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)
    printed_kind = "scaling"

    functions: TransformerClass = fields.part(TransformerClass)


class UniformTransformer(Bound):
    """(C₂L_σ)^{O(L)} · B_X²B_w²d²C_∞²/ε² · log(mT), for B_X ≤ 1          Theorem 4.6, edelman2022

    Derived: Theorem A.17 with each of its 3L + 1 costs replaced by the largest possible,
    B_wB_X·d·C_∞·P^L with P = L_σC₂²(1 + 2C₂) and C₂, L_σ ≥ 1: an upper bound with all constants.
    The readout's own cost, B_w r_{L+1} ≤ B_wB_X·L_σ‖W_C‖‖W_V‖·P^{L−1}, has C_∞ by ‖W_C‖ ≤ √d·C_∞:
    a matrix with at most d columns of length C_∞ has at most that spectral norm.
    Norms of 1 give 3 per layer; that networks grow less then needs another proof
    (S-thm-4.6-depth), which is not in this bound. Printed: any B_X, and an exponent that the
    paper leaves open, here 6L, which P² ≤ 9(C₂L_σ)⁶ suggests.

    Args:
        n_layers: L.
        width: d, at least the head dimension.
        spectral_norm: C₂, for W_C, W_V and W_QK of all layers.
        column_norm: C_∞, for the columns of W_C and W_V and the rows of W_QK.
        activation_lipschitz: L_σ.
        readout_norm: B_w.
        resolution: ε.

    >>> bound = UniformTransformer(n_layers=2, width=8, form="printed")
    >>> round(bound.evaluate(Sample(100, 100)).value, 6) == round(8**2 / 0.1**2 * math.log(1e4), 6)
    True
    """

    name = "S-thm-4.6"
    title = "the capacity of a deep Transformer, by two norms"
    statement = "log N_∞ of L layers ≤ (C_2·L_act)^O(L)·B_X²·B_w²·d²·C_∞²/ε²·log(n·T)"
    citation = "Theorem 4.6, edelman2022"
    quantity = "log covering number"
    assumes = (*ASSUMED_OF_THE_LAYERS, "tokens of length at most 1, and heads no wider than they")
    printed_kind = "scaling"

    n_layers: int = fields.size("n_layers")
    width: int = fields.size("width")
    spectral_norm: float = fields.norm(1.0)
    column_norm: float = fields.norm(1.0, like="spectral_norm")
    activation_lipschitz: float = fields.norm(1.0)
    readout_norm: float = fields.norm(1.0)
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        common = [
            Term("input norm", log_value=log_of(sample.input_norm)),
            Term("readout norm", log_value=log_of(self.readout_norm)),
            Term("width", log_value=math.log(self.width)),
            Term("column norm", log_value=log_of(self.column_norm)),
        ]
        if self.form == "printed":
            steepness = log_of(self.spectral_norm) + log_of(self.activation_lipschitz)
            grown = 6 * self.n_layers * steepness
            squares = 2 * (sum(term.log_value for term in common) - math.log(self.resolution))
            total = grown + squares + log_log_points(sample)
            return self.value(sample, total, (Term("depth", log_value=grown / 2), *common))
        if sample.input_norm > 1:
            raise self.refuse(
                f"tokens of length at most 1, and here it is {sample.input_norm:g}: B_X² is "
                "wrong there (erratum 10)",
                "S-thm-A.17.",
            )
        steep, size = (
            largest_of(1.0, self.activation_lipschitz),
            largest_of(1.0, self.spectral_norm),
        )
        size = LogNumber.from_float(size)
        grown = self.n_layers * layer_constant(steep, size, size, size).log
        cost = grown + sum(term.log_value for term in common)
        points = sample.log_samples + log_of(sample.context_length + 1)
        parts = (Matrix("any", None, cost, 1, points),) * (3 * self.n_layers + 1)
        total = Composition(parts).log_log_cover(math.log(self.resolution))
        return self.value(sample, total, (Term("depth", log_value=grown), *common))
