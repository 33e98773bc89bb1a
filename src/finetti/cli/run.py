"""``finetti run``: run what a study has left to do."""

import json
from pathlib import Path
from typing import Annotated

import typer

from finetti.cli.console import make_console, say
from finetti.cli.options import INTERRUPTED, Debug, Json, Quiet
from finetti.cli.studies import (
    Cluster,
    MemoryLimit,
    RetryFailed,
    ScaleName,
    StoreFile,
    StudySeed,
    TimeLimit,
    Wait,
    Workers,
    private_stdout,
    resumable,
    run_study,
    say_what_is_stored,
    show_failures,
    summary_sentence,
)
from finetti.core.errors import InputError


def run(
    spec: Annotated[
        Path, typer.Argument(metavar="STUDY", help="A study.toml, or the name of a bundled study.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the trials and estimate the time.")
    ] = False,
    retry_failed: RetryFailed = False,
    executor: Annotated[
        str,
        typer.Option(
            "--executor",
            metavar="local|inline",
            help="Run trials in child processes, or in this process.",
        ),
    ] = "local",
    workers: Workers = None,
    cluster: Cluster = None,
    store: StoreFile = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    scale: ScaleName = None,
    seed: StudySeed = None,
    wait: Wait = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run the trials of a study that have no result yet.

    Exits with 0 only if every trial is done. Rerun the same command to resume an interrupted run.
    """
    if spec.suffix.lower() == ".sqlite":
        raise InputError(f"{spec} is a store. Give the study.toml that it belongs to.")
    with resumable():
        from finetti.studies.executors.local_executor import open_executor
        from finetti.studies.study import Study

        study = Study.from_toml(spec, scale=scale, seed=seed, store=store)
        with open_executor(executor, workers, cluster) as chosen:
            with private_stdout():
                plan = study.plan
            if not quiet:
                say_what_is_stored(study, plan)
            if dry_run:
                found = study.estimate(workers=workers or 1, retry_failed=retry_failed, plan=plan)
                if as_json:
                    say(json.dumps({**vars(found), "duration": found.duration}, indent=1))
                else:
                    make_console().print(found)
                return
            limits = {"time_limit": time_limit, "memory_limit": memory_limit}
            options = {"retry_failed": retry_failed, "wait": wait, "quiet": quiet, **limits}
            summary = run_study(study, chosen, plan=plan, **options)
    people = make_console(stderr=as_json)
    if as_json:
        say(json.dumps(summary.to_dict(), indent=1))
    people.print(summary_sentence(summary), soft_wrap=True)
    if summary.failed and not quiet:
        show_failures(study, plan, spec, people)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if summary.failed else 0)
