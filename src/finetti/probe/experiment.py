"""A probe as studies: every learner over the same grid of context lengths and sample sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError, bad_argument
from finetti.probe.search.search_design import SearchDesign
from finetti.probe.search.search_rounds import SearchReport, search_critical
from finetti.probe.tasks.hidden_rule import HiddenRule, make_rule
from finetti.probe.tasks.information import information_bounds
from finetti.probe.tasks.validation import SUCCESS_ACCURACY
from finetti.studies.coordinator import StudyPlan
from finetti.studies.executors.resource_limits import Limits
from finetti.studies.study import Study
from finetti.studies.trial_table import store_table

if TYPE_CHECKING:
    import pandas as pd

KIND = "finetti.probe.probe_trial:ProbeTrial"


@dataclass(frozen=True)
class Experiment:
    """What a probe asks: which rule, at which sizes, how often, and of whom.

    All learners see the same data: those of a trial follow from the seed, the replicate and the
    sizes.

    Args:
        function, sparsity: the rule, as `make_rule` knows it.
        context_lengths: T.
        n_samples: m; empty for online learning.
        trials: trials per cell.
        store: the file of the results.
        learners: references, as `load_learner` knows them.
        options: settings of a learner, by its reference.
        fixed: further parameters of `ProbeTrial`, the same for all trials.
        seed: all randomness follows from it.
        time_limit, memory_limit: seconds per trial, gigabytes per worker; what takes more fails.

    >>> Experiment("and", 3, (30, 60), (20, 40), 5, "trials.sqlite", ("l1", "tree")).n_trials
    40
    """

    function: str
    sparsity: int | None
    context_lengths: tuple[int, ...]
    n_samples: tuple[int, ...]
    trials: int
    store: str | Path
    learners: tuple[str, ...] = ("paper",)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    time_limit: float | None = None
    memory_limit: float | None = None

    def __post_init__(self) -> None:
        twice = [each for each in self.learners if self.learners.count(each) > 1]
        if twice:
            raise bad_argument("learners", "Experiment", "different learners", f"{twice[0]} twice")
        if not (self.learners and self.context_lengths):
            raise InputError("A probe needs at least one learner and one context length.")
        Limits(self.time_limit, self.memory_limit)  # refuses what is none
        for length in self.context_lengths:
            self.rule(length)  # refuses what does not exist

    @property
    def online(self) -> bool:
        """Whether every step has fresh samples."""
        return not self.n_samples

    @property
    def success_accuracy(self) -> float:
        """The accuracy on validation above which a rule counts as found."""
        return self.fixed.get("success_accuracy", SUCCESS_ACCURACY)

    @property
    def n_trials(self) -> int:
        """Of all learners together."""
        cells = len(self.context_lengths) * max(1, len(self.n_samples))
        return cells * self.trials * len(self.learners)

    def rule(self, context_length: int) -> HiddenRule:
        """The hidden rule at one context length."""
        names = ("bit_probability", "label_noise")
        given = {name: self.fixed[name] for name in names if name in self.fixed}
        return make_rule(self.function, self.sparsity, context_length, **given)

    @property
    def title(self) -> str:
        """The rule in words.

        >>> Experiment("and", 3, (30,), (20,), 5, "trials.sqlite").title
        'AND of 3 hidden bits'
        """
        sparsity = self.rule(self.context_lengths[0]).sparsity
        name = self.function.upper() if self.function.isalpha() else self.function
        return f"{name} of {sparsity} hidden bit{'s' if sparsity > 1 else ''}"

    def fields(self, learner: str) -> dict[str, Any]:
        """What the trials of one learner share, as `Study` takes it."""
        options = dict(self.options.get(learner, {}))
        fixed = {"function": self.function, "sparsity": self.sparsity, "learner": learner}
        fixed |= {"options": options} if options else {}
        return {
            "store": self.store,
            "name": f"{self.title}, {learner}",
            "fixed": {**fixed, **self.fixed},
            "seed": self.seed,
            "seed_by": "replicate",
            "time_limit": self.time_limit,
            "memory_limit": self.memory_limit,
        }

    def study(self, learner: str) -> Study:
        """The trials of one learner."""
        grid: dict[str, Any] = {"context_length": list(self.context_lengths)}
        if self.n_samples:
            grid["n_samples"] = list(self.n_samples)
        return Study(KIND, grid=grid, trials=self.trials, **self.fields(learner))

    def studies(self) -> dict[str, Study]:
        """The study of each learner."""
        return {learner: self.study(learner) for learner in self.learners}

    def table(
        self, details: bool = False, plans: Mapping[str, StudyPlan] | None = None
    ) -> "pd.DataFrame":
        """All trials that are stored, of all learners; ``plans`` of theirs, if they were made."""
        import pandas as pd

        tables = [
            study.table(details=details, plan=plans[learner] if plans else None)
            for learner, study in self.studies().items()
        ]
        filled = [each for each in tables if len(each)]
        return pd.concat(filled or tables[:1], ignore_index=True)

    def search(
        self,
        learner: str,
        level: float = 0.5,
        run: Mapping[str, Any] | None = None,
        on_round: Callable[[SearchReport], None] | None = None,
    ) -> SearchReport:
        """The critical sample size of one learner, between the ends of ``n_samples``.

        ``trials`` is the most for each context length; see `search_critical`.
        """
        low, high = self.n_samples[0], self.n_samples[-1]
        designs = {}
        for length in self.context_lengths:
            bound = information_bounds(self.rule(length), level).first_order
            start = min(max(round(bound), low), high)
            designs[length] = SearchDesign(low, high, start, level, max_trials=self.trials)
        fields = {"design": designs, "run": run, "on_round": on_round, **self.fields(learner)}
        return search_critical(KIND, self.context_lengths, **fields)

    def as_tried(self) -> "Experiment":
        """The grid of all sample sizes that the store has: its table has all trials of a search."""
        if not Path(self.store).exists():
            return self
        table = store_table(self.store)
        if not len(table):
            return self
        sizes = tuple(sorted({int(each) for each in table["n_samples"].dropna()}))
        return replace(self, n_samples=sizes, trials=1 + max(map(int, table["replicate"])))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        given = {
            name: value for name, value in vars(self).items() if name not in ("store", "fixed")
        }
        lists = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
        return {**lists, **self.fixed, "store": str(self.store)}
