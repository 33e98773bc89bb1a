"""``finetti coherence``: is an in-context learner Bayesian?"""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from finetti.cli.options import (
    Debug,
    Json,
    PageFolder,
    Quiet,
    Seed,
    command_line,
    options_named,
    whole_numbers,
)
from finetti.cli.output import NOTHING_KEPT, ends_with, present, private_stdout, tell

MAX_WARNINGS = 5


def coherence(
    context: typer.Context,
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
            metavar="NAME",
            help="World that draws the tokens: gaussian-process, linear-gaussian, beta-bernoulli, "
            "or finite-atoms; one that fits the targets by default.",
        ),
    ] = None,
    context_lengths: Annotated[
        str,
        typer.Option(
            "--context-length", metavar="T,…", help="Context lengths, as 4,8,12 or FIRST:LAST:STEP."
        ),
    ] = "4,8,12",
    n_contexts: Annotated[
        int, typer.Option("--contexts", min=2, help="Number of contexts per length.")
    ] = 20,
    n_samples: Annotated[
        int,
        typer.Option(
            "--draws",
            min=10,
            help="Draws of the next value where it cannot be summed exactly; an estimator is "
            "fitted 12 times per draw, context, and length.",
        ),
    ] = 100,
    noise_variance: Annotated[
        float | None,
        typer.Option(
            metavar="V",
            help="Variance of a new value around the answer, for targets that answer with a mean "
            "only: without it, their two steps are not measured.",
        ),
    ] = None,
    seed: Seed = 0,
    out: PageFolder = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure how far in-context predictors are from coherence and from the truth.

    Coherent predictors have no order, martingale, or two-step defect. Exits with 0 if all measured
    members of the family behave as expected, and with 1 otherwise.
    """
    lengths = whole_numbers(context_lengths, "--context-length")
    if out is not None:
        from finetti.core.files import check_directory

        check_directory(out)
    sizes = {"n_contexts": n_contexts, "n_samples": n_samples, "seed": seed, "quiet": quiet}
    with (
        ends_with(f"{NOTHING_KEPT} Fewer --contexts or --draws take less time."),
        options_named(context),
        _warnings_counted() as warned,
        private_stdout(),
    ):
        from finetti.coherence import measure_coherence

        found = measure_coherence(
            targets or None, world, lengths, noise_variance=noise_variance, **sizes
        )
    for text, count in warned.most_common(MAX_WARNINGS):
        tell(f"Warned {count} times: {text}")
    command = command_line(context, world=found.world.name)
    present(found, as_json=as_json, quiet=quiet, out=out, command=command)


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
