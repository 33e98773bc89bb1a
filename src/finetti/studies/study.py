"""A study: run it as often as you like, it does what is left to do."""

import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError
from finetti.core.provenance import commit_of
from finetti.show import Card, Shown
from finetti.studies.canonical import unicode_text
from finetti.studies.executors.base import Executor
from finetti.studies.executors.local import LocalExecutor, choose_executor
from finetti.studies.importing import WORKER_VARIABLE
from finetti.studies.interruption import ignore_interruptions, one_interruption
from finetti.studies.limits import Limits
from finetti.studies.lock import StoreBusyError
from finetti.studies.outcome import DONE, FAILED
from finetti.studies.plan import WorkPlan, make_work_plan, plan_digest
from finetti.studies.records import Records, Row, open_records
from finetti.studies.shipped import spec_file
from finetti.studies.sources import KindSource, find_source
from finetti.studies.spec import make_spec, read_spec
from finetti.studies.status import (
    RunSummary,
    StudyInterrupted,
    StudyStatus,
    count_trials,
    study_status,
)
from finetti.studies.store import Store
from finetti.studies.table import plan_table

if TYPE_CHECKING:
    import pandas as pd

    from finetti.studies.estimate import RunEstimate


class Study(Shown):
    """A grid of seeded trials and the store of their results.

    Args:
        kind: ``package.module:Name``, ``file.py:Name``, or a function or kind from a module.
        store: the file of the results.
        directory: what ``file.py`` is relative to; the current one unless given.
        scale: the preset among ``scales`` to apply.
        only: which trials of the grid belong to the study, by their parameters and replicate; all
            unless given. The store does not remember such a part of a grid, only its trials.
        fields: of ``StudySpec``: grid, fixed, trials, seed, name, cohort, limits, scales.

    >>> from finetti.studies import Study
    >>> study = Study(
    ...     "finetti.studies.examples:estimate_pi",
    ...     store="pi.sqlite",
    ...     grid={"n_points": {"logrange": [10, 1000, 3]}},
    ...     trials=4,
    ... )
    >>> len(study.plan.cells), len(study.plan.places)
    (3, 12)
    """

    def __init__(
        self,
        kind: str | Callable[..., Any] | type,
        *,
        store: str | Path,
        directory: str | Path = ".",
        scale: str | None = None,
        only: Callable[[Mapping[str, Any], int], bool] | None = None,
        **fields: Any,
    ) -> None:
        self.only = only
        self.given: tuple[Any, KindSource] | None = None
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
    def source(self) -> KindSource:
        """The kind's source as it is now."""
        if self.given is not None:
            return self.given[1]
        return find_source(self.spec.kind, self.directory, self.spec.code_version)

    @property
    def plan(self) -> WorkPlan:
        """The cells and trials, by the source as it is now.

        Loads the kind, unless the store knows the plan already.
        """
        with open_records(self.store, or_empty=True) as records:
            return self._plan(records)

    def _plan(self, records: Records) -> WorkPlan:
        source = self.source
        key = plan_digest(self.spec, source, self.name)
        found = records.plan(key) if key is not None else None
        if found is not None:
            return replace(found, source=source, only=self.only)
        from finetti.studies.kinds import as_kind, load_kind

        kind = load_kind(source) if self.given is None else as_kind(self.given[0], self.name)
        return replace(make_work_plan(self.spec, source, kind, self.name), only=self.only)

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
        journal: str = "auto",
        describe: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> RunSummary:
        """Run what has no result yet, and store it.

        Ctrl-C ends this cleanly (``StudyInterrupted``, a KeyboardInterrupt); run again to continue.

        Args:
            executor: ``local`` (child processes), ``inline`` (this process), or one of your own.
            workers: how many child processes; one unless given.
            cluster: address or scheduler file of a Dask cluster to use instead.
            retry_failed: run the failed trials again as well.
            time_limit, memory_limit: seconds per trial, gigabytes per worker; the spec's unless
                given.
            wait: wait for another process that writes to the store.
            quiet: no progress bar.
            on_wait: called with a sentence that says who is waited for.
            journal: see ``Store``.
            describe: names a trial by its parameters, in a progress bar that tells each.
        """
        if os.environ.get(WORKER_VARIABLE):
            raise InputError(
                "A study was started by the file of its kind. Put the lines that start it under "
                "`if __name__ == '__main__':`."
            )
        chosen = choose_executor(executor, workers, cluster)
        limits = self.limits(time_limit, memory_limit)
        plan = None
        try:
            with open_records(self.store, or_empty=True) as records:
                plan, states = self._plan(records), records.states()
            if not _todo(plan, states, retry_failed):
                # Without a lock, and without loading the kind.
                return RunSummary(**vars(count_trials(plan, states)), store=self.store)
        except StoreBusyError:
            pass  # a store that nobody reads while it is written; its lock waits, or says by whom
        with one_interruption(), Store(self.store, journal, wait, on_wait) as store:
            plan = plan or self._plan(store.records)
            todo = _todo(plan, store.records.states(), retry_failed)
            return self._run(store, plan, chosen, limits, todo, quiet, describe)

    def _run(
        self,
        store: Store,
        plan: WorkPlan,
        executor: Executor,
        limits: Limits,
        todo: list[str],
        quiet: bool,
        describe: Callable[[Mapping[str, Any]], str] | None,
    ) -> RunSummary:
        from finetti.show.progress import progress_bar
        from finetti.studies.engine import Engine

        start, interrupted = time.monotonic(), False
        own = plan.source.reference.startswith("finetti.")
        commit = commit_of(Path(__file__).parent if own else self.directory)
        shown = len(todo), not quiet, "trials", describe is not None
        with progress_bar(self.name, *shown) as on_change:
            engine = Engine(plan, store, executor, {"commit": commit}, on_change, describe)
            try:
                executor.start(plan.source, limits)
                if plan.only is None:
                    store.add_plan(plan)
                engine.run(todo)
            except KeyboardInterrupt:
                ignore_interruptions()
                interrupted = True
            finally:
                executor.close()
        counts, seconds = count_trials(plan, store.records.states()), time.monotonic() - start
        ran = {"ran": engine.stored, "seconds": round(seconds, 3), "interrupted": interrupted}
        summary = RunSummary(**vars(counts), store=self.store, **ran)
        if interrupted:
            raise StudyInterrupted(summary)
        return summary

    def limits(self, time_limit: float | None = None, memory_limit: float | None = None) -> Limits:
        """The limits of a run: those given, else the spec's."""
        return Limits(
            self.spec.time_limit if time_limit is None else time_limit,
            self.spec.memory_limit if memory_limit is None else memory_limit,
        )

    def estimate(
        self,
        *,
        workers: int = 1,
        retry_failed: bool = False,
        time_limit: float | None = None,
        memory_limit: float | None = None,
    ) -> "RunEstimate":
        """Trials, cohorts and time of a run, from a timed pilot. Stores nothing."""
        from finetti.studies.estimate import estimate_run

        with open_records(self.store, or_empty=True) as records:
            plan = self._plan(records)
            todo = _todo(plan, records.states(), retry_failed)
        limits = self.limits(time_limit, memory_limit)
        return estimate_run(plan, todo, LocalExecutor(), workers, limits)

    def table(self, details: bool = False, summary: bool = False) -> "pd.DataFrame":
        """The stored trials of this study, in the order of its grid; see ``make_table``."""
        return plan_table(*self.read(), details, summary)

    def status(self) -> StudyStatus:
        """How the study stands, also while it is running."""
        return study_status(self.store, *self.read())

    def read(self) -> tuple[WorkPlan, list[Row]]:
        """The plan, and all that is in the store now."""
        with open_records(self.store, or_empty=True) as records:
            return self._plan(records), list(records.rows())

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


def _todo(plan: WorkPlan, states: Mapping[str, str], retry_failed: bool) -> list[str]:
    settled = (DONE,) if retry_failed else (DONE, FAILED)
    return [each for each in plan.places if states.get(each) not in settled]


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
