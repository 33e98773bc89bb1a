"""One question that several studies answer: planned once, run, and shown."""

import difflib
import inspect
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel

from finetti.core.errors import InputError
from finetti.core.files import check_directory
from finetti.core.provenance import software
from finetti.display import Card, Document, Section, Table, format_value
from finetti.display.pages.document import run_facts
from finetti.display.pages.run_result import RunResult
from finetti.studies.coordinator import StudyPlan
from finetti.studies.executors.executor import Executor
from finetti.studies.executors.local_executor import open_executor
from finetti.studies.executors.resource_limits import usable_cores
from finetti.studies.interruption import ignore_interruptions, one_interruption
from finetti.studies.study import Study, tell_on_stderr
from finetti.studies.study_status import (
    RunEstimate,
    StudyInterrupted,
    name_cells,
    total_estimate,
)
from finetti.studies.trials import DONE

if TYPE_CHECKING:
    import pandas as pd


def check_keywords(
    verb: Callable[..., Any], given: Iterable[str], parameters: type[BaseModel]
) -> None:
    """Refuse keywords that neither a verb has nor the ``parameters`` of its trials.

    Of a parameter that the verb has in the plural, ``learners``, the singular is refused, too.
    """
    own = [name for name in inspect.signature(verb).parameters if name != "fixed"]
    rest = (name for name in parameters.model_fields if not {name, f"{name}s"} & set(own))
    known = [*own, *rest]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
            advice = f" Did you mean `{near[0]}`?" if near else ""
            raise InputError(
                f"{verb.__name__} has no argument `{name}`.{advice} It has {', '.join(known)}."
            )


class Experiment(ABC):
    """A question and the studies that answer it; a frozen dataclass with at least these fields.

    Args:
        trials: per cell of the grid.
        store: the file of the results.
        seed: all randomness follows from it; trials of one replicate share it.
        time_limit, memory_limit: seconds per trial, gigabytes per worker; what takes more fails.
    """

    kind: ClassVar[str]
    trials: int
    store: str | Path
    seed: int
    time_limit: float | None
    memory_limit: float | None

    @property
    @abstractmethod
    def title(self) -> str:
        """What is asked, in words."""

    @abstractmethod
    def parts(self) -> dict[str, tuple[dict[str, list[Any]], dict[str, Any]]]:
        """The studies by name, each with its grid and its fixed parameters."""

    def study_fields(self, part: str) -> dict[str, Any]:
        """What `Study` takes for a part, without grid and trials."""
        several = f", {part}" if len(self.parts()) > 1 else ""
        return {
            "store": self.store,
            "name": f"{self.title}{several}",
            "fixed": self.parts()[part][1],
            "seed": self.seed,
            "seed_by": "replicate",
            "time_limit": self.time_limit,
            "memory_limit": self.memory_limit,
        }

    @cached_property
    def studies(self) -> dict[str, Study]:
        """The study of each part."""
        return {
            name: Study(self.kind, grid=grid, trials=self.trials, **self.study_fields(name))
            for name, (grid, _) in self.parts().items()
        }

    @cached_property
    def plans(self) -> dict[str, StudyPlan]:
        """The plan of each study, made once; all that a kind refuses is refused here."""
        return {name: study.plan for name, study in self.studies.items()}

    @property
    def n_trials(self) -> int:
        """Trials of all parts together."""
        grids = (grid.values() for grid, _ in self.parts().values())
        return self.trials * sum(len(list(itertools.product(*grid))) for grid in grids)

    def table(self) -> "pd.DataFrame":
        """All trials that are stored, with their details."""
        import pandas as pd

        tables = [s.table(details=True, plan=self.plans[name]) for name, s in self.studies.items()]
        filled = [each for each in tables if len(each)]
        return pd.concat(filled or tables[:1], ignore_index=True)

    def estimate(self, workers: int | None = None) -> RunEstimate:
        """How many trials a run would have, and its time as the stored trials tell it."""
        cores = usable_cores() if workers is None else workers
        made = (
            s.estimate(workers=cores, plan=self.plans[name]) for name, s in self.studies.items()
        )
        return total_estimate(list(made), self.title)

    def announcement(self, workers: int) -> str:
        """What is said before a run."""
        return self.estimate(workers).text

    def run_parts(
        self,
        executor: Executor,
        options: Mapping[str, Any],
        tell: Callable[[str], None],
        found: dict[str, Any],
    ) -> None:
        """Run the studies one after another; what else is ``found`` is added as it is known."""
        for name, study in self.studies.items():
            study.run(executor, plan=self.plans[name], **options)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the ``fixed`` parameters stand beside the others."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}  # pyright: ignore[reportArgumentType]
        fixed = given.pop("fixed", {})
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
        return {**plain, **fixed, "store": str(self.store)}


