"""``finetti coherence``: is an in-context learner Bayesian?"""

import json
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.console import make_console, say
from finetti.cli.interruption import NOTHING_KEPT, ends_with
from finetti.cli.options import Debug, Json, Quiet, Seed, whole_numbers
from finetti.core.errors import InputError
from finetti.display.progress import progress_bar

if TYPE_CHECKING:
    from finetti.coherence.measuring import CoherenceTable

PAGE = "coherence.html"
CONTEXT_LENGTHS = "4,8,12"
CONTEXTS, DRAWS = 20, 100
MAX_WARNINGS = 5
SHORTEST = 3  # of the family: nearest neighbors ask three


def coherence(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help="Predictors to measure: members of the attention family (softmax, mesa, …), or "
            "your own as module:name or ./file.py:Name; the whole family by default.",
        ),
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(
            "--world",
            metavar="NAME",
            help="World that draws the tokens: gaussian-process, linear-gaussian, beta-bernoulli, "
            "or finite-atoms; one that fits the targets by default.",
        ),
    ] = None,
    context_length: Annotated[
        str,
        typer.Option(
            "--context-length", metavar="T,…", help="Context lengths, as 4,8,12 or FIRST:LAST:STEP."
        ),
    ] = CONTEXT_LENGTHS,
    contexts: Annotated[
        int, typer.Option("--contexts", min=2, help="Number of contexts per length.")
    ] = CONTEXTS,
    draws: Annotated[
        int,
        typer.Option(
            "--draws",
            min=10,
            help="Draws of the next value where it cannot be summed exactly; an estimator is "
            "fitted 12 times per draw, context, and length.",
        ),
    ] = DRAWS,
    noise_variance: Annotated[
        float | None,
        typer.Option(
            "--noise-variance",
            metavar="V",
            help="Variance of a new value around the answer, for targets that answer with a mean "
            "only: without it, their two steps are not measured.",
        ),
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory for results.json, the HTML page, and its charts.",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure how far in-context predictors are from coherence and from the truth.

    Coherent predictors have no order, martingale, or two-step defect. Exits with 0 if all measured
    members of the family behave as expected, and with 1 otherwise.
    """
    lengths = whole_numbers(context_length, "--context-length")
    if out is not None:
        from finetti.core.files import check_directory

        check_directory(out)
    sizes = {"n_contexts": contexts, "n_samples": draws, "seed": seed}
    with (
        ends_with(f"{NOTHING_KEPT} Fewer --contexts or --draws take less time."),
        _warnings_counted() as warned,
    ):
        found = _measured(targets or [], world, lengths, noise_variance, quiet, sizes)
    words = ["finetti", "coherence", *(targets or []), "--world", found.world.name]
    words += ["--context-length", context_length, "--contexts", str(contexts)]
    words += ["--draws", str(draws), "--seed", str(seed)]
    if noise_variance is not None:
        words += ["--noise-variance", str(noise_variance)]
    document = _document(found, shlex.join(words))
    if out is not None:
        _write(found, document, out)
    people = make_console(stderr=as_json)
    if as_json:
        say(json.dumps(document, indent=1, allow_nan=False))
    _show(found, people, quiet, out)
    for text, count in warned.most_common(MAX_WARNINGS):
        say(f"Warned {count} times: {text}", err=True)
    raise typer.Exit(0 if found.as_expected else 1)


@contextmanager
def _warnings_counted() -> Iterator[Counter[str]]:
    """Targets are fitted thousands of times, and may warn each time: what they say, and how often.

    What is said at the same line counts as one, in its first wording.
    """
    counts: Counter[str] = Counter()
    wordings: dict[tuple[str, int], str] = {}

    def count(message: Any, category: Any, filename: str, line: int, *_: Any) -> None:
        counts[wordings.setdefault((filename, line), f"{category.__name__}: {message}")] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = count
        yield counts


def _measured(
    targets: list[str],
    world: str | None,
    lengths: list[int],
    noise_variance: float | None,
    quiet: bool,
    sizes: dict[str, int],
) -> "CoherenceTable":
    from finetti.cli.studies import private_stdout
    from finetti.coherence.family import FAMILY, load_predictor
    from finetti.coherence.measuring import PARTS, measure_coherence
    from finetti.coherence.predictors.predictor_loading import as_predictor

    names = targets or list(FAMILY)
    expected = {name: FAMILY[name].expected for name in names if name in FAMILY}
    if expected and min(lengths) < SHORTEST:
        raise InputError(
            f"--context-length must be at least {SHORTEST} for members of the family: fewer pairs "
            f"have too few orders and neighbors. Got {min(lengths)} instead."
        )
    with private_stdout():
        predictors = [
            as_predictor(load_predictor(name), noise_variance=noise_variance) for name in names
        ]
        chosen = _world(world, predictors)
        total = PARTS * len(names) * len(lengths)
        with progress_bar("coherence", total, not quiet, "parts") as on_change:
            return measure_coherence(
                predictors, chosen, lengths, expected=expected, on_change=on_change, **sizes
            )


def _world(name: str | None, predictors: list[Any]) -> Any:
    """The one that is named, or one whose tokens the targets can read."""
    from finetti.coherence.predictors.world_predictor import has_predictive
    from finetti.latent import worlds

    if name is None:
        letters = {getattr(each, "n_letters", None) for each in predictors}
        fitting = "finite-atoms" if letters == {3} else "gaussian-process"
        name = "beta-bernoulli" if letters == {2} else fitting
    if name not in worlds:
        known = [each for each, make in worlds.items() if has_predictive(make())]
        raise InputError(f"Unknown world {name!r}. Choose one of {', '.join(known)}.")
    return worlds[name]()


def _document(found: "CoherenceTable", command: str) -> dict[str, Any]:
    from finetti.core.numbers import to_plain
    from finetti.core.provenance import software

    return to_plain({**found.to_dict(), "command": command, "provenance": software()}, nan="NaN")


def _write(found: "CoherenceTable", document: dict[str, Any], out: Path) -> None:
    from finetti.coherence.page import coherence_page
    from finetti.core.files import write_file, write_results

    write_results(document, out)
    page = coherence_page(found, document)
    write_file(page.render().encode(), out / PAGE)
    for figure in (each for section in page.sections for each in section.figures):
        figure.chart.save(out / f"{figure.name}.svg")


def _show(found: "CoherenceTable", people: Any, quiet: bool, out: Path | None) -> None:
    from finetti.display.terminal import FittedTable

    people.print(found.headline, style="bold", soft_wrap=True)
    if not quiet:
        people.print(f"world: {found.world.name}, seed {found.seed}", soft_wrap=True)
        people.print(FittedTable(found.table()))
        for note in found.notes:
            people.print(note, style="italic", soft_wrap=True)
    if not found.as_expected:
        names = sorted({row.name for row in found.rows if not row.as_expected})
        people.print(f"Not as expected: {', '.join(names)}.", style="bold red", soft_wrap=True)
    if out is not None:
        people.print(f"Page: {out / PAGE}", style="bold", soft_wrap=True)
