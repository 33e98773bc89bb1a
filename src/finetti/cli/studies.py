"""What the commands of studies share: a study or a store on the command line, and its options."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.console import say
from finetti.cli.interruption import AGAIN, ends_with
from finetti.core.errors import InputError
from finetti.studies.interruption import ignore_interruptions

if TYPE_CHECKING:
    from finetti.studies.coordinator import StudyPlan
    from finetti.studies.study import Study
    from finetti.studies.study_status import RunEstimate, RunSummary

Place = Annotated[
    Path,
    typer.Argument(metavar="STUDY", help="A study.toml, the name of a bundled study, or a store."),
]
StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="FILE", help="Store of the results; next to the study by default."
    ),
]
ScaleName = Annotated[
    str | None, typer.Option("--scale", metavar="NAME", help="Preset defined in the study.")
]
StudySeed = Annotated[int | None, typer.Option("--seed", min=0, help="Override the study's seed.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait while another process writes to the store.")
]

RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Rerun failed trials.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of worker processes on this machine.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Dask scheduler: tcp://HOST:PORT, or a scheduler.json file.",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option("--time-limit", metavar="S", help="Time limit per trial, in seconds."),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option("--memory-limit", metavar="GB", help="Memory limit per worker, in gigabytes."),
]


def study_at(
    place: Path, scale: str | None, seed: int | None, store: Path | None
) -> "Study | None":
    """The study in ``place``; None if it is a store."""
    from finetti.studies.spec import is_shipped
    from finetti.studies.study import Study

    if place.suffix.lower() == ".toml" or is_shipped(place):
        return Study.from_toml(place, scale=scale, seed=seed, store=store)
    if (scale, seed, store) != (None, None, None):
        raise InputError("--scale, --seed, and --store apply to a study.toml, not to a store.")
    return None


@contextmanager
def private_stdout() -> Iterator[None]:
    """Around anything that may load a user's kind: stdout is for results only.

    Also what other programs, or libraries below Python, write there ends up on stderr.
    """
    sys.stdout.flush()
    try:
        results = os.dup(1)
    except OSError:
        results = None  # closed by whoever started us: nothing can get there
    try:
        if results is not None:
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if results is not None:
            os.dup2(results, 1)
            os.close(results)


@contextmanager
def resumable() -> Iterator[None]:
    """Around a run whose store keeps what is done: Ctrl-C ends it with one sentence."""
    # Schedulers of clusters end jobs with SIGTERM: as clean, and as resumable, as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ends_with(AGAIN):
        yield


def say_what_is_stored(study: "Study", plan: "StudyPlan") -> None:
    """Before hours are spent: trials of an earlier version of the code, and how to keep them."""
    earlier = study.status(plan).earlier
    if earlier is not None:
        say(earlier, err=True)


def say_how_long(
    estimates: "Sequence[RunEstimate]", dry_run: bool, as_json: bool, before: str = ""
) -> None:
    """The trials of all studies of a command, and their time; on stderr unless asked for alone."""
    from finetti.studies.study_status import total_estimate

    found = total_estimate(estimates)
    if dry_run and as_json:
        say(json.dumps({**vars(found), "duration": found.duration}, indent=1))
    else:
        say(before + found.text, err=not dry_run)


def run_study(study: "Study", executor: Any, **options: Any) -> "RunSummary":
    """Run what is left; Ctrl-C keeps what is done, and the summary says so."""
    from finetti.studies.study_status import StudyInterrupted

    try:
        with private_stdout():
            return study.run(executor, on_wait=lambda sentence: say(sentence, err=True), **options)
    except StudyInterrupted as interruption:
        ignore_interruptions()  # what is left to do is to say so
        return interruption.summary


def summary_sentence(summary: "RunSummary") -> Any:
    """What a run has done, where its results are, and how to go on."""
    from rich.text import Text

    from finetti.display.formatting import format_duration

    text = f"{summary.done} of {summary.trials} trials done"
    text += f", {summary.failed} failed" if summary.failed else ""
    text += f" ({summary.ran} in this run, {format_duration(summary.seconds)})."
    if summary.interrupted:
        text += f" Interrupted with {summary.pending} left: rerun the same command to resume."
    text += f" Results: {summary.store}"
    return Text(text, style="bold green" if summary.done == summary.trials else "bold red")


def show_failures(study: "Study", plan: "StudyPlan", place: Path, people: Any) -> None:
    """Why trials failed, and what to do; ``place`` is what ``finetti status`` takes."""
    from finetti.display.terminal import FittedTable

    status = study.status(plan)
    people.print(FittedTable(status.failure_table()))
    advice = f"Show their tracebacks with `finetti status {place} --details`."
    if any(failure.repeated < failure.trials for failure in status.failures):
        advice += " Rerun them with --retry-failed."
    people.print(advice, soft_wrap=True)
