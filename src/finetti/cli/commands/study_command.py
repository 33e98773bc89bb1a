"""``finetti run``, ``status``, ``export`` and ``merge``: a study, its store, and its results."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.options import (
    Cluster,
    Debug,
    DryRun,
    Json,
    MemoryLimit,
    Quiet,
    RetryFailed,
    TimeLimit,
    Workers,
)
from finetti.cli.output import (
    make_console,
    present,
    present_estimate,
    private_stdout,
    resumable,
    run_verb,
    say_json,
    tell,
)
from finetti.core.errors import InputError
from finetti.core.plain_data import clean_text

if TYPE_CHECKING:
    from finetti.studies.study import Study

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


class WhereTrialsRun(StrEnum):
    """The executors of this machine."""

    LOCAL = "local"
    INLINE = "inline"


def run(
    spec: Annotated[
        Path, typer.Argument(metavar="STUDY", help="A study.toml, or the name of a bundled study.")
    ],
    dry_run: DryRun = False,
    retry_failed: RetryFailed = False,
    executor: Annotated[
        WhereTrialsRun, typer.Option(help="Run trials in child processes, or in this process.")
    ] = WhereTrialsRun.LOCAL,
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
        from finetti.studies.study import Study, run_study

        place: dict[str, Any] = {"scale": scale, "seed": seed, "store": store}
        if dry_run:
            with private_stdout():
                study = Study.from_toml(spec, **place)
                plan = study.plan
                study.tell_earlier(plan, tell)
                how = {"workers": workers or 1, "retry_failed": retry_failed}
                estimate = study.estimate(**how, plan=plan)
            present_estimate(estimate, as_json)
            return
        found = run_verb(
            run_study,
            spec,
            **place,
            retry_failed=retry_failed,
            executor=executor,
            workers=workers,
            cluster=cluster,
            time_limit=time_limit,
            memory_limit=memory_limit,
            wait=wait,
            quiet=quiet,
            tell=tell,
        )
    present(found, as_json=as_json, quiet=quiet)


def status(
    place: Place,
    details: Annotated[
        bool, typer.Option("--details", help="Show the traceback of each kind of failure.")
    ] = False,
    store: StoreFile = None,
    scale: ScaleName = None,
    seed: StudySeed = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how many trials are done, failed, and pending, the time left, and why trials failed.

    Exits with 1 if all stored trials come from an earlier version of the code or the seeding.
    """
    from finetti.studies.study_status import store_status

    study = _study_at(place, scale, seed, store)
    with private_stdout():
        found = store_status(place) if study is None else study.status()
    if as_json:
        say_json(found.to_dict())
    else:
        people = make_console()
        people.print(found)
        for failure in found.failures if details else ():
            people.print(f"{failure.error}\n{failure.traceback or 'No traceback.'}", soft_wrap=True)
    raise typer.Exit(1 if found.earlier and not found.trials else 0)


def export(
    place: Place,
    form: Annotated[
        str,
        typer.Option("--format", metavar="csv|parquet|json|latex|markdown", help="Output format."),
    ] = "csv",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Output file; stdout by default.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Add IDs, times, traces, and provenance.")
    ] = False,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary", help="Mean, standard error, and count per cell instead of trials."
        ),
    ] = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="From a damaged store, export the rows that are intact."),
    ] = False,
    store: StoreFile = None,
    scale: ScaleName = None,
    seed: StudySeed = None,
    debug: Debug = False,
) -> None:
    """Export the stored trials of a study as a table.

    Columns: parameters, version, replicate, state, metrics, and failure. Exits with 1 if no trials
    are stored, and says why, or if rows of a damaged store were left out.
    """
    from finetti.core.files import write_file
    from finetti.studies.store.store_reader import open_store
    from finetti.studies.study_status import study_status
    from finetti.studies.trial_table import (
        Format,
        export_table,
        make_table,
        plan_table,
        too_large,
    )

    if form not in tuple(Format):
        raise InputError(f"--format must be one of {', '.join(Format)}. Got {form!r} instead.")
    if form == Format.PARQUET and out is None:
        raise InputError("Parquet is not text. Give an output file with --out FILE.")
    study = _study_at(place, scale, seed, store)
    with private_stdout():
        plan = study and study.plan
        path = study.store if study else place
        with open_store(path, or_empty=study is not None, salvage=salvage) as reader:
            rows, damaged = reader.rows(), reader.damaged
        if plan is None:
            table, earlier, pending = make_table(rows, details, summary), None, 0
        else:
            table = plan_table(plan, rows, details, summary)
            found = study_status(path, plan, rows)
            earlier, pending = found.earlier, found.studies[0].pending
    for name in damaged:
        tell(f"Damaged, and left out: {name}")
    if table.empty:
        tell(str(earlier or "No trials are stored. `finetti run` runs them."))
        raise typer.Exit(1)
    if pending:
        said = f" {earlier}" if earlier else ""
        tell(f"{pending} trials have no result yet: `finetti run` runs them.{said}")
    content = export_table(table, Format(form))
    if renamed := table.attrs["renamed"]:
        pairs = ", ".join(f"{old} → {new}" for new, old in renamed.items())
        tell(f"Renamed, because another column has the name: {pairs}")
    if out is None:
        # Programs get every byte; a terminal gets nothing that would steer it.
        text = content.decode()
        sys.stdout.write(clean_text(text) if sys.stdout.isatty() else text)
    else:
        write_file(content, out)
        if form == Format.PARQUET and (names := too_large(table)):
            tell(f"Written as text, because they exceed 64 bits: {', '.join(names)}")
        tell(f"{len(table)} {'cells' if summary else 'trials'} written to {out}")
    if damaged:
        raise typer.Exit(1)


def merge(
    target: Annotated[
        Path,
        typer.Argument(metavar="TARGET", help="Store to merge into; created if it does not exist."),
    ],
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE", help="Stores to merge; never changed.")
    ],
    wait: Wait = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Add the trials of other stores to TARGET.

    Merging the same stores again changes nothing. Damaged rows are left out, and named; then it
    exits with 1.
    """
    from finetti.studies.store.merging import merge_stores

    done = merge_stores(target, sources, wait)
    if as_json:
        say_json({**vars(done), "store": str(done.store)})
    else:
        make_console().print(done)
    raise typer.Exit(1 if done.damaged else 0)


def _study_at(
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
