"""What ``finetti probe`` is asked: its options, what stands for those not given, their meaning."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.options import whole_numbers
from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.probe.experiment import Experiment

# Those of an option that is not given: a probe that shows what this is about, in two minutes.
SPARSITY = 3
CONTEXT_LENGTHS, ONLINE_LENGTHS = "30,60", "10"
SAMPLES, SEARCHED_SAMPLES = "20,40,60,80,100", "10,1000"
TRIALS, SEARCH_TRIALS = 6, 100
STORE = "trials.sqlite"
BATCH_SIZE = 2048
# Names in Python, and at the command line.
OPTIONS = {
    "name": "--function",
    "learners": "--learner",
    "n_samples": "--samples",
    "label_noise": "--noise",
    "function": "--function",
    "sparsity": "--sparsity",
    "context_length": "--context-length",
    "learner": "--learner",
    "bit_probability": "--bit-probability",
    "iterations": "--iterations",
    "online": "--online",
    "success_accuracy": "--success-accuracy",
}


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


Function = Annotated[
    str,
    typer.Option(
        "--function",
        metavar="NAME",
        help="Hidden rule: and, or, parity, majority, threshold:K, table, or an expression such as "
        "'x0 & (x1 | ~x2)'.",
    ),
]
Sparsity = Annotated[
    int | None,
    typer.Option("--sparsity", min=1, help=f"Number of hidden bits; {SPARSITY} by default."),
]
ContextLengths = Annotated[
    str | None,
    typer.Option(
        "--context-length",
        metavar="T,…",
        help=f"Context lengths, as 100,200 or FIRST:LAST:STEP; {CONTEXT_LENGTHS} by default, "
        f"{ONLINE_LENGTHS} with --online.",
    ),
]
SampleSizes = Annotated[
    str | None,
    typer.Option(
        "--samples",
        metavar="M,…",
        help=f"Sample sizes, as 100,200 or FIRST:LAST:STEP; {SAMPLES} by default. With --search "
        f"the smallest and the largest, {SEARCHED_SAMPLES} by default.",
    ),
]
TrialCount = Annotated[
    int | None,
    typer.Option(
        "--trials",
        min=1,
        help=f"Trials per length, sample size, and learner, {TRIALS} by default. With --search the "
        f"most per length and learner, {SEARCH_TRIALS} by default.",
    ),
]
LearnerNames = Annotated[
    list[str] | None,
    typer.Option(
        "--learner",
        metavar="NAME",
        help="Learner: paper, l1, tree, …, or your own as module:name or ./file.py:Name. "
        "Repeatable.",
    ),
]
DropoutPreset = Annotated[
    Dropout | None, typer.Option("--dropout", help="Dropout of the paper's learner.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Setting of the learner; LEARNER.NAME=VALUE if there are several. Repeatable.",
    ),
]
Search = Annotated[
    bool,
    typer.Option("--search", help="Search for the critical sample size instead of running a grid."),
]
Level = Annotated[
    float, typer.Option("--level", help="Success probability at the critical sample size.")
]
SuccessAccuracy = Annotated[
    float,
    typer.Option(
        "--success-accuracy", help="Test accuracy above which a trial counts as a success."
    ),
]
AmbiguousSets = Annotated[
    Ambiguous,
    typer.Option(
        "--ambiguous",
        help="What to do with training sets that several hidden rules explain: count and report "
        "the rules, keep the set uncounted, or reject it and draw another.",
    ),
]
Noise = Annotated[
    float, typer.Option("--noise", help="Probability that a training label is flipped.")
]
BitProbability = Annotated[
    float, typer.Option("--bit-probability", help="Probability that an input bit is 1.")
]
Iterations = Annotated[
    int | None,
    typer.Option("--iterations", min=1, help="Training steps; the learner's own by default."),
]
Online = Annotated[
    bool,
    typer.Option(
        "--online", help="Train on fresh samples at every step, and show training curves."
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size", min=1, help=f"Samples per step with --online; {BATCH_SIZE} by default."
    ),
]
Trace = Annotated[bool, typer.Option("--trace", help="Record and show training curves.")]
ProbeWorkers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Number of worker processes; one per core by default."),
]
Out = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Directory for the HTML page, results, and trials."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only count the trials and estimate the time.")
]


def completed(options: dict[str, Any]) -> dict[str, Any]:
    """The options, and what takes the place of those that were not given."""
    online, search = options["online"], options["search"]
    defaults = {
        "context_length": ONLINE_LENGTHS if online else CONTEXT_LENGTHS,
        "samples": None if online else SEARCHED_SAMPLES if search else SAMPLES,
        "trials": SEARCH_TRIALS if search else TRIALS,
        "learner": ["paper"],
    }
    if online and (options["samples"] or search):
        wrong = "--samples" if options["samples"] else "--search"
        raise InputError(
            f"{wrong} cannot be combined with --online, where every step has fresh samples. "
            "Leave it out, and set their number with --batch-size."
        )
    given = {**options, **{name: options[name] or value for name, value in defaults.items()}}
    shortest = min(whole_numbers(given["context_length"], "--context-length"))
    given["sparsity"] = _sparsity(given["function"], given["sparsity"], shortest)
    if given["batch_size"] and not online:
        raise InputError("--batch-size only applies to --online. Add --online, or leave it out.")
    given["batch_size"] = given["batch_size"] or (BATCH_SIZE if online else None)
    asked = ("sparsity", "context_length", "samples", "learner", "dropout", "online", "search")
    if given["function"] == "and" and not any(options[name] for name in asked):
        given["dropout"] = Dropout.NONE  # the small probe: four times as fast
    return given


def make_experiment(given: dict[str, Any]) -> "Experiment":
    """The probe that the options ask for; what cannot be is refused here, by option."""
    from finetti.probe.experiment import Experiment

    online, learners = given["online"], tuple(given["learner"])
    if not 0 < given["level"] < 1:
        raise InputError(f"--level must lie between 0 and 1. Got {given['level']:g} instead.")
    if given["dropout"] and "paper" not in learners:
        raise InputError("--dropout only applies to the learner `paper`. Add --learner paper.")
    fixed: dict[str, Any] = {
        "bit_probability": given["bit_probability"],
        "label_noise": given["noise"],
        "ambiguous": str(given["ambiguous"]),
        "success_accuracy": given["success_accuracy"],
    }
    if given["iterations"]:
        fixed["iterations"] = given["iterations"]
    if online:
        fixed |= {"online": True, "batch_size": given["batch_size"]}
    if online or given["trace"]:
        fixed["trace"] = ["loss", "accuracy"]
    n_samples = () if online else tuple(whole_numbers(given["samples"], "--samples"))
    if given["search"] and len(n_samples) != 2:
        raise InputError(
            "--search looks between two sample sizes. Give both, for example --samples 10,1000."
        )
    return Experiment(
        function=given["function"],
        sparsity=given["sparsity"],
        context_lengths=tuple(whole_numbers(given["context_length"], "--context-length")),
        n_samples=n_samples,
        trials=given["trials"],
        store=given["out"] / STORE,
        learners=learners,
        options=_options(given["option"] or [], given["dropout"], learners),
        fixed=fixed,
        seed=given["seed"],
        time_limit=given["time_limit"],
        memory_limit=given["memory_limit"],
    )


def _options(
    texts: list[str], dropout: Dropout | None, learners: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Settings by learner.

    >>> _options(["width=32", "l1.n_folds=3"], Dropout.NONE, ("paper", "l1"))
    Traceback (most recent call last):
    finetti.core.errors.InputError: --option width=32 must name its learner: paper.width=32 or \
l1.width=32.
    >>> _options(["paper.width=32", "l1.n_folds=3"], Dropout.NONE, ("paper", "l1"))
    {'paper': {'dropout': 'none', 'width': 32}, 'l1': {'n_folds': 3}}
    """
    found: dict[str, dict[str, Any]] = {}
    if dropout is not None:
        found["paper"] = {"dropout": str(dropout)}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(
                f"--option {text} cannot be read. Write NAME=VALUE, for example width=32."
            )
        owners = [each for each in learners if name.startswith(f"{each}.")] or [*learners]
        if len(owners) > 1:
            choices = " or ".join(f"{each}.{text}" for each in learners)
            raise InputError(f"--option {text} must name its learner: {choices}.")
        setting = name.removeprefix(f"{owners[0]}.")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value  # a word
        found.setdefault(owners[0], {})[setting] = parsed
    return found


def _sparsity(function: str, given: int | None, shortest: int) -> int:
    """The number of hidden bits, which an expression or a truth table says itself."""
    from finetti.probe.tasks.hidden_rule import make_rule

    if given is not None and given > shortest:
        raise InputError(
            f"--sparsity {given} exceeds the shortest --context-length, {shortest}. "
            "Lower --sparsity, or raise --context-length."
        )
    try:
        return make_rule(function, given, 10**6).sparsity
    except InputError as error:
        if error.argument != "sparsity" or given is not None:
            raise
        return SPARSITY
