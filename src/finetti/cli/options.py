"""Options that commands share, so that they read and work the same everywhere."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from finetti.core.errors import FinettiError, InputError, UnsupportedError

DEBUG = "finetti.debug"
# How a run was made, and not what it found.
NOT_IN_COMMAND = ("workers", "cluster", "dry_run", "as_json", "quiet", "debug", "retry_failed")


def _remember_debug(context: typer.Context, value: bool) -> bool:
    # `meta` is shared by a command and the group above it, so both places accept the option.
    context.meta[DEBUG] = value or context.meta.get(DEBUG, False)
    return value


Debug = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show a traceback on errors.", callback=_remember_debug, is_eager=True
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document to stdout; other text goes to stderr."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the summary.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
PageFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Directory for results.json, the HTML page, and its charts."
    ),
]
RunFolder = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Directory for the HTML page, results, and trials."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only count the trials and estimate the time.")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Rerun failed trials.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of worker processes on this machine.")
]
AllCores = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Number of worker processes; one per core by default."),
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


def whole_numbers(text: str, option: str) -> list[int]:
    """Numbers from 100,200,400 or FIRST:LAST:STEP (last included), or both, in rising order.

    >>> whole_numbers("50:80:10,200", "--samples")
    [50, 60, 70, 80, 200]
    """
    from finetti.studies.spec import arithmetic

    numbers: set[int] = set()
    for part in text.split(","):
        try:
            ends = [int(each) for each in part.split(":")]
        except ValueError as error:
            raise InputError(
                f"{option} cannot read {part.strip()!r} in {text!r}. Write whole numbers as "
                "100,200,400, or as FIRST:LAST:STEP, for example 50:200:10."
            ) from error
        if len(ends) == 1:
            numbers.add(ends[0])
            continue
        first, last, step = ends if len(ends) == 3 else (*ends[:2], 1)
        if len(ends) > 3 or step < 1 or last < first:
            raise InputError(
                f"{option} has no values in {part.strip()!r}. Write FIRST:LAST:STEP with FIRST ≤ "
                "LAST and STEP ≥ 1, for example 50:200:10."
            )
        numbers.update(arithmetic([first, last, step], option))
    if min(numbers) < 1:
        raise InputError(f"{option} must be at least 1. Got {min(numbers)} in {text!r}.")
    return sorted(numbers)


def named_value(text: str) -> tuple[str, Any]:
    """A setting from NAME=VALUE; values are numbers, lists or words.

    >>> named_value("width=32"), named_value("paper.dropout=none")
    (('width', 32), ('paper.dropout', 'none'))
    """
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise InputError(f"--option {text} cannot be read. Write NAME=VALUE, for example width=32.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a word


def command_line(context: typer.Context, **given: Any) -> str:
    """What runs this command again, with all defaults; ``given`` replaces parameters by name."""
    words = ["finetti", context.info_name or ""]
    values = {**context.params, **given}
    for parameter in context.command.params:
        value = values.get(parameter.name or "")
        if parameter.name in NOT_IN_COMMAND or value is None or value is False:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            option = [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
            words += option if each is True else [*option, str(each)]
    return shlex.join(words)


@contextmanager
def options_named(context: typer.Context, others: str = "", **further: str) -> Iterator[None]:
    """Errors name Python's arguments as the command line does; see `name_options`.

    An option is known by the name of its parameter and by its own, in Python's spelling; there may
    be ``further`` names.
    """
    try:
        yield
    except (InputError, UnsupportedError) as error:
        names = option_names(context.command) | further
        raise InputError(name_options(error, names, others)) from error


def option_names(command: Any) -> dict[str, str]:
    """The options of a command by the names that Python has for them."""
    names: dict[str, str] = {}
    for parameter in command.params:
        option = parameter.opts[0]
        if option.startswith("--"):
            names |= {option[2:].replace("-", "_"): option, parameter.name: option}
    return names


def name_options(error: FinettiError, options: Mapping[str, str], others: str = "") -> str:
    """The sentence with the ``options`` for Python's names; ``others`` explains all other names.

    >>> from finetti.core.errors import bad_argument
    >>> error = bad_argument("basis", "compile", "a word", 3, 'Take basis="random", or `compose`.')
    >>> name_options(error, {"basis": "--basis", "compose": "--gates"})
    '--basis must be a word. Got 3 instead. Take --basis random, or --gates.'
    >>> name_options(InputError("Give a `lipschitz`."), {"basis": "--basis"}, " (of --norms)")
    'Give a `lipschitz` (of --norms).'
    """
    text = str(error)
    if isinstance(error, InputError) and (error.argument in options or (error.argument and others)):
        text = f"`{error.argument}` {error.problem}"
    for name, option in options.items():
        for written in (f"`{name}`", f"`fixed.{name}`", f"`grid.{name}`"):
            text = text.replace(written, option)
        words = rf'\b{name}=("\w+"(?: or "\w+")*)'
        for found in re.finditer(words, text):
            text = text.replace(found[0], f"{option} {found[1]}".replace('"', ""))
    return re.sub(r"`\w+`", rf"\g<0>{others}", text, count=1)
