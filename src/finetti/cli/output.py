"""How every command speaks: results on stdout, sentences for people, Ctrl-C, the exit code."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from finetti.core.plain_data import clean_text
from finetti.studies.interruption import ignore_interruptions

if TYPE_CHECKING:
    from finetti.display import RunResult

INTERRUPTED = 130  # the exit code after Ctrl-C
AGAIN = "Interrupted. Rerun the same command."
NOTHING_KEPT = "Interrupted before anything was written. The same command starts over."


def make_console(stderr: bool = False) -> Any:
    """A Rich console. Logs and pipes have no width of their own and get a roomy one."""
    from finetti.display.clean_console import CleanConsole

    console = CleanConsole(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = CleanConsole(stderr=stderr, width=120)
    return console


def say(text: object, err: bool = False) -> None:
    """Print a line to stdout or stderr. What may come from files of others cannot steer it."""
    typer.echo(clean_text(str(text)), err=err)


def say_json(document: Any) -> None:
    """Print one JSON document to stdout."""
    say(json.dumps(document, indent=1, allow_nan=False))


def tell(sentence: str) -> None:
    """Print a sentence for people to stderr."""
    say(sentence, err=True)


@contextmanager
def private_stdout() -> Iterator[None]:
    """Around anything that may load a user's code: stdout is for results only.

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
def ends_with(sentence: str) -> Iterator[None]:
    """Around what Ctrl-C may stop: ``sentence`` says what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        ignore_interruptions()  # one more, and the exit code would be the signal
        tell(sentence)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def resumable() -> Iterator[None]:
    """Around a run whose store keeps what is done: Ctrl-C ends it with one sentence."""
    # Schedulers of clusters end jobs with SIGTERM: as clean, and as resumable, as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ends_with(AGAIN):
        yield


def run_verb(verb: Any, *arguments: Any, **options: Any) -> Any:
    """Call a verb whose run can be resumed; its result, also if Ctrl-C has ended the run."""
    from finetti.studies.study_status import StudyInterrupted

    try:
        with private_stdout():
            return verb(*arguments, **options)
    except StudyInterrupted as interruption:
        ignore_interruptions()  # what is left to do is to say so
        return interruption.result


def present_estimate(estimate: Any, as_json: bool) -> None:
    """Print what a dry run tells."""
    if as_json:
        say_json(estimate.to_dict())
    else:
        make_console().print(estimate)


def present(
    result: "RunResult",
    *,
    as_json: bool = False,
    quiet: bool = False,
    out: Path | None = None,
    command: str = "",
    advice: str = "",
) -> NoReturn:
    """Show a result to people, as JSON and as a page; end with its exit code.

    ``advice`` is for those who want to know more, and have not asked for a page.
    """
    people = make_console(stderr=as_json)
    style = "bold green" if result.as_expected and not result.interrupted else "bold red"
    failures = result.failure_table()
    if not quiet:
        _print_parts(people, result.__rich__())
    else:
        people.print(result.headline, style="bold", soft_wrap=True)
        if failures is not None:
            from finetti.display.terminal import FittedTable

            people.print(FittedTable(failures))
    for sentence in result.surprises:
        people.print(sentence, style="bold red", soft_wrap=True)
    if as_json:
        say_json(result.results(command))
    page = None if out is None else result.write_page(out, command)
    if last := result.final_sentence(page):
        people.print(last, style=style, soft_wrap=True)
    if advice and not quiet:
        people.print(advice, soft_wrap=True)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if result.as_expected else 1)


def _print_parts(people: Any, part: Any) -> None:
    """Print what a result shows; sentences stay whole, for whoever searches them in a log."""
    from rich.console import Group
    from rich.text import Text

    if isinstance(part, Group):
        for each in part.renderables:
            _print_parts(people, each)
    else:
        people.print(part, soft_wrap=isinstance(part, Text))
