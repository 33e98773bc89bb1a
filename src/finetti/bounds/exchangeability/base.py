"""What the bounds of paper E's network share: the class, its rule, and what it refuses."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from finetti.bounds import description as fields
from finetti.bounds.bound import FIXED_POSITIONS, IN_THE_TOKENS, NO_LAYER_NORM, RBF_SCORES, Bound
from finetti.bounds.exchangeability.chain import ChainForm, HeadsLink, heads_link, log_deviation
from finetti.bounds.exchangeability.measure import measure_network
from finetti.bounds.exchangeability.network import FullTransformer
from finetti.bounds.exchangeability.positive import Positive
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term
from finetti.core.errors import bad_argument
from finetti.core.logspace import log_sum

Constants = Literal["paper", "sharp"]
PRINTED = "As printed it is no bound: see errata 5, 6 and 9 of paper E."


class NetworkBound(Bound):
    """A bound for the class `FullTransformer`; refuses what paper E's network does not have.

    Args:
        network: the class.
        constants: "paper" keeps the paper's own simplifications: norms summed over the heads
            before they are multiplied, (4 + H)D²T dimensions, c ≤ 1 of Lemma F.1, and 2 for the
            integral of √log(1/ε). "sharp" does not, and is smaller.
    """

    assumes = (RBF_SCORES, NO_LAYER_NORM, FIXED_POSITIONS, IN_THE_TOKENS)

    network: FullTransformer = fields.part(FullTransformer)
    constants: Constants = fields.choice("paper", "sharp")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.constants == "sharp" and self.form == "printed":
            owner = type(self).__name__
            raise bad_argument("constants", owner, '"paper" in the printed form', "'sharp'")

    @classmethod
    def from_weights(cls, network: Any, **others: Any) -> "NetworkBound":
        """The bound for the smallest class that contains a network; see `measure_network`."""
        return cls(measure_network(network), **others)

    @property
    def sharp(self) -> bool:
        """Whether the paper's simplifications are left out."""
        return self.constants == "sharp"

    @property
    def rule(self) -> ChainForm:
        """How the chain of layers is computed."""
        return ChainForm.of(self.network, self.form, self.sharp)

    def first_heads(self, sample: Sample) -> HeadsLink:
        """The first layer's, one by one as Lemmas C.11 to C.13 have it; (C.5) sums norms later."""
        reach = Positive.of(sample.input_norm)
        return heads_link(self.network.layers[0], reach, replace(self.rule, sharp=True))

    @property
    def n_dimensions(self) -> int:
        """(4 + H)D²T, or the number of parameters if that is larger (erratum 9) or if sharp."""
        network = self.network
        if self.sharp:
            return network.n_parameters
        printed = (4 + network.n_heads) * network.largest_dimension**2 * network.n_layers
        return printed if self.form == "printed" else max(printed, network.n_parameters)

    def value(self, sample: Sample, *parts: Any, **options: Any) -> BoundValue:
        """As in `Bound`; a printed form that is none says so."""
        found = super().value(sample, *parts, **options)
        if self.kind != "unproven":
            return found
        return replace(found, notes=(*found.notes, PRINTED))

    def log_deviation(self, sample: Sample) -> tuple[float, tuple[Term, ...]]:
        """log(R_T^trans R_T) and its parts."""
        return log_deviation(self.network, sample.input_norm, self.rule)

    def check(self, sample: Sample) -> None:
        """Refuse what the paper's network does not have, by name."""
        super().check(sample)
        self.check_network(self.network.shape, self.form)


def shared(name: str, log_value: float, parts: Sequence[Term]) -> list[Term]:
    """``log_value`` shared between layers and matrices in proportion to ``parts``."""
    if log_value == -math.inf or not parts:
        return [Term(name, log_value=log_value)]
    log_total = float(log_sum([part.log_value for part in parts]))
    return [
        Term(name, part.layer, part.matrix, log_value + part.log_value - log_total)
        for part in parts
    ]
