"""Counting parameters: a network that moves at most Λ times as far as its P parameters."""

from dataclasses import replace
from functools import lru_cache

from finetti.bounds import description as fields
from finetti.bounds.bound import ASSUMED_OF_A_SAMPLE, NO_RESIDUALS, UNIT_BALL, nearest_bound
from finetti.bounds.covering.network_bounds import (
    ASSUMED_OF_RADII,
    NetworkBound,
    NetworkCovering,
    NetworkGap,
)
from finetti.bounds.ours.block_theorems import projected_composition
from finetti.bounds.ours.cover_allocation import WeightError
from finetti.bounds.ours.one_ball import OneBallComposition
from finetti.bounds.ours.weight_classes import RowWeights
from finetti.bounds.sparse_variables.transformer_class import TransformerClass
from finetti.bounds.value import Sample, log_of
from finetti.core.errors import bad_argument


class ParameterCount(NetworkBound):
    """What both bounds of this file share: all parameters are one vector, `OneBallComposition`.

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
            shape = replace(self.functions.shape, n_heads=self.n_heads, skips=self.skips)
            raise self.refuse(
                f"{' and '.join(failed)} where it has to find {unknown} itself",
                nearest_bound(type(self), shape, self.form),
            )

    def composed(self, functions: TransformerClass, sample: Sample) -> OneBallComposition:
        """All parameters in one ball, and Λ."""
        length = sample.context_length if functions.positions == "trained" else 0
        found = _one_ball(functions, self.n_heads, sample.input_norm, length)
        return (
            found
            if self.lipschitz is None
            else replace(found, log_lipschitz=log_of(self.lipschitz))
        )

    def log_range(self, functions: TransformerClass, sample: Sample) -> float:
        """log of the largest output."""
        if self.output_range is not None:
            return log_of(self.output_range)
        return functions.added(self.n_heads).log_range(sample)


@lru_cache(maxsize=32)
def _one_ball(
    network: TransformerClass, n_heads: int, input_norm: float, length: int
) -> OneBallComposition:
    """Kept: every n of an inversion asks for it. ``length`` is that of a trained table."""
    sample = Sample(1, 1, input_norm=input_norm)
    parts = projected_composition(network, sample, n_heads).parts
    if length:  # max_t ‖ΔP_t‖ ≤ ‖ΔP‖_F, then through all layers
        factors = network.added(n_heads).log_factors(sample)
        table = RowWeights(rows=length, columns=network.width, norm=network.position_norm)
        through = log_of(network.readout_norm) + sum(factors)
        parts = (*parts, WeightError("positions", None, through, table))
    return OneBallComposition(parts)


class ParameterCountCovering(ParameterCount, NetworkCovering):
    """log N_∞ ≤ P·log(1 + 2ΛR/ε): a cover of the ball of radius R in R^P by balls of radius ε/Λ.

    >>> import math
    >>> from finetti.bounds.sparse_variables import ProjectedLayerNorms
    >>> network = TransformerClass(layers=(ProjectedLayerNorms(),), width=4)
    >>> bound = ParameterCountCovering(network, lipschitz=1.0, resolution=0.1)
    >>> value = bound.evaluate(Sample(n_samples=100, context_length=10))
    >>> round(value.value / 52, 9) == round(math.log(1 + 20 * 13**0.5), 9)  # R² = 4 + 4 + 4 + 1
    True
    """

    name = "parameter-count"
    title = "the capacity by the number of parameters"
    statement = "log N_∞ ≤ P·log(1 + 2ΛR/ε) for P parameters in a ball of radius R"
    citation = "covering of a ball, folklore"


class ParameterCountGap(ParameterCount, NetworkGap):
    """The generalization gap by the number of parameters: Dudley's integral, then Lemma 2.2."""

    name = "parameter-count-gap"
    title = "the generalization gap by the number of parameters"
    statement = "training and test error differ by order √(P/n) for P parameters"
    citation = "covering of a ball, folklore, with Lemma 2.2, edelman2022"
    assumes = (*ParameterCount.assumes, *ASSUMED_OF_RADII, *ASSUMED_OF_A_SAMPLE)
