"""Exhaustive search: the learner that is told the function and tries all hidden positions."""

from dataclasses import dataclass, field, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import BooleanFunction
from finetti.core.errors import InputError
from finetti.probe.learners.learner import FitLearner, Predictor
from finetti.probe.tasks.consistent_sets import MAX_VISITS, best_set
from finetti.probe.tasks.hidden_rule import HiddenRule, HiddenTask


@final
@dataclass(frozen=True, kw_only=True)
class ExhaustiveSearch(FitLearner):
    """The first of the hidden sets that get the fewest labels wrong: no learner needs less.

    In a trial it is told the function, and only the positions are sought among C(T, s) sets. Since
    these are uniform, it is right with probability one over the number of sets that fit.

    Args:
        max_visits: partial sets that are looked at before it is given up, a minute at most.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> task = make_rule("and", 3, 400).draw(np.random.default_rng(0))
    >>> bits, labels = task.sample(np.random.default_rng(1), 300)
    >>> search = ExhaustiveSearch().with_function(task.rule.function)
    >>> search.fit(bits, labels, seed=0).indices == task.indices
    True
    """

    max_visits: int = MAX_VISITS
    known_function: BooleanFunction | None = field(default=None, repr=False)

    def with_function(self, function: BooleanFunction) -> Self:
        """Return a copy that knows the function of the trial."""
        return replace(self, known_function=function)

    def fit(self, bits: NDArray[Any], labels: NDArray[Any], seed: int) -> Predictor:
        """Search; nothing is random."""
        if self.known_function is None:
            raise InputError(
                "Exhaustive search must know the function that is hidden, as it does in a trial. "
                "Tell it by `with_function`."
            )
        rule = HiddenRule(self.known_function, bits.shape[1])
        return FoundRule(rule, best_set(rule, bits, labels, max_visits=self.max_visits))


@final
@dataclass(frozen=True)
class FoundRule:
    """A rule at the positions that were found."""

    rule: HiddenRule
    indices: tuple[int, ...]

    def predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        """The labels by the rule."""
        return HiddenTask(self.rule, self.indices).labels(bits)
