"""Exhaustive search: the learner that is told the function and tries all hidden positions."""

from dataclasses import dataclass, field, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import BooleanFunction
from finetti.core.errors import InputError
from finetti.probe.learners.learner import FitLearner, Predictor
from finetti.probe.tasks.consistent_sets import MAX_VISITS, best_set
from finetti.probe.tasks.hidden_rule import HiddenRule, HiddenTask, make_rule


@final
@dataclass(frozen=True, kw_only=True)
class ExhaustiveSearch(FitLearner):
    """The first of the hidden sets that get the fewest labels wrong: no learner needs less.

    In a trial it is told the function, and only the positions are sought among C(T, s) sets. Since
    these are uniform, it is right with probability one over the number of sets that fit.

    Args:
        function: as of `make_rule`, if it is another than that of the trial.
        sparsity: its number of bits.
        max_visits: partial sets that are looked at before it is given up, a minute at most.

    >>> task = make_rule("and", 3, 400).draw(np.random.default_rng(0))
    >>> bits, labels = task.sample(np.random.default_rng(1), 300)
    >>> search = ExhaustiveSearch().with_function(task.rule.function)
    >>> search.fit(bits, labels, seed=0).indices == task.indices
    True
    """

    function: str | None = None
    sparsity: int | None = None
    max_visits: int = MAX_VISITS
    known_function: BooleanFunction | None = field(default=None, repr=False)

    def with_function(self, function: BooleanFunction) -> Self:
        """Return a copy that knows the function of the trial, unless it has one of its own."""
        return self if self.function is not None else replace(self, known_function=function)

    def fit(self, bits: NDArray[Any], labels: NDArray[Any], seed: int) -> Predictor:
        """Search; nothing is random."""
        rule = self._rule(bits.shape[1])
        return FoundRule(rule, best_set(rule, bits, labels, max_visits=self.max_visits))

    def _rule(self, context_length: int) -> HiddenRule:
        if self.known_function is not None:
            return HiddenRule(self.known_function, context_length)
        if self.function is None:
            raise InputError(
                "Exhaustive search must know the function that is hidden. Give it the options "
                '`function` and `sparsity`, such as "and" and 3.'
            )
        return make_rule(self.function, self.sparsity, context_length)


@final
@dataclass(frozen=True)
class FoundRule:
    """A rule at the positions that were found."""

    rule: HiddenRule
    indices: tuple[int, ...]

    def predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        """The labels by the rule."""
        return HiddenTask(self.rule, self.indices).labels(bits)
