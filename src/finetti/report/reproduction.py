"""``finetti reproduce`` in Python: run the claims, and show what became of them."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from finetti import claims
from finetti.claims.claim import CheckMethod, Claim, Context, Scale
from finetti.claims.results import (
    provenance,
    read_results,
    results_document,
    time_words,
    verdict_sign,
    verdict_words,
)
from finetti.claims.run import ClaimResult, run_claims, shared_programs
from finetti.core.errors import FinettiError
from finetti.core.files import check_directory, write_results
from finetti.display.card import Card, Table
from finetti.display.formatting import format_duration
from finetti.display.pages.run_result import RunResult
from finetti.report.ledger_page import write_figures, write_report
from finetti.studies.coordinator import StudyPlan
from finetti.studies.executors.local_executor import open_executor
from finetti.studies.study import Study
from finetti.studies.study_status import StudyInterrupted

GREEN, RED = "green", "bold red"


@dataclass(frozen=True)
class Reproduction(RunResult):
    """What became of the claims of a run.

    Args:
        claims: their results, as far as they were run.
        document: the run as plain data: `finetti.claims.results_document`.
        allow_inconclusive: whether claims may stay undecided.
        interrupted: whether Ctrl-C ended the run.
    """

    page_name: ClassVar[str] = "report.html"

    claims: tuple[ClaimResult, ...]
    document: dict[str, Any]
    allow_inconclusive: bool = False
    interrupted: bool = False

    @property
    def as_expected(self) -> bool:
        """Whether all is; an error is never allowed, nor a control that nobody notices."""

        def good(result: ClaimResult) -> bool:
            undecided = result.error is None and result.verdict == "inconclusive"
            return result.as_expected or (self.allow_inconclusive and undecided)

        return all(good(each) and all(c.red for c in each.controls) for each in self.claims)

    @property
    def headline(self) -> str:
        """How many verdicts are as expected."""
        document = self.document
        good, finished, selected = (document[n] for n in ("as_expected", "finished", "selected"))
        made_by, controls = document["provenance"], document["controls"]
        text = f"{good} of {finished} verdicts as expected"
        text += f" (scale {made_by['scale']}, seed {made_by['seed']}"
        text += f", {time_words(document)})."
        if controls["run"]:
            text += f" {controls['red']} of {controls['run']} controls turned red."
        if finished < selected:
            text += f" Interrupted with {selected - finished} of {selected} claims not run."
        return text

    @property
    def notes(self) -> tuple[str, ...]:
        """Controls that nobody noticed, and what changed; nothing if there is none of both."""
        lines = [
            f"{result['id']} does not notice: {control['name']}. {control['reason']}"
            for result in self.document["results"]
            for control in result["control_results"]
            if not control["red"]
        ]
        changes = self.document["changes"]
        if changes is not None:
            lines += [f"{x['id']}: {x['old']} before, {x['new']} now" for x in changes["flipped"]]
            lines += [f"{x['id']} moved: {x['name']}" for x in changes["moved"]]
            words = {"flipped": "flipped", "new": "new"}
            words |= {"removed": "not in this run", "moved": "moved"}
            counts = (f"{len(changes[part])} {word}" for part, word in words.items())
            lines.append(f"Against the older run: {', '.join(counts)}.")
        return tuple(lines)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Of each claim id, title, verdict, the decisive number, and the time."""
        found = []
        for result, plain in zip(self.claims, self.document["results"], strict=True):
            decisive = result.evidence.decisive if result.evidence else None
            verdict = f"{verdict_sign(plain)} {verdict_words(plain)}"
            number = decisive.outcome if decisive else result.reason
            time = format_duration(result.seconds) if result.fresh else "reused"
            found.append((result.claim.id, result.claim.title, verdict, number, time))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.document)

    def results(self, command: str = "") -> dict[str, Any]:
        """The document of the run, with the command that makes it again."""
        return {**self.document, "command": command}

    def write_page(self, directory: str | Path, command: str = "") -> Path:
        """Write results.json, report.html, and every chart; return the report."""
        document, directory = self.results(command), check_directory(directory)
        write_results(document, directory)
        page = write_report(document, directory)
        write_figures(document, directory / "figures")
        return page

    def final_sentence(self, page: Path | None = None) -> str:
        """Where the report is."""
        return "" if page is None else f"Report: {page}"

    def __card__(self) -> Card:
        columns = ("id", "claim", "verdict", "decisive number", "time")
        return Card(self.headline, (), (Table("", columns, tuple(self.rows())),), self.notes)

    def __rich__(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("id", no_wrap=True)
        table.add_column("claim")
        table.add_column("verdict", no_wrap=True)
        table.add_column("decisive number", overflow="fold")
        table.add_column("time", justify="right", no_wrap=True)
        for result, (name, title, verdict, number, time) in zip(
            self.claims, self.rows(), strict=True
        ):
            style = GREEN if result.as_expected else RED
            table.add_row(Text(name), Text(title), Text(verdict, style), Text(number), time)
        style = f"bold {GREEN}" if self.document["complete"] and self.as_expected else RED
        return Group(table, *map(Text, self.notes), Text(self.headline, style))


def reproduce_claims(
    only: Sequence[str] = (),
    check: CheckMethod | str | None = None,
    scale: Scale | str = "quick",
    seed: int = 0,
    *,
    controls: bool = False,
    allow_inconclusive: bool = False,
    store: str | Path | None = None,
    against: str | Path | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    quiet: bool = False,
) -> Reproduction:
    """Check the papers' claims on this machine: ``finetti reproduce`` in Python.

    The result prints the verdicts, writes the report (``result.write_page("report")``) and has all
    evidence (``result.to_dict()``, ``result.claims``). Ctrl-C raises ``StudyInterrupted``, whose
    ``result`` is what is known by then.

    Args:
        only: claims to check: ids, globs, or words; all by default.
        check: only claims that are checked in this way.
        scale: ``quick`` (minutes), or ``paper`` (the papers' full grids).
        seed: of the run.
        controls: also check the wrong versions, which must turn red.
        allow_inconclusive: whether claims may stay undecided.
        store: a file that keeps the evidence, from which a run goes on; none by default.
        against: results.json of an earlier run to compare with.
        workers, cluster: see ``Study.run``; this process unless given.
        quiet: no progress bar.

    >>> found = reproduce_claims(["E-erratum-9"], quiet=True)
    >>> found.as_expected, [each.verdict.value for each in found.claims]
    (True, ['fails'])
    """
    chosen = select_claims(only, check)
    older = None if against is None else read_results(Path(against))
    if older is not None and (only or check):  # what was not asked for is neither removed nor new
        asked = {claim.id for claim in chosen}
        older["results"] = [each for each in older["results"] if each["id"] in asked]
    context = Context(Scale(scale), seed)
    titles = {claim.id: claim.title for claim in chosen}
    stopped: list[StudyInterrupted] = []

    def describe(params: Any) -> str:
        entry = params["entry"]
        return f"{entry} {titles[entry]}" if entry in titles else entry

    def run(study: Study, plan: StudyPlan) -> None:
        how = {"retry_failed": True, "wait": True, "quiet": quiet, "describe": describe}
        try:
            study.run(executor, plan=plan, **how)
        except StudyInterrupted as interruption:
            stopped.append(interruption)

    with ExitStack() as stack:
        stack.enter_context(shared_programs())
        here = workers is None and cluster is None
        executor = stack.enter_context(
            open_executor("inline" if here else "local", workers, cluster)
        )
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            store = Path(folder) / "evidence.sqlite"
        results = run_claims(chosen, context, store=store, controls=controls, run=run)
    document = results_document(results, provenance(context), len(chosen), older)
    found = Reproduction(tuple(results), document, allow_inconclusive, bool(stopped))
    if stopped:
        raise StudyInterrupted(stopped[0].summary, found) from None
    return found


def select_claims(
    only: Sequence[str] = (), check: CheckMethod | str | None = None
) -> tuple[Claim, ...]:
    """The claims of a selection; an empty one is refused."""
    ledger = claims.load_ledger()
    if not len(ledger):
        raise FinettiError("This installation has no claims. Reinstall Finetti.")
    wanted = ledger.select(",".join(only)) if only else ledger
    chosen = (wanted if check is None else wanted.checked_as(CheckMethod(check))).entries
    if not chosen:
        raise FinettiError(f"No claim of this selection is checked as {check}. Select others.")
    return chosen
