"""``finetti probe``: how many samples a learner needs to find a hidden rule."""

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json, Quiet, Seed, whole_numbers
from finetti.cli.reproduce import INTERRUPTED
from finetti.cli.studies import (
    Cluster,
    Workers,
    private_stdout,
    resumable,
    run_study,
    say_what_is_stored,
    summary_sentence,
)
from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.probe.experiment import Experiment
    from finetti.probe.findings import Findings

# Those of an option that is not given: a probe that shows what this is about, in two minutes.
SPARSITY = 3
CONTEXT_LENGTHS, ONLINE_LENGTHS = "30,60", "10"
SAMPLES = "20:100:20"
TRIALS = 8
STORE, RESULTS, PAGE = "trials.sqlite", "results.json", "probe.html"


class Dropout(StrEnum):
    """Where the paper's learner drops: in three places, in the attention only, or nowhere."""

    PAPER = "paper"
    ATTENTION = "attention"
    NONE = "none"


class Ambiguous(StrEnum):
    """What becomes of samples that do not identify the hidden bits."""

    REPORT = "report"
    KEEP = "keep"
    REJECT = "reject"


def probe(
    context: typer.Context,
    function: Annotated[
        str,
        typer.Option(
            "--function",
            metavar="NAME",
            help="and, or, parity, majority, threshold:K, table, or as 'x0 & (x1 | ~x2)'.",
        ),
    ] = "and",
    sparsity: Annotated[
        int | None, typer.Option("--sparsity", min=1, help=f"Hidden bits; {SPARSITY} by default.")
    ] = None,
    context_length: Annotated[
        str | None,
        typer.Option(
            "--context-length",
            metavar="T,…",
            help=f"As 100,200 or FIRST:LAST:STEP; {CONTEXT_LENGTHS} by default.",
        ),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option("--samples", metavar="M,…", help=f"In the same way; {SAMPLES} by default."),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="For every length, sample size and learner.")
    ] = TRIALS,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help="paper, l1, tree, … or yours, module:name or ./file.py:Name; may be repeated.",
        ),
    ] = None,
    dropout: Annotated[
        Dropout | None, typer.Option("--dropout", help="Of the paper's learner.")
    ] = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="Find the critical sample size instead of a whole grid."),
    ] = False,
    level: Annotated[
        float, typer.Option("--level", help="P(success) at the critical sample size.")
    ] = 0.5,
    ambiguous: Annotated[
        Ambiguous, typer.Option("--ambiguous", help="Samples that several hidden sets explain.")
    ] = Ambiguous.REPORT,
    noise: Annotated[
        float, typer.Option("--noise", help="Probability that a training label is flipped.")
    ] = 0.0,
    bit_probability: Annotated[
        float, typer.Option("--bit-probability", help="Probability that a bit is 1.")
    ] = 0.5,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Steps; the learner's own by default.")
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Fresh samples at every step, and training curves.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Samples of a step, with --online.")
    ] = 2048,
    trace: Annotated[
        bool, typer.Option("--trace", help="Keep the training curves, and show them.")
    ] = False,
    workers: Workers = None,
    cluster: Cluster = None,
    seed: Seed = 0,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The page, the results and the trials.")
    ] = Path("probe"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the trials, estimate the time.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure how many samples a learner needs to find a sparse hidden rule.

    Without options: a small probe of the paper's Transformer, in about two minutes.
    Exit code 0 if every trial ran. Run the same command again to go on after an interruption.
    """
    with resumable():
        experiment = _experiment(context.params)
        from finetti.report import check_directory
        from finetti.studies.executors.local import choose_executor

        choose_executor("local", workers, cluster)  # what is wrong with them is said before all
        check_directory(out)
        people = make_console(stderr=as_json)
        with private_stdout():
            for study in experiment.studies().values():
                study.plan  # noqa: B018 -- what a learner refuses is said before all

    raise NotImplementedError


def _experiment(given: dict[str, Any]) -> "Experiment":
    """The probe that the options ask for; what cannot be is refused here, by option."""
    from finetti.probe.experiment import Experiment

    online, learners = given["online"], tuple(given["learner"] or ("paper",))
    if not 0 < given["level"] < 1:
        raise InputError(f"--level must lie between 0 and 1. Got {given['level']:g} instead.")
    if online and (given["samples"] or given["search"]):
        wrong = "--samples" if given["samples"] else "--search"
        raise InputError(
            f"{wrong} has no meaning with --online, where every step has fresh samples: "
            "leave it out, and say how many they are with --batch-size."
        )
    if given["dropout"] and "paper" not in learners:
        raise InputError("--dropout is that of the learner `paper`. Add --learner paper.")
    lengths = given["context_length"] or (ONLINE_LENGTHS if online else CONTEXT_LENGTHS)
    fixed: dict[str, Any] = {
        "bit_probability": given["bit_probability"],
        "label_noise": given["noise"],
        "ambiguous": str(given["ambiguous"]),
    }
    if given["iterations"]:
        fixed["iterations"] = given["iterations"]
    if online:
        fixed |= {"online": True, "batch_size": given["batch_size"]}
    if online or given["trace"]:
        fixed["trace"] = ["loss", "accuracy"]
    context_lengths = whole_numbers(lengths, "--context-length")
    return Experiment(
        function=given["function"],
        sparsity=_sparsity(given["function"], given["sparsity"], min(context_lengths)),
        context_lengths=tuple(context_lengths),
        n_samples=() if online else tuple(whole_numbers(given["samples"] or SAMPLES, "--samples")),
        trials=given["trials"],
        store=given["out"] / STORE,
        learners=learners,
        options={"paper": {"dropout": str(given["dropout"])}} if given["dropout"] else {},
        fixed=fixed,
        seed=given["seed"],
    )


def _sparsity(function: str, given: int | None, shortest: int) -> int:
    """The number of hidden bits, which an expression or a truth table says itself."""
    from finetti.probe.tasks import make_rule

    if given is not None and given > shortest:
        raise InputError(
            f"--sparsity {given} hides more bits than the {shortest} of --context-length. "
            "Make one smaller or the other larger."
        )
    try:
        return make_rule(function, given, 10**6).sparsity
    except InputError as error:
        if error.argument != "sparsity" or given is not None:
            raise
        return SPARSITY
