"""A study: run it as often as you like, it does what is left to do."""

import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError
from finetti.core.provenance import commit_of
from finetti.display import Card, Displayable
from finetti.studies.coordinator import Coordinator, StudyPlan, make_plan
from finetti.studies.executors.executor import Executor
from finetti.studies.executors.local_executor import open_executor
from finetti.studies.executors.resource_limits import Limits
from finetti.studies.interruption import ignore_interruptions, one_interruption
from finetti.studies.source_code import WORKER_VARIABLE, SourceSnapshot, find_source
from finetti.studies.spec import make_spec, read_spec, spec_file
from finetti.studies.store.store_reader import Row, open_store
from finetti.studies.store.trial_store import Store
from finetti.studies.study_status import (
    RunEstimate,
    RunSummary,
    StudyInterrupted,
    StudyStatus,
    count_trials,
    study_status,
)
from finetti.studies.trial_kinds import as_kind, load_kind
from finetti.studies.trial_table import plan_table
from finetti.studies.trials import DONE, FAILED, unicode_text

if TYPE_CHECKING:
    import pandas as pd


def tell_on_stderr(sentence: str) -> None:
    """Print a sentence where it does not mix with results."""
    print(sentence, file=sys.stderr)


class Study(Displayable):
    """A grid of seeded trials and the store of their results.

    Args:
        kind: ``package.module:Name``, ``file.py:Name``, or a function or kind from a module.
        store: the file of the results.
        directory: what ``file.py`` is relative to; the current one unless given.
        scale: the preset among ``scales`` to apply.
        include: which trials of the grid belong to the study, by their parameters and replicate;
            all unless given.
        fields: of ``StudySpec``: grid, fixed, trials, seed, name, cohort, limits, scales.

    >>> from finetti.studies import Study
    >>> study = Study(
    ...     "finetti.studies.examples:estimate_pi",
    ...     store="pi.sqlite",
    ...     grid={"n_points": {"logrange": [10, 1000, 3]}},
    ...     trials=4,
    ... )
    >>> len(study.plan.cells), len(study.plan.trial_positions)
    (3, 12)
    """

    def __init__(
        self,
        kind: str | Callable[..., Any] | type,
        *,
        store: str | Path,
        directory: str | Path = ".",
        scale: str | None = None,
        include: Callable[[Mapping[str, Any], int], bool] | None = None,
        **fields: Any,
    ) -> None:
        self.include = include
        self.given: tuple[Any, SourceSnapshot] | None = None
        reference = kind if isinstance(kind, str) else _reference(kind)
        self.spec = make_spec({"kind": reference, **fields}).at_scale(scale)
        self.store = Path(store)
        self.directory = Path(directory)
        self.name = self.spec.name or unicode_text(reference)
        if scale is not None:
            self.name += f" ({scale})"
        if not isinstance(kind, str):
            # What was given is not loaded again (its file may be the script that is running), so
            # its source is that of now.
            self.given = kind, find_source(reference, directory, self.spec.code_version)

    @classmethod
    def from_toml(
        cls,
        path: str | Path,
        *,
        scale: str | None = None,
        seed: int | None = None,
        store: str | Path | None = None,
    ) -> "Study":
        """The study in a TOML file, or the shipped one of that name (`shipped_studies`).

        Its store stands beside the file unless given, that of a shipped one in the current folder.
        """
        path = Path(path)
        spec = read_spec(spec_file(path))
        place = path.with_suffix(".sqlite") if store is None else store
        fields = {name: getattr(spec, name) for name in spec.model_fields_set}
        fields["name"] = spec.name or unicode_text(path.stem)
        study = cls(store=place, directory=path.parent, scale=scale, **fields)
        if seed is not None:
            study.spec = study.spec.changed(seed=seed)
        return study

    @property
    def source(self) -> SourceSnapshot:
        """The kind's source as it is now."""
        if self.given is not None:
            return self.given[1]
        return find_source(self.spec.kind, self.directory, self.spec.code_version)

    @property
    def plan(self) -> StudyPlan:
        """The cells and trials, by the source as it is now.

        Planning loads the kind and resolves every cell, so whoever asks several things of a study
        plans it once, and gives the methods this plan.
        """
        source = self.source
        kind = load_kind(source) if self.given is None else as_kind(self.given[0], self.name)
        return make_plan(self.spec, source, kind, self.name, self.include)

    def run(
        self,
        executor: str | Executor = "local",
        *,
        workers: int | None = None,
        cluster: str | None = None,
        retry_failed: bool = False,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        wait: bool = False,
        quiet: bool = False,
        on_wait: Callable[[str], None] | None = None,
        describe: Callable[[Mapping[str, Any]], str] | None = None,
        plan: StudyPlan | None = None,
    ) -> RunSummary:
        """Run what has no result yet, and store it.

        Ctrl-C ends this cleanly (``StudyInterrupted``, a KeyboardInterrupt); run again to continue.

        Args:
            executor: ``local`` (child processes), ``inline`` (this process), or an open one, whose
                processes stay for other studies.
            workers: how many child processes; one unless given.
            cluster: address or scheduler file of a Dask cluster to use instead.
            retry_failed: run the failed trials again as well.
            time_limit, memory_limit: seconds per trial, gigabytes per worker; the spec's unless
                given.
            wait: wait for another process that writes to the store.
            quiet: no progress bar.
            on_wait: called with a sentence that says who is waited for.
            describe: names a trial by its parameters, in a progress bar that tells each.
            plan: of this study, if it was made already.
        """
        if os.environ.get(WORKER_VARIABLE):
            raise InputError(
                "A study was started by the file of its kind. Put the lines that start it under "
                "`if __name__ == '__main__':`."
            )
        limits = self.limits(time_limit, memory_limit)
        with open_executor(executor, workers, cluster) as chosen:
            plan = plan or self.plan
            with open_store(self.store, or_empty=True) as reader:
                states = reader.states()
            if not _todo(plan, states, retry_failed):
                # Without a lock, and without starting anything.
                return self._summary(plan, states)
            with one_interruption(), Store(self.store, wait, on_wait) as store:
                todo = _todo(plan, store.states, retry_failed)
                return self._run(store, plan, chosen, limits, todo, quiet, describe)

    def _run(
        self,
        store: Store,
        plan: StudyPlan,
        executor: Executor,
        limits: Limits,
        todo: list[str],
        quiet: bool,
        describe: Callable[[Mapping[str, Any]], str] | None,
    ) -> RunSummary:
        from finetti.display.progress import progress_bar

        start, interrupted = time.monotonic(), False
        own = plan.source.reference.startswith("finetti.")
        commit = commit_of(Path(__file__).parent if own else self.directory)
        shown = len(todo), not quiet, "trials", describe is not None
        with progress_bar(self.name, *shown) as on_change:
            extra = {"commit": commit}
            coordinator = Coordinator(plan, store, executor, extra, on_change, describe)
            try:
                executor.use(plan.source, limits)
                coordinator.run(todo)
            except KeyboardInterrupt:
                ignore_interruptions()
                interrupted = True
                executor.cancel()
        seconds = round(time.monotonic() - start, 3)
        ran = {"ran": coordinator.stored, "seconds": seconds, "interrupted": interrupted}
        summary = self._summary(plan, store.states, **ran)
        if interrupted:
            raise StudyInterrupted(summary)
        return summary

    def _summary(self, plan: StudyPlan, states: Mapping[str, str], **ran: Any) -> RunSummary:
        counts = count_trials(plan, states)
        failures = self.status(plan).failures if counts.failed else ()
        return RunSummary(**vars(counts), store=self.store, failures=failures, **ran)

    def limits(self, time_limit: float | None = None, memory_limit: float | None = None) -> Limits:
        """The limits of a run: those given, else the spec's."""
        return Limits(
            self.spec.time_limit if time_limit is None else time_limit,
            self.spec.memory_limit if memory_limit is None else memory_limit,
        )

    def estimate(
        self, *, workers: int = 1, retry_failed: bool = False, plan: StudyPlan | None = None
    ) -> RunEstimate:
        """How many trials a run would have, and its time as the stored trials tell it."""
        plan, rows = self.read(plan)
        states = {row.outcome.trial_id: row.outcome.state for row in rows}
        todo = _todo(plan, states, retry_failed)
        # Of each cell, and of all of them for cells that have no trial yet.
        cells = {cell.content: number for number, cell in enumerate(plan.cells)}
        own = [(cells[row.cell.content], row) for row in rows if row.cell.content in cells]
        by_cell: dict[int | None, list[float]] = {}
        for number, row in own:
            by_cell.setdefault(number, []).append(row.outcome.seconds)
            by_cell.setdefault(None, []).append(row.outcome.seconds)
        means = {number: fmean(seconds) for number, seconds in by_cell.items()}
        seconds = None
        if means:
            numbers = (plan.trial_positions[each][0] for each in todo)
            seconds = sum(means.get(number, means[None]) for number in numbers) / workers
        total = len(plan.trial_positions)
        return RunEstimate(self.name, total, total - len(todo), len(todo), seconds, workers)

    def table(
        self, details: bool = False, summary: bool = False, plan: StudyPlan | None = None
    ) -> "pd.DataFrame":
        """The stored trials of this study, in the order of its grid; see ``make_table``."""
        return plan_table(*self.read(plan), details, summary)

    def status(self, plan: StudyPlan | None = None) -> StudyStatus:
        """How the study stands, also while it is running."""
        return study_status(self.store, *self.read(plan))

    def tell_earlier(self, plan: StudyPlan, tell: Callable[[str], None]) -> None:
        """Tell of trials of an earlier version of the code, before hours are spent on new ones."""
        if (earlier := self.status(plan).earlier) is not None:
            tell(str(earlier))

    def read(self, plan: StudyPlan | None = None) -> tuple[StudyPlan, list[Row]]:
        """The plan, and all that is in the store now."""
        plan = plan or self.plan
        with open_store(self.store, or_empty=True) as reader:
            return plan, reader.rows()

    def __card__(self) -> Card:
        spec = self.spec
        fields = (
            ("kind", spec.kind),
            *((f"grid {name}", values) for name, values in spec.values.items()),
            *spec.fixed.items(),
            ("trials per cell", spec.trials),
            ("seed", spec.seed),
            ("store", str(self.store)),
        )
        return Card(f"Study {self.name}", fields)


