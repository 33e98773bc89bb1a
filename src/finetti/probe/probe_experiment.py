"""A probe as studies: every learner over the same grid of context lengths and sample sizes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from finetti.core.errors import InputError, bad_argument
from finetti.probe.search.search_design import SearchDesign
from finetti.probe.search.search_rounds import SearchReport, search_critical
from finetti.probe.tasks.hidden_rule import HiddenRule, make_rule
from finetti.probe.tasks.information import information_bounds
from finetti.probe.tasks.validation import SUCCESS_ACCURACY
from finetti.studies.executors.executor import Executor
from finetti.studies.executors.resource_limits import Limits
from finetti.studies.experiment import Experiment
from finetti.studies.trial_table import store_table

if TYPE_CHECKING:
    import pandas as pd

STORE = "probe/trials.sqlite"
# Of what is not given: a probe that shows what this is about, in two minutes.
SPARSITY = 3
CONTEXT_LENGTHS, ONLINE_LENGTHS = (30, 60), (10,)
N_SAMPLES, SEARCHED_SAMPLES = (20, 40, 60, 80, 100), (10, 1000)
TRIALS, SEARCH_TRIALS = 6, 100
LEARNERS = ("paper",)
ONLINE: dict[str, Any] = {"online": True, "batch_size": 2048, "trace": ["loss", "accuracy"]}
LONG = 10**6  # a context in which every rule finds its bits


@dataclass(frozen=True)
class ProbeExperiment(Experiment):
    """Description of a probe: which rule, at which sizes, how often, and for which learners.

    All learners see the same data: those of a trial follow from the seed, the replicate and the
    sizes. What is not given (or empty, or 0) is that of the command's small probe.

    Args:
        function, sparsity: the rule, as `make_rule` knows it.
        context_lengths: T.
        n_samples: m; of a search its smallest and its largest; none online.
        trials: per cell; of a search the most per context length.
        store: the file of the results.
        learners: references, as `load_learner` knows them.
        options: settings of a learner, by its reference.
        fixed: further parameters of `ProbeTrial`, the same for all trials.
        seed: all randomness follows from it.
        time_limit, memory_limit: seconds per trial, gigabytes per worker; what takes more fails.
        search: look for the critical sample sizes instead of running a grid.
        level: success probability at the critical sample size.
        online: train on fresh samples at every step.

    >>> ProbeExperiment("and", 3, (30, 60), (20, 40), 5, "trials.sqlite", ("l1", "tree")).n_trials
    40
    """

    kind: ClassVar[str] = "finetti.probe.probe_trial:ProbeTrial"

    function: str = "and"
    sparsity: int | None = None
    context_lengths: Sequence[int] = ()
    n_samples: Sequence[int] = ()
    trials: int = 0
    store: str | Path = STORE
    learners: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    time_limit: float | None = None
    memory_limit: float | None = None
    search: bool = False
    level: float = 0.5
    online: bool = False

    def __post_init__(self) -> None:
        if self.online and (self.n_samples or self.search):
            wrong = "`n_samples`" if self.n_samples else "`search`"
            raise InputError(
                f"{wrong} cannot be combined with `online`, where every step has fresh samples. "
                "Leave it out, and set their number with `batch_size`."
            )
        if not self.online and "batch_size" in self.fixed:
            raise InputError("`batch_size` only applies to `online`. Add it, or leave this out.")
        if not 0 < self.level < 1:
            raise InputError(f"`level` must lie between 0 and 1. Got {self.level:g} instead.")
        self._complete()
        twice = [each for each in self.learners if self.learners.count(each) > 1]
        if twice:
            raise bad_argument("learners", "run_probe", "different learners", f"{twice[0]} twice")
        if self.search and len(self.n_samples) != 2:
            raise InputError(
                "`search` looks between two sample sizes. Give both, for example `n_samples` "
                "10,1000."
            )
        Limits(self.time_limit, self.memory_limit)  # refuses what is none
        for length in self.context_lengths:
            self.rule(length)  # refuses what does not exist

    def _complete(self) -> None:
        """Put the values of the small probe in the place of those that were not given."""
        own: dict[str, Any] = {
            "context_lengths": ONLINE_LENGTHS if self.online else CONTEXT_LENGTHS,
            "n_samples": () if self.online else SEARCHED_SAMPLES if self.search else N_SAMPLES,
            "trials": SEARCH_TRIALS if self.search else TRIALS,
            "learners": LEARNERS,
        }
        asked = ("sparsity", "context_lengths", "n_samples", "learners", "options")
        small = self.function == "and" and not (self.online or self.search)
        if small and not any(getattr(self, name) for name in asked):
            own["options"] = {"paper": {"dropout": "none"}}  # four times as fast
        given = {name: getattr(self, name) or value for name, value in own.items()}
        for name in ("context_lengths", "n_samples", "learners"):
            given[name] = tuple(given[name])
        given["sparsity"] = self._bits(min(given["context_lengths"]))
        given["fixed"] = {**(ONLINE if self.online else {}), **self.fixed}
        for name, value in given.items():
            object.__setattr__(self, name, value)

    def _bits(self, shortest: int) -> int:
        """The number of hidden bits, which an expression or a truth table says itself."""
        sparsity = self.sparsity
        if sparsity is not None and sparsity > shortest:
            raise InputError(
                f"`sparsity` {sparsity} exceeds the shortest of `context_lengths`, {shortest}. "
                "Lower `sparsity`, or raise `context_lengths`."
            )
        try:
            return make_rule(self.function, sparsity, LONG).sparsity
        except InputError as error:
            if error.argument != "sparsity" or sparsity is not None:
                raise
            return SPARSITY

    @property
    def success_accuracy(self) -> float:
        """The accuracy on validation above which a rule counts as found."""
        return self.fixed.get("success_accuracy", SUCCESS_ACCURACY)

    def rule(self, context_length: int) -> HiddenRule:
        """The hidden rule at one context length."""
        names = ("bit_probability", "label_noise")
        given = {name: self.fixed[name] for name in names if name in self.fixed}
        return make_rule(self.function, self.sparsity, context_length, **given)

    @property
    def title(self) -> str:
        """The rule in words.

        >>> ProbeExperiment("and", 3, (30,), (20,), 5, "trials.sqlite").title
        'AND of 3 hidden bits'
        """
        sparsity = self.rule(self.context_lengths[0]).sparsity
        name = self.function.upper() if self.function.isalpha() else self.function
        return f"{name} of {sparsity} hidden bit{'s' if sparsity > 1 else ''}"

    def parts(self) -> dict[str, tuple[dict[str, list[Any]], dict[str, Any]]]:
        """The trials of each learner, with the same grid."""
        grid: dict[str, list[Any]] = {"context_length": list(self.context_lengths)}
        if not self.online:
            grid["n_samples"] = list(self.n_samples)
        found = {}
        for learner in self.learners:
            own = {"function": self.function, "sparsity": self.sparsity, "learner": learner}
            if options := dict(self.options.get(learner, {})):
                own["options"] = options
            found[learner] = (grid, {**own, **self.fixed})
        return found

    def announcement(self, workers: int) -> str:
        """Return the sentence before a run; a search may need fewer trials."""
        before = "Unless the search ends earlier: " if self.search else ""
        return before + super().announcement(workers)

    def run_parts(
        self,
        executor: Executor,
        options: Mapping[str, Any],
        tell: Callable[[str], None],
        found: dict[str, Any],
    ) -> None:
        """Run the grid, or search learner by learner; the reports are known after each round."""
        if not self.search:
            super().run_parts(executor, options, tell, found)
            return
        reports = found["searches"] = {}
        for learner in self.learners:

            def note(report: SearchReport, learner: str = learner) -> None:
                reports[learner] = report
                if not options["quiet"]:
                    told = (f"T = {T}: {each.size.text}" for T, each in report.results.items())
                    tell(f"{learner}, round {report.rounds}: {'; '.join(told)}")

            self.search_sizes(learner, {"executor": executor, **options}, note)

    def search_sizes(
        self,
        learner: str,
        run: Mapping[str, Any] | None = None,
        on_round: Callable[[SearchReport], None] | None = None,
    ) -> SearchReport:
        """The critical sample size of one learner, between the ends of ``n_samples``.

        ``trials`` is the most for each context length; see `search_critical`.
        """
        low, high = self.n_samples[0], self.n_samples[-1]
        designs = {}
        for length in self.context_lengths:
            bound = information_bounds(self.rule(length), self.level).first_order
            start = min(max(round(bound), low), high)
            designs[length] = SearchDesign(low, high, start, self.level, max_trials=self.trials)
        fields = {"design": designs, "run": run, "on_round": on_round, **self.study_fields(learner)}
        return search_critical(self.kind, self.context_lengths, **fields)

    def table(self) -> "pd.DataFrame":
        """All trials that are stored, with their details; of a search, of all its sizes."""
        tried = self._with_stored_sizes() if self.search else self
        return super(ProbeExperiment, tried).table()

    def _with_stored_sizes(self) -> "ProbeExperiment":
        """Return the grid of all sample sizes that the store has."""
        if not Path(self.store).exists():
            return self
        table = store_table(self.store)
        if not len(table):
            return self
        sizes = tuple(sorted({int(each) for each in table["n_samples"].dropna()}))
        trials = 1 + max(map(int, table["replicate"]))
        return replace(self, n_samples=sizes, trials=trials, search=False)
