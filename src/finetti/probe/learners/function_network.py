"""A pair of functions (init, apply) as a learner."""

from dataclasses import dataclass
from typing import Any, final

from jaxtyping import Array

from finetti.probe.learners.given_network import GivenNetwork, check_params
from finetti.probe.learners.recipe import parameters
from finetti.training.pairs import pair_of


@final
@dataclass(frozen=True, kw_only=True)
class FunctionNetwork(GivenNetwork):
    """``init(key, context_length) -> params`` and ``apply(params, bits, key) -> logits``.

    ``init`` may do without the length, and ``apply`` without the key, if it draws nothing.
    """

    def init(self, key: Any, context_length: int) -> Any:
        """What ``init`` returns."""
        function, _ = self._pair(context_length)
        takes_length = "context_length" in parameters(function)[0]
        length = {"context_length": context_length} if takes_length else {}
        return check_params(function(key, **length), self.recipe.reference)

    def logits(self, params: Any, bits: Array, key: Any) -> Any:
        """What ``apply`` returns."""
        _, function = self._pair(bits.shape[1])
        names, accepts_any = parameters(function)
        drawn = {"key": key} if accepts_any or "key" in names else {}
        return function(params, bits, **drawn)

    def _pair(self, context_length: int) -> tuple[Any, Any]:
        pair = pair_of(self.recipe.build(context_length=context_length))
        assert pair is not None  # the same factory built one when it was loaded
        return pair
