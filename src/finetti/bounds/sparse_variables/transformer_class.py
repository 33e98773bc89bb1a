"""The description of a deep network between projections onto the unit ball ((4.3), A.17)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

from finetti.attention.lipschitz.sparse_variables import layer_radii
from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.bounds import description as fields
from finetti.bounds.bound import NetworkShape, NormalizationKind
from finetti.bounds.covering.composition import Composition, Matrix
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables import measure
from finetti.bounds.sparse_variables.composed import SizedClass
from finetti.bounds.value import log_of
from finetti.core.forms import Form, check_form
from finetti.core.logspace import log_add
from finetti.core.numbers import smallest_of


def log_amplifications(log_factors: Sequence[float], form: Form = "derived") -> tuple[float, ...]:
    """`finetti.attention.lipschitz.amplifications` of logarithms: A_i = Π_{j>i} p_j, any depth.

    Printed: α_i = Π_{j<i} p_j (erratum 2).

    >>> [round(math.exp(each), 9) for each in log_amplifications([math.log(p) for p in (2, 3, 5)])]
    [15.0, 5.0, 1.0]
    """
    check_form(form, "log_amplifications")
    if form == "printed":
        return tuple(accumulate(log_factors[:-1], initial=0.0))
    return tuple(accumulate(log_factors[:0:-1], initial=0.0))[::-1]


def log_layer_constant(
    activation_lipschitz: float,
    output_norm: float,
    value_norm: float,
    score_norm: float,
    radius: float = 1.0,
    constant: float = 1.0,
) -> float:
    """log p = log L_σB_CB_V(1 + 2C·B_QK r²), for norms of any size             A.15, edelman2022

    The logarithm of `finetti.attention.lipschitz.layer_constant`.

    >>> round(log_layer_constant(1.0, 1e150, 1e150, 1e150) / math.log(10), 6)   # 2·10^450
    450.30103
    """
    scores = math.log(2) + log_of(constant) + log_of(score_norm) + 2 * log_of(radius)
    outside = log_of(activation_lipschitz) + log_of(output_norm) + log_of(value_norm)
    return outside + float(log_add(0.0, scores))


class ProjectedLayerNorms(fields.Description, kw_only=True):
    """The norms of one layer Π(σ(Π(f(g; W)))W_C).

    Args:
        output_norm, value_norm, score_norm: B_C, B_V, B_QK, spectral norms of W_C, W_V, W_QW_Kᵀ.
        output_column_norm: B_C^∞, the largest column norm of W_C.
        value_column_norm: B_V^∞, the largest column norm of W_V.
        score_row_norm: B_QK^∞, the largest row norm of W_QW_Kᵀ (erratum 9).
    """

    output_norm: float = fields.norm(1.0)
    value_norm: float = fields.norm(1.0)
    score_norm: float = fields.norm(1.0)
    output_column_norm: float = fields.norm(1.0, like="output_norm")  # no column is longer
    value_column_norm: float = fields.norm(1.0, like="value_norm")
    score_row_norm: float = fields.norm(1.0, like="score_norm")


class TransformerClass(SizedClass, kw_only=True):
    """All networks of L projected layers with these norms and a trained readout of [CLS].

    Sizes and positions are those of `SizedClass`.

    Args:
        layers: the norms of each layer.
        activation_lipschitz: L_σ.
        readout_norm: B_w.
        normalization: "ball": tokens are projected onto the unit ball; anything else is refused.
    """

    layers: tuple[ProjectedLayerNorms, ...] = fields.parts(ProjectedLayerNorms)
    activation_lipschitz: float = fields.norm(1.0)
    readout_norm: float = fields.norm(1.0)
    normalization: NormalizationKind = fields.choice("ball", "layer_norm", "none")

    @property
    def shape(self) -> NetworkShape:
        """Its layers, positions and normalization."""
        return replace(super().shape, n_layers=len(self.layers), normalization=self.normalization)

    @property
    def scalar(self) -> bool:
        """Always: [CLS] is read by w."""
        return True

    def radii(self, sample: Sample) -> tuple[float, ...]:
        """r_1, …, r_{L+1}: how long the tokens are before each layer, and after the last."""
        return _radii(self, self.token_norm(sample))

    def log_factors(self, sample: Sample, form: Form = "derived") -> tuple[float, ...]:
        """log p_i, what layer i multiplies a deviation by."""
        constant = softmax_constant("printed") if form == "printed" else self.constant
        found = []
        for layer, radius in zip(self.layers, self.radii(sample)[:-1], strict=True):
            norms = self.activation_lipschitz, layer.output_norm, layer.value_norm, layer.score_norm
            found.append(log_layer_constant(*norms, 1.0 if form == "printed" else radius, constant))
        return tuple(found)

    def log_range(self, sample: Sample) -> float:
        """log B_w r_{L+1}."""
        return log_of(self.readout_norm) + log_of(self.radii(sample)[-1])

    def composition(self, sample: Sample, form: Form) -> Composition:
        """W_C, W_QK and W_V of every layer, and w, as in `ProjectedTransformerCovering`.

        Printed: α_i for A_i, no B_w (erratum 2), r = q = 1 and no L_σ in c_C (erratum 10), C = 2.
        """
        printed = form == "printed"
        points = sample.log_samples + log_of(sample.context_length + 1)
        radii = self.radii(sample)
        steep, readout = log_of(self.activation_lipschitz), log_of(self.readout_norm)
        constant = softmax_constant("printed") if printed else self.constant
        amplified = log_amplifications(self.log_factors(sample, form), form)
        last = readout if printed else self.log_range(sample)
        matrices = [Matrix("w", None, last, 1, sample.log_samples)]
        log_d, log_k = math.log(self.width), math.log(self.columns)
        for i, (layer, radius, factor) in enumerate(
            zip(self.layers, radii[:-1], amplified, strict=True), start=1
        ):
            log_r = 0.0 if printed else log_of(radius)
            inside = 0.0 if printed else smallest_of(0.0, log_of(layer.value_norm) + log_r)
            carried = factor if printed else factor + readout
            through = carried + steep + log_of(layer.output_norm)
            output = carried + log_d + inside + log_of(layer.output_column_norm)
            score = through + log_d + log_of(layer.value_norm) + log_of(layer.score_row_norm)
            value = through + log_k + log_of(layer.value_column_norm) + log_r
            matrices += [
                Matrix("W_C", i, output if printed else output + steep, self.width, points),
                Matrix("W_QK", i, score + log_of(constant) + 3 * log_r, self.width, points),
                Matrix("W_V", i, value, self.columns, points),
            ]
        return Composition(tuple(matrices))

    def log_multipliers(self, sample: Sample) -> tuple[float, ...]:
        """log of how far the output moves per unit of each matrix of `composition`, in its order.

        A matrix moves in spectral norm, by which Lemmas A.13, A.15 and A.16 hold as well.
        """
        # With columns of length 1, a matrix's cost is its multiplier times its outputs.
        unit = replace(self, layers=tuple(map(_unit_columns, self.layers)))
        matrices = unit.composition(sample, "derived").matrices
        found = [each.log_cost - math.log(each.outputs) for each in matrices]
        # The cost of w carries its own norm; its multiplier is the length of what it reads.
        return (log_of(self.radii(sample)[-1]), *found[1:])

    @classmethod
    def from_weights(
        cls, weights: Any, readout: Any = None, **assumptions: Any
    ) -> "TransformerClass":
        """The smallest class that contains a given network.

        Args:
            weights: a `ProjectedTransformer`, or a list of mappings with ``query_weights``,
                ``key_weights``, ``value_weights``, ``output_weights`` and perhaps
                ``activation_lipschitz``.
            readout: w, a vector or a `TokenReadout` with one output; B_w = 1 without it.
            assumptions: the other fields.
        """
        found = measure.measure_layers(weights, cls.__name__)
        sizes = {
            name: max(layer.sizes[name] for layer in found) for name in ("width", "head_dimension")
        }
        layers = tuple(ProjectedLayerNorms(**layer.norms) for layer in found)
        fields: dict[str, Any] = {"activation_lipschitz": measure.steepest(weights), **sizes}
        fields |= measure.norm_lipschitz(found)
        if readout is not None:
            fields["readout_norm"] = measure.readout_norm(readout, cls.__name__)
        return cls(layers=layers, **{**fields, **assumptions})


def _unit_columns(layer: ProjectedLayerNorms) -> ProjectedLayerNorms:
    return replace(layer, output_column_norm=1.0, value_column_norm=1.0, score_row_norm=1.0)


@lru_cache(maxsize=16)
def _radii(network: TransformerClass, first: float) -> tuple[float, ...]:
    """Every part of a value asks for them, and a deep network has many."""
    outputs = [layer.output_norm for layer in network.layers]
    values = [layer.value_norm for layer in network.layers]
    radii = layer_radii(first, network.activation_lipschitz, outputs, values)
    return tuple(map(float, radii))