@dataclass(frozen=True)
class ExperimentResult(RunResult):
    """What an experiment found.

    Args:
        experiment: what was asked.
        trials: one row per stored trial, with its details: ``Experiment.table``.
        interrupted: whether Ctrl-C ended the run.
    """

    noun: ClassVar[str] = "study"
    part_column: ClassVar[str] = ""  # the parameter that tells the parts apart
    cell_columns: ClassVar[tuple[str, ...]] = ()  # the parameters of the grid

    experiment: Experiment
    trials: "pd.DataFrame"
    interrupted: bool = field(default=False, kw_only=True)

    @cached_property
    def done(self) -> "pd.DataFrame":
        """The trials that ended without an error."""
        return self.trials.loc[self.trials["state"] == DONE] if len(self.trials) else self.trials

    @property
    def wanted(self) -> int:
        """How many trials there are when all have run."""
        return self.experiment.n_trials

    @property
    def counts(self) -> dict[str, int]:
        """Trials in all, done and failed."""
        done = len(self.done)
        return {"all": self.wanted, "done": done, "failed": len(self.trials) - done}

    @property
    def partial(self) -> str:
        """What has run, if it is not all."""
        stored = len(self.trials)
        return f"{stored} of {self.wanted} trials" if stored < self.wanted else ""

    @property
    def as_expected(self) -> bool:
        """Whether no trial failed."""
        return not self.counts["failed"]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Why trials ended with an error, in how many and in which cells; most first."""
        if not len(self.trials):
            return []
        failed = self.trials.loc[self.trials["state"] != DONE]
        lost: list[dict[str, Any]] = failed.to_dict("records")  # pyright: ignore[reportAssignmentType]
        groups: dict[tuple[Any, str], list[dict[str, Any]]] = {}
        for row in lost:
            reason = (row["failure"] or "unknown").splitlines()[0]
            groups.setdefault((row.get(self.part_column), reason), []).append(row)
        found = []
        for (part, reason), rows in sorted(groups.items(), key=lambda group: -len(group[1])):
            named = {self.part_column: part} if self.part_column else {}
            cells = Counter(self._cell(row) for row in rows)
            found.append({**named, "reason": reason, "trials": len(rows), "cells": dict(cells)})
        return found

    def _cell(self, row: Mapping[str, Any]) -> str:
        values = ((name, row.get(name)) for name in self.cell_columns)
        return ", ".join(f"{k}={format_value(v)}" for k, v in values if v is not None and v == v)

    def failure_table(self) -> Table | None:
        """Why trials failed, and in which cells; None if none did."""
        if not (failures := self.failures):
            return None
        rows = [(*list(each.values())[:-1], name_cells(each["cells"])) for each in failures]
        return Table("Why trials failed", tuple(failures[0]), tuple(rows))

    @property
    def surprises(self) -> tuple[str, ...]:
        """What has not run, and what failed."""
        counts, found = self.counts, []
        if left := counts["all"] - counts["done"] - counts["failed"]:
            told = f"{left} of {counts['all']} trials have not run"
            found.append(f"The {self.noun} is not complete: {told}.")
        elif self.partial:
            found.append(f"The {self.noun} is not complete: {self.partial}.")
        if counts["failed"]:
            found.append(f"{counts['failed']} trials ended with an error and are not counted.")
        return tuple(found)

    def final_sentence(self, page: Path | None = None) -> str:
        """How the run ended, how to go on, and where its files are."""
        counts = self.counts
        text = f"{counts['done']} of {counts['all']} trials done"
        text += f", {counts['failed']} failed" if counts["failed"] else ""
        if self.interrupted:
            left = counts["all"] - counts["done"] - counts["failed"]
            stopped = f"with {left} left" if left else "before the search ended"
            text += f". Interrupted {stopped}: rerun the same command to resume"
        text += "" if page is None else f". Page: {page}"
        text += f" · trials: {self.experiment.store}"
        if counts["failed"]:
            text += f". Tracebacks: `finetti status {self.experiment.store} --details`"
            text += "; rerun what failed with --retry-failed."
        return text

    @property
    def summary(self) -> str:
        """What was done, as the first paragraph of the page."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        return ()

    @abstractmethod
    def tables(self) -> list[Table]:
        """What people read at the end of a run."""

    @abstractmethod
    def sections(self) -> Sequence[Section]:
        """The content of the page."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """What was found, beside what each experiment tells, as plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "headline": self.headline,
            "settings": self.experiment.to_dict(),
            "partial": self.partial,
            "interrupted": self.interrupted,
            "trials": self.counts,
            "failures": self.failures,
            **self.values(),
        }

    def results(self, command: str = "") -> dict[str, Any]:
        """What was found, and how it was made."""
        return {**self.to_dict(), "command": command, **self._made_by()}

    def _made_by(self) -> dict[str, Any]:
        trials = self.trials
        machine = {
            name: sorted({str(each) for each in trials[name].dropna()}) if name in trials else []
            for name in ("device", "commit")
        }
        timed = len(trials) and "seconds" in trials
        return {
            "seconds": round(sum(map(float, trials["seconds"])), 3) if timed else 0.0,
            "finished": trials["finished"].max().isoformat() if timed else None,
            "provenance": {**software(), **machine},
        }

    def page(self, command: str = "") -> Document:
        """The page: what was found, drawn, and the errors."""
        errors = self.failure_table()
        return Document(
            self.headline,
            summary=tuple(filter(None, (self.summary,))),
            warnings=self.surprises,
            sections=(*self.sections(), *([Section("Errors", tables=(errors,))] if errors else [])),
            command=command,
            facts=run_facts({"trials": self.counts, **self._made_by()}),
        )

    def __card__(self) -> Card:
        errors = self.failure_table()
        tables = (*self.tables(), *([errors] if errors else []))
        return Card(self.headline, tables=tables, notes=self.notes)