def _todo(plan: StudyPlan, states: Mapping[str, str], retry_failed: bool) -> list[str]:
    settled = (DONE,) if retry_failed else (DONE, FAILED)
    return [each for each in plan.trial_positions if states.get(each) not in settled]


def _reference(kind: Any) -> str:
    """The name by which another process finds a function or a class."""
    module = getattr(kind, "__module__", None)
    name = getattr(kind, "__qualname__", None)
    if module is None or name is None or "<" in name:
        raise InputError(
            "A kind must be found by name. Define it at the top of a module, or give file.py:Name."
        )
    if module != "__main__":
        return f"{module}:{name}"
    try:
        path = inspect.getfile(kind)
    except (OSError, TypeError):
        path = ""  # typed in, not written to a file
    if not path.endswith(".py"):
        raise InputError(f"{name} has no source file. Put it into one: file.py:{name}.")
    return f"{os.path.abspath(path)}:{name}"


def run_study(
    spec: str | Path,
    *,
    scale: str | None = None,
    seed: int | None = None,
    store: str | Path | None = None,
    tell: Callable[[str], None] = tell_on_stderr,
    **how: Any,
) -> RunSummary:
    """Run what a study.toml has left to do: ``finetti run`` in Python.

    The summary prints itself. Ctrl-C raises ``StudyInterrupted``; the same call goes on.

    Args:
        spec: a study.toml, or the name of a shipped study.
        scale, seed, store: in the place of the file's.
        tell: gets sentences for people; stderr unless given.
        how: of ``Study.run``: executor, workers, cluster, retry_failed, quiet, ….

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "pi.toml")
    >>> kind = 'kind = "finetti.studies.examples:estimate_pi"'
    >>> _ = path.write_text(f"{kind}\\ntrials = 2\\n[grid]\\nn_points = [10, 20]")
    >>> run_study(path, executor="inline", quiet=True).done
    4
    """
    study = Study.from_toml(spec, scale=scale, seed=seed, store=store)
    plan = study.plan
    if not how.get("quiet"):
        study.tell_earlier(plan, tell)
    return study.run(plan=plan, on_wait=tell, **how)
