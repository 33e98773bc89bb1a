"""The description of a deep network between projections onto the unit ball ((4.3), A.17)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from finetti.attention.lipschitz.sparse_constants import (
    amplifications,
    layer_constant,
    layer_radii,
    softmax_constant,
)
from finetti.bounds import description as fields
from finetti.bounds.bound import NetworkShape, NormalizationKind
from finetti.bounds.covering.composition import Composition, Matrix
from finetti.bounds.sparse_variables.array_norms import head_norms, query_key
from finetti.bounds.sparse_variables.head_class import SoftmaxClass
from finetti.bounds.value import Sample, log_of
from finetti.core.arguments import Form
from finetti.core.errors import bad_argument
from finetti.core.linalg.norms import max_column_norm, spectral
from finetti.core.numerics.extremes import smallest_of
from finetti.core.numerics.log_number import LogNumber


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

    @classmethod
    def from_arrays(cls, *, query: Any, key: Any, value: Any, output: Any) -> "ProjectedLayerNorms":
        """The norms of given W_Q, W_K, W_V and W_C."""
        scores = query_key(query, key)
        found = head_norms(scores, value, output)
        return cls(
            output_norm=found.pop("out_lipschitz"),
            score_norm=float(spectral(scores)),
            output_column_norm=float(max_column_norm(np.asarray(output, dtype=np.float64))),
            **found,
        )


class TransformerClass(SoftmaxClass, kw_only=True):
    """All networks of L projected layers with these norms and a trained readout of [CLS].

    Sizes and positions are those of `SoftmaxClass`.

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

    def radii(self, sample: Sample) -> tuple[float, ...]:
        """r_1, …, r_{L+1}: how long the tokens are before each layer, and after the last."""
        return _radii(self, self.token_norm(sample))

    def log_factors(self, sample: Sample, form: Form = "derived") -> tuple[float, ...]:
        """log p_i, what layer i multiplies a deviation by (A.15)."""
        number = LogNumber.from_float
        printed = form == "printed"
        constant = softmax_constant("printed") if printed else self.constant
        found = []
        for layer, radius in zip(self.layers, self.radii(sample)[:-1], strict=True):
            scores, reach = number(layer.score_norm) * constant, 1.0 if printed else radius
            norms = number(layer.output_norm), number(layer.value_norm), scores, number(reach)
            found.append(layer_constant(number(self.activation_lipschitz), *norms).log)
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
        factors = [LogNumber(each) for each in self.log_factors(sample, form)]
        amplified = [LogNumber.from_float(each).log for each in amplifications(factors, form)]
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

    def added(self, n_heads: int) -> "TransformerClass":
        """The class whose single heads move as much as H added ones: B_C for the sum of theirs."""
        layers = (replace(each, output_norm=n_heads * each.output_norm) for each in self.layers)
        return replace(self, layers=tuple(layers))

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
    def from_arrays(
        cls,
        layers: Sequence[Mapping[str, Any]],
        readout: Any = None,
        activation_lipschitz: float = 1.0,
        **others: Any,
    ) -> "TransformerClass":
        """The smallest class that contains a given network.

        Args:
            layers: what `ProjectedLayerNorms.from_arrays` takes, by name, for each layer.
            readout: w, a vector (d,); B_w = 1 without it.
            activation_lipschitz: L_σ.
            others: the other fields.

        >>> eye = np.eye(4)
        >>> layer = dict(query=eye, key=eye, value=2 * np.ones((4, 3)), output=np.ones((3, 4)))
        >>> found = TransformerClass.from_arrays([layer] * 2, readout=[3.0, 0.0, 4.0, 0.0])
        >>> len(found.layers), found.width, found.head_dimension, found.readout_norm
        (2, 4, 3, 5.0)
        """
        if readout is not None:
            if np.ndim(readout) != 1:
                wanted, got = "a vector (d,): the class has one output", np.shape(readout)
                raise bad_argument("readout", f"{cls.__name__}.from_arrays", wanted, got)
            others["readout_norm"] = float(np.linalg.norm(np.asarray(readout, dtype=np.float64)))
        sizes = {
            "width": max(np.shape(layer["query"])[0] for layer in layers),
            "head_dimension": max(np.shape(layer["value"])[1] for layer in layers),
        }
        return cls(
            layers=tuple(ProjectedLayerNorms.from_arrays(**layer) for layer in layers),
            activation_lipschitz=activation_lipschitz,
            **{**sizes, **others},
        )


def _unit_columns(layer: ProjectedLayerNorms) -> ProjectedLayerNorms:
    return replace(layer, output_column_norm=1.0, value_column_norm=1.0, score_row_norm=1.0)


@lru_cache(maxsize=16)
def _radii(network: TransformerClass, first: float) -> tuple[float, ...]:
    """Every part of a value asks for them, and a deep network has many."""
    outputs = [layer.output_norm for layer in network.layers]
    values = [layer.value_norm for layer in network.layers]
    radii = layer_radii(first, network.activation_lipschitz, outputs, values)
    return tuple(map(float, radii))