Result = TypeVar("Result", bound=ExperimentResult)


def run_experiment(
    experiment: Experiment,
    result_type: type[Result],
    executor: str | Executor = "local",
    *,
    workers: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
    tell: Callable[[str], None] = tell_on_stderr,
) -> Result:
    """Run what has no result yet. After Ctrl-C the same call goes on.

    Ctrl-C raises ``StudyInterrupted``, whose ``result`` is what is known by then.

    Args:
        experiment: the question.
        result_type: what shows its answer.
        executor: as for ``Study.run``.
        workers: processes on this machine; one per core unless given.
        cluster: address or scheduler file of a Dask cluster to use instead.
        retry_failed: run the failed trials again as well.
        quiet: no progress bar, and no sentences before the run.
        tell: gets the sentences; stderr unless given.
    """
    if (executor, workers, cluster) == ("local", None, None):
        # A trial is small: two of them on one core each end sooner than one after another.
        workers = usable_cores()
    options: dict[str, Any] = {"retry_failed": retry_failed, "quiet": quiet, "on_wait": tell}
    found: dict[str, Any] = {}
    stopped: StudyInterrupted | None = None
    with one_interruption():
        with open_executor(executor, workers, cluster) as opened:
            plans = experiment.plans
            if not quiet:
                tell(experiment.announcement(workers or 1))
                for name, study in experiment.studies.items():
                    study.tell_earlier(plans[name], tell)
            check_directory(Path(experiment.store).parent)
            try:
                experiment.run_parts(opened, options, tell, found)
            except StudyInterrupted as interruption:
                ignore_interruptions()  # what is left to do is to say what is known
                stopped = interruption
        result = result_type(
            experiment, experiment.table(), interrupted=stopped is not None, **found
        )
    if stopped is not None:
        raise StudyInterrupted(stopped.summary, result) from None
    return result
