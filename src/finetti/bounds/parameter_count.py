"""Counting parameters: a network that moves at most Λ times as far as its p parameters."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from finetti.bounds import description as fields
from finetti.bounds.bound import ASSUMED_OF_A_SAMPLE, NO_RESIDUALS, UNIT_BALL, Bound
from finetti.bounds.covering.dudley import TOO_RICH, dudley_quadrature, gap_terms
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.transformer_class import TransformerClass
from finetti.bounds.value import BoundValue, Term, log_of
from finetti.core.errors import bad_argument
from finetti.core.logspace import log1pexp, log_sum


def log_unit_cover(log_ratio: Any) -> Any:
    """log log(1 + 2ΛR/ε), what one parameter costs, for log(ΛR/ε)."""
    with np.errstate(divide="ignore"):  # nothing moves: one ball
        return np.log(log1pexp(math.log(2) + np.asarray(log_ratio, dtype=np.float64)))


class ParameterCount(Bound):
    """What both bounds of this file share.

    Args:
        functions: the same networks as in Theorem A.17; trained positions count T·d parameters.
        lipschitz: Λ, how far the output moves per unit of all parameters (Frobenius norm); None:
            from the norms, by the chain of Theorem A.17.
        output_range: A, the largest output; None: B_w r_{L+1}.
        n_heads: H, heads that are added in each layer, all with the layer's norms.
        skips: whether the real network has residual connections.
    """

    assumes = (
        f"{NO_RESIDUALS}, or a `lipschitz` and an `output_range` that hold for the real network",
        f"{UNIT_BALL}, or the same",
    )

    functions: TransformerClass = fields.part(TransformerClass)
    lipschitz: float | None = fields.norm(None)
    output_range: float | None = fields.norm(None)
    n_heads: int = fields.size("n_heads", 1)
    skips: bool = fields.flag(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.functions.positions == "trained" and not self.functions.position_norm:
            requirement = "the length of the longest trained position, > 0"
            raise bad_argument("position_norm", self.name, requirement, 0)
        failed = ["no residual connections"] * self.skips
        failed += ["a projection onto the unit ball"] * (self.functions.normalization != "ball")
        given = {"a `lipschitz`": self.lipschitz, "an `output_range`": self.output_range}
        unknown = " and ".join(name for name, value in given.items() if value is None)
        if failed and unknown:
            raise self.refuse(
                f"{' and '.join(failed)} where it has to find {unknown} itself",
                f"{self.name} with {unknown} of your own.",
            )

    def n_parameters(self, sample: Sample) -> int:
        """p: W_QK (d²), W_V and W_C (dk each) of every layer, w, and a table of positions."""
        network = self.functions
        layer = network.width**2 + 2 * network.width * network.columns
        table = sample.context_length if network.positions == "trained" else 0
        return len(network.layers) * self.n_heads * layer + network.width * (1 + table)

    @property
    def added(self) -> TransformerClass:
        """One head per layer that moves as much as H together: B_C for the sum of all of theirs."""
        layers = (
            replace(layer, output_norm=self.n_heads * layer.output_norm)
            for layer in self.functions.layers
        )
        return replace(self.functions, layers=tuple(layers))

    def log_lipschitz(self, sample: Sample) -> float:
        """log Λ: the root of the sum of squares of what every matrix is multiplied by."""
        if self.lipschitz is not None:
            return log_of(self.lipschitz)
        network = self.added
        heads = math.log(self.n_heads) / 2  # H matrices, each with this multiplier
        readout, *matrices = network.log_multipliers(sample)
        multipliers = [readout, *(each + heads for each in matrices)]
        if network.positions == "trained":  # max_t ‖ΔP_t‖ ≤ ‖ΔP‖_F, then through all layers
            multipliers.append(log_of(network.readout_norm) + sum(network.log_factors(sample)))
        return float(log_sum(2 * np.array(multipliers))) / 2

    def log_radius(self, sample: Sample) -> float:
        """log R: Frobenius norms are at most √rank times spectral ones."""
        network = self.functions
        rank = min(network.width, network.columns)
        squares = [2 * log_of(network.readout_norm)]
        for layer in network.layers:
            squares += [
                2 * log_of(norm) + math.log(size * self.n_heads)
                for norm, size in (
                    (layer.score_norm, network.width),
                    (layer.value_norm, rank),
                    (layer.output_norm, rank),
                )
            ]
        if network.positions == "trained":
            squares.append(2 * log_of(network.position_norm) + sample.log_context)
        return float(log_sum(squares)) / 2


class ParameterCountCovering(ParameterCount):
    """log N_∞ ≤ p log(1 + 2ΛR/ε): a cover of the ball of radius R in R^p by balls of radius ε/Λ.

    >>> from finetti.bounds.sparse_variables import ProjectedLayerNorms
    >>> network = TransformerClass(layers=(ProjectedLayerNorms(),), width=4)
    >>> bound = ParameterCountCovering(network, lipschitz=1.0, resolution=0.1)
    >>> value = bound.evaluate(Sample(n_samples=100, context_length=10))
    >>> bound.n_parameters(Sample(n_samples=100, context_length=10))       # 16 + 2·16 + 4
    52
    >>> round(value.value / math.log(1 + 20 * math.sqrt(13)), 9)           # R² = 4 + 4 + 4 + 1
    52.0
    """

    name = "parameter-count"
    title = "the capacity by the number of parameters"
    statement = "log N_∞ ≤ P·log(1 + 2ΛR/ε) for P parameters in a ball of radius R"
    citation = "covering of a ball, folklore"
    quantity = "log covering number"

    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_ratio = self.log_lipschitz(sample) + self.log_radius(sample) - math.log(self.resolution)
        count = Term("parameters", log_value=log_of(self.n_parameters(sample)))
        each = Term("cost of one", log_value=float(log_unit_cover(log_ratio)))
        return self.value(sample, count.log_value + each.log_value, (count, each))


class ParameterCountGap(ParameterCount):
    """The generalization gap by the number of parameters: Dudley's integral, then Lemma 2.2."""

    name = "parameter-count-gap"
    title = "the generalization gap by the number of parameters"
    statement = "training and test error differ by order √(P/n) for P parameters"
    citation = "covering of a ball, folklore, with Lemma 2.2, edelman2022"
    quantity = "generalization gap"
    assumes = (*ParameterCount.assumes, *ASSUMED_OF_A_SAMPLE)
    needs_bounded_loss = True

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_size = self.log_lipschitz(sample) + self.log_radius(sample)
        log_count = log_of(self.n_parameters(sample))
        given = self.output_range
        log_range = self.added.log_range(sample) if given is None else log_of(given)
        found = dudley_quadrature(
            lambda log_resolution: log_count + log_unit_cover(log_size - log_resolution),
            log_range,
            sample.log_samples,
        )
        notes = (TOO_RICH,) if found.trivial else ()
        return self.value(sample, *gap_terms(found.log_value, sample), notes=notes)
