"""``finetti run``: run what a study has left to do."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json, Quiet
from finetti.cli.reproduce import INTERRUPTED
from finetti.cli.studies import ScaleName, StoreFile, StudySeed, Wait, private_stdout
from finetti.core.errors import InputError
from finetti.studies.interruption import ignore_interruptions

if TYPE_CHECKING:
    from finetti.studies.status import RunSummary
    from finetti.studies.study import Study


def run(
    spec: Annotated[Path, typer.Argument(metavar="STUDY", help="A study.toml, or its name.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count trials and cohorts, estimate the time.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed trials again.")
    ] = False,
    executor: Annotated[
        str, typer.Option("--executor", metavar="local|inline", help="A child process, or this.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes on this machine.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="Dask at tcp://…, or scheduler.json."),
    ] = None,
    store: StoreFile = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="S", help="Seconds per trial.")
    ] = None,
    memory_limit: Annotated[
        float | None, typer.Option("--memory-limit", metavar="GB", help="Gigabytes per worker.")
    ] = None,
    scale: ScaleName = None,
    seed: StudySeed = None,
    wait: Wait = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run the trials that have no result yet. Exit code 0 only if every trial is done."""
    if spec.suffix.lower() == ".sqlite":
        raise InputError(f"{spec} is a store. Give the study.toml that it belongs to.")
    # Schedulers of clusters end jobs with SIGTERM: as clean, and as resumable, as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from finetti.studies.executors.local import choose_executor
        from finetti.studies.study import Study

        study = Study.from_toml(spec, scale=scale, seed=seed, store=store)
        chosen = choose_executor(executor, workers, cluster)
        options = {
            "retry_failed": retry_failed,
            "time_limit": time_limit,
            "memory_limit": memory_limit,
        }
        if not quiet:
            _say_what_is_stored(study)
        if dry_run:
            _estimate(study, workers or 1, as_json, options)
            return
        summary = _run(study, chosen, wait=wait, quiet=quiet, **options)
    except KeyboardInterrupt:
        ignore_interruptions()  # one more, and the exit code would be the signal
        typer.echo("Stopped: run the same command again.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    people = make_console(stderr=as_json)
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), indent=1))
    people.print(_sentence(summary), soft_wrap=True)
    if summary.failed and not quiet:
        _show_failures(study, spec, people)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if summary.failed else 0)


def _say_what_is_stored(study: "Study") -> None:
    """Before hours are spent: trials of an earlier version of the code, and how to keep them."""
    from finetti.studies.lock import StoreBusyError

    if not study.store.exists():
        return  # a first run need not load the kind for this
    try:
        with private_stdout():
            earlier = study.status().earlier
    except StoreBusyError:
        return  # nobody may read it now; `run` waits, or says for whom
    if earlier is not None:
        typer.echo(earlier, err=True)


def _estimate(study: "Study", workers: int, as_json: bool, options: dict[str, Any]) -> None:
    with private_stdout():
        found = study.estimate(workers=workers, **options)
    if as_json:
        typer.echo(json.dumps({**vars(found), "duration": found.duration}, indent=1))
    else:
        make_console().print(found)


def _run(study: "Study", executor: Any, **options: Any) -> "RunSummary":
    from finetti.studies.status import StudyInterrupted

    try:
        with private_stdout():
            return study.run(
                executor, on_wait=lambda sentence: typer.echo(sentence, err=True), **options
            )
    except StudyInterrupted as interruption:
        ignore_interruptions()  # what is left to do is to say so
        return interruption.summary


def _sentence(summary: "RunSummary") -> Any:
    from rich.text import Text

    from finetti.show.numbers import format_duration

    text = f"{summary.done} of {summary.trials} trials done"
    text += f", {summary.failed} failed" if summary.failed else ""
    text += f" ({summary.ran} in this run, {format_duration(summary.seconds)})."
    if summary.interrupted:
        text += f" Stopped with {summary.pending} left: run the same command again to continue."
    text += f" Results: {summary.store}"
    return Text(text, style="bold green" if summary.done == summary.trials else "bold red")


def _show_failures(study: "Study", spec: Path, people: Any) -> None:
    from finetti.show.terminal import renderable_table

    with private_stdout():
        status = study.status()
    people.print(renderable_table(status.failure_table()))
    advice = f"See their tracebacks with `finetti status {spec} --details`."
    if any(failure.repeated < failure.trials for failure in status.failures):
        advice += " Try them again with --retry-failed."
    people.print(advice, soft_wrap=True)
