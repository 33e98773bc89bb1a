"""A search over studies: rounds of trials, all context lengths side by side, in one store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import FinettiError, InputError, bad_argument
from finetti.display import Card, Displayable, Table
from finetti.probe.analysis.scaling_laws import ScalingLaws, fit_laws
from finetti.probe.search.search_design import SearchDesign, SearchResult
from finetti.studies.coordinator import StudyPlan
from finetti.studies.executors.local_executor import open_executor
from finetti.studies.study import Study
from finetti.studies.trials import DONE

if TYPE_CHECKING:
    import pandas as pd

RESERVED_FIELDS = ("grid", "trials", "include", "scale", "scales")


@dataclass(frozen=True, eq=False)
class SearchReport(Displayable):
    """The critical number of samples at each context length, and the trials that say so.

    Args:
        results: by context length.
        trials: the table of all trials, as of a study.
        rounds: how many there were.
    """

    results: Mapping[int, SearchResult]
    trials: "pd.DataFrame" = field(repr=False)
    rounds: int

    @property
    def laws(self) -> ScalingLaws:
        """Both scaling laws through the critical sizes that are not censored."""
        return fit_laws({T: each.size for T, each in self.results.items()})

    def __card__(self) -> Card:
        rows = tuple((T, r.size.text, r.trials, r.stopped) for T, r in self.results.items())
        columns = ("context length", "samples", "trials", "stopped")
        total = sum(each.trials for each in self.results.values())
        fields = (("trials", total), ("rounds", self.rounds))
        notes = tuple(
            f"context length {T}: {each.size.reason}"
            for T, each in self.results.items()
            if each.size.reason
        )
        return Card("Critical sample size", fields, (Table("", columns, rows),), notes)


def search_critical(
    kind: str | Callable[..., Any] | type,
    context_lengths: Sequence[int],
    *,
    store: str | Path,
    design: SearchDesign | Mapping[int, SearchDesign] | None = None,
    run: Mapping[str, Any] | None = None,
    on_round: Callable[[SearchReport], None] | None = None,
    **fields: Any,
) -> SearchReport:
    """The smallest number of samples with P(success) ≥ level at each context length.

    Every round is one study, so that all workers are busy, and they stay what they are from round
    to round. Trials that the store has are not run again: after an interruption the same call
    takes the same way, and goes on where it was.

    Args:
        kind: of trials with the parameters ``context_length`` and ``n_samples`` and the metric
            ``success`` (0 or 1), such as ``finetti.probe.probe_trial:ProbeTrial``.
        context_lengths: T.
        store: the file of the results.
        design: one for all, or by context length.
        run: arguments of ``Study.run``: workers, cluster, quiet, ….
        on_round: called after each round with what is known.
        fields: of ``Study``: fixed, seed, seed_by, name, cohort, directory, ….
    """
    owner = "search_critical"
    lengths = list(dict.fromkeys(context_lengths))
    if not lengths:
        raise bad_argument("context_lengths", owner, "at least one", "none")
    for name in RESERVED_FIELDS:
        if name in fields:
            raise InputError(f"`{name}` is decided by the search. Leave it out.")
    if isinstance(design, Mapping):
        missing = [T for T in lengths if T not in design]
        if missing:
            raise bad_argument("design", owner, "one per context length", f"none for {missing[0]}")
        designs = {T: design[T] for T in lengths}
    else:
        designs = dict.fromkeys(lengths, design or SearchDesign())
    options = dict(run or {})
    where = (options.pop("executor", "local"), options.pop("workers", None))
    rounds = SearchRounds(kind, store, designs, fields)
    with open_executor(*where, options.pop("cluster", None)) as executor:
        while rounds.ask():
            rounds.take(lambda study, plan: study.run(executor, plan=plan, **options))
            if on_round is not None:
                on_round(rounds.report())
    return rounds.report()


class SearchRounds:
    """State of a sequential search: the requested trials and their outcomes."""

    def __init__(
        self,
        kind: str | Callable[..., Any] | type,
        store: str | Path,
        designs: Mapping[int, SearchDesign],
        fields: Mapping[str, Any],
    ) -> None:
        self.kind, self.store, self.designs, self.fields = kind, store, designs, fields
        self.asked: dict[tuple[int, int], int] = {}  # trials by context length and samples
        # Of each trial a row (samples, 1, success).
        self.history: dict[int, list[tuple[int, int, int]]] = {T: [] for T in designs}
        self.rounds = 0
        self.table: pd.DataFrame

    def ask(self) -> bool:
        """Ask for the trials of the next round; False if there are none."""
        self.searching = [T for T in self.designs if self._extend(T)]
        return bool(self.searching)

    def _extend(self, length: int) -> bool:
        proposed = self.designs[length].propose(self.history[length])
        for n_samples, count in proposed:
            cell = length, n_samples
            self.asked[cell] = self.asked.get(cell, 0) + count
        return bool(proposed)

    def take(self, run: Callable[[Study, StudyPlan], Any]) -> None:
        """Run what was asked for, those trials that have no result, and count the successes."""
        self.rounds += 1
        # All that was ever asked for: should the source change on the way, nothing gets mixed up.
        grid = {
            "context_length": list(self.designs),
            "n_samples": sorted({n_samples for _, n_samples in self.asked}),
        }
        asked = dict(self.asked)
        own = {**self.fields, "name": f"{self.fields.get('name') or 'search'}, round {self.rounds}"}
        study = Study(
            self.kind,
            store=self.store,
            grid=grid,
            trials=max(asked.values()),
            include=lambda params, replicate: (
                replicate < asked.get((params["context_length"], params["n_samples"]), 0)
            ),
            **own,
        )
        plan = study.plan
        run(study, plan)
        self.table = study.table(plan=plan)
        rows: list[dict[str, Any]] = self.table.to_dict("records")  # pyright: ignore[reportAssignmentType]
        before, self.history = self.history, {T: [] for T in self.designs}
        for row in rows:
            if row["state"] == DONE:
                one = (row["n_samples"], 1, self._success(row))
                self.history[row["context_length"]].append(one)
        for T in self.searching:
            if len(self.history[T]) <= len(before[T]):
                failed = [row for row in rows if row["context_length"] == T and row["failure"]]
                raise FinettiError(
                    f"Every new trial at context length {T} failed, the last one with: "
                    f"{failed[-1]['failure']} `finetti status {self.store} --details` shows its "
                    "traceback."
                )

    def _success(self, row: Mapping[str, Any]) -> int:
        if row.get("success") not in (0, 1):
            raise InputError(
                f"The trials of {self.kind} have no metric `success` that is 0 or 1. A search "
                "counts successes: return one."
            )
        return int(row["success"])

    def report(self) -> SearchReport:
        """Return the critical sizes as the trials so far tell them."""
        results = {T: design.result(self.history[T], T) for T, design in self.designs.items()}
        return SearchReport(results, self.table, self.rounds)
