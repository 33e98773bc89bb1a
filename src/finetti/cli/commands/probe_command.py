"""``finetti probe``: how many samples a learner needs to find a hidden rule."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from finetti.cli.options import (
    AllCores,
    Cluster,
    Debug,
    DryRun,
    Json,
    MemoryLimit,
    Quiet,
    RetryFailed,
    RunFolder,
    Seed,
    TimeLimit,
    command_line,
    named_value,
    options_named,
    whole_numbers,
)
from finetti.cli.output import present, present_estimate, private_stdout, resumable, run_verb, tell
from finetti.core.errors import InputError

STORE = "trials.sqlite"


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
            metavar="NAME",
            help="Hidden rule: and, or, parity, majority, threshold:K, table, or an expression "
            "such as 'x0 & (x1 | ~x2)'.",
        ),
    ] = "and",
    sparsity: Annotated[
        int | None, typer.Option(min=1, help="Number of hidden bits; 3 by default.")
    ] = None,
    context_lengths: Annotated[
        str | None,
        typer.Option(
            "--context-length",
            metavar="T,…",
            help="Context lengths, as 100,200 or FIRST:LAST:STEP; 30,60 by default, 10 with "
            "--online.",
        ),
    ] = None,
    n_samples: Annotated[
        str | None,
        typer.Option(
            "--samples",
            metavar="M,…",
            help="Sample sizes, as 100,200 or FIRST:LAST:STEP; 20,40,60,80,100 by default. With "
            "--search the smallest and the largest, 10,1000 by default.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Trials per length, sample size, and learner, 6 by default. With --search the "
            "most per length and learner, 100 by default.",
        ),
    ] = None,
    learners: Annotated[
        list[str] | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help="Learner: paper, l1, tree, …, or your own as module:name or ./file.py:Name. "
            "Repeatable.",
        ),
    ] = None,
    dropout: Annotated[Dropout | None, typer.Option(help="Dropout of the paper's learner.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Setting of the learner; LEARNER.NAME=VALUE if there are several. Repeatable.",
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="Search for the critical sample size instead of running a grid."
        ),
    ] = False,
    level: Annotated[
        float, typer.Option(help="Success probability at the critical sample size.")
    ] = 0.5,
    success_accuracy: Annotated[
        float, typer.Option(help="Test accuracy above which a trial counts as a success.")
    ] = 0.99,
    ambiguous: Annotated[
        Ambiguous,
        typer.Option(
            help="What to do with training sets that several hidden rules explain: count and "
            "report the rules, keep the set uncounted, or reject it and draw another."
        ),
    ] = Ambiguous.REPORT,
    label_noise: Annotated[
        float, typer.Option("--noise", help="Probability that a training label is flipped.")
    ] = 0.0,
    bit_probability: Annotated[
        float, typer.Option(help="Probability that an input bit is 1.")
    ] = 0.5,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Training steps; the learner's own by default.")
    ] = None,
    online: Annotated[
        bool,
        typer.Option(
            "--online", help="Train on fresh samples at every step, and show training curves."
        ),
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples per step with --online; 2048 by default.")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Record and show training curves.")
    ] = False,
    workers: AllCores = None,
    cluster: Cluster = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
    out: RunFolder = Path("probe"),
    dry_run: DryRun = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure how many samples a learner needs to find a sparse hidden rule.

    Without options, runs a small probe of the paper's Transformer without dropout, within two
    minutes. Exits with 0 if every trial ran. Rerun the same command to resume an interrupted run.
    """
    fixed: dict[str, Any] = {
        "bit_probability": bit_probability,
        "label_noise": label_noise,
        "ambiguous": str(ambiguous),
        "success_accuracy": success_accuracy,
        "iterations": iterations,
        "batch_size": batch_size,
        "trace": ["loss", "accuracy"] if trace else None,
    }
    with resumable(), options_named(context, name="--function"):
        asked: dict[str, Any] = {
            "function": function,
            "sparsity": sparsity,
            "context_lengths": _numbers(context_lengths, "--context-length"),
            "n_samples": _numbers(n_samples, "--samples"),
            "trials": trials or 0,
            "learners": learners or (),
            "options": _settings(option or [], dropout, learners or ["paper"]),
            "search": search,
            "level": level,
            "online": online,
            "store": out / STORE,
            "seed": seed,
            "time_limit": time_limit,
            "memory_limit": memory_limit,
        }
        given = {name: value for name, value in fixed.items() if value is not None}
        with private_stdout():
            from finetti.probe import ProbeExperiment, run_probe

        if dry_run:
            with private_stdout():
                estimate = ProbeExperiment(**asked, fixed=given).estimate(workers)
            present_estimate(estimate, as_json)
            return
        how = {"workers": workers, "cluster": cluster, "retry_failed": retry_failed}
        found = run_verb(run_probe, **asked, **given, **how, quiet=quiet, tell=tell)
    ran = found.experiment
    command = command_line(
        context,
        sparsity=ran.sparsity,
        context_lengths=",".join(map(str, ran.context_lengths)),
        n_samples=",".join(map(str, ran.n_samples)) or None,
        trials=ran.trials,
        learners=ran.learners,
        dropout=ran.options.get("paper", {}).get("dropout") if not option else dropout,
        batch_size=ran.fixed.get("batch_size"),
    )
    present(found, as_json=as_json, quiet=quiet, out=out, command=command)


def _numbers(text: str | None, option: str) -> list[int]:
    return [] if text is None else whole_numbers(text, option)


def _settings(
    texts: list[str], dropout: Dropout | None, learners: list[str]
) -> dict[str, dict[str, Any]]:
    """Settings by learner.

    >>> _settings(["width=32", "l1.n_folds=3"], Dropout.NONE, ["paper", "l1"])
    Traceback (most recent call last):
    finetti.core.errors.InputError: --option width=32 must name its learner: paper.width=32 or \
l1.width=32.
    >>> _settings(["paper.width=32", "l1.n_folds=3"], Dropout.NONE, ["paper", "l1"])
    {'paper': {'dropout': 'none', 'width': 32}, 'l1': {'n_folds': 3}}
    """
    found: dict[str, dict[str, Any]] = {}
    if dropout is not None:
        if "paper" not in learners:
            raise InputError("--dropout only applies to the learner `paper`. Add --learner paper.")
        found["paper"] = {"dropout": str(dropout)}
    for text in texts:
        name, value = named_value(text)
        owners = [each for each in learners if name.startswith(f"{each}.")] or learners
        if len(owners) > 1:
            choices = " or ".join(f"{each}.{text}" for each in learners)
            raise InputError(f"--option {text} must name its learner: {choices}.")
        found.setdefault(owners[0], {})[name.removeprefix(f"{owners[0]}.")] = value
    return found
