"""``finetti risk``: the excess risk of a trained network, taken apart."""

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

STORE = "trials.sqlite"


def risk(
    context: typer.Context,
    world: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="World whose best answer is known: beta-bernoulli, finite-atoms, linear-gaussian, "
            "gaussian-process, sphere, or instrumental.",
        ),
    ] = "linear-gaussian",
    world_options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Setting of the world. Repeatable."),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Network to train: attention, limited-attention, conditional-mean, or your own as "
            "module:name or ./file.py:name.",
        ),
    ] = "attention",
    n_samples: Annotated[
        str,
        typer.Option(
            "--samples", metavar="N,…", help="Sample sizes, as 100,1000 or FIRST:LAST:STEP."
        ),
    ] = "50,200,800",
    context_length: Annotated[int, typer.Option(min=1, help="Tokens per sequence.")] = 8,
    restarts: Annotated[
        int, typer.Option(min=1, help="Random starts for the minima over the class.")
    ] = 2,
    iterations: Annotated[int, typer.Option(min=1, help="Training steps.")] = 300,
    learning_rate: Annotated[float, typer.Option(help="Initial learning rate.")] = 0.02,
    class_samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sequences for finding the best of the class; max(4n, 4096) by default.",
        ),
    ] = None,
    test_samples: Annotated[
        int, typer.Option(min=2, help="Sequences for estimating expectations.")
    ] = 4000,
    trials: Annotated[int, typer.Option(min=1, help="Trials per sample size.")] = 2,
    workers: AllCores = None,
    cluster: Cluster = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
    out: RunFolder = Path("risk"),
    dry_run: DryRun = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a network where the best answer is known, and decompose its excess risk.

    Shows generalization, approximation, and optimization error against the number of sequences,
    with error bars and the bound of Theorem 5.3. Without options, runs a small study within two
    minutes. Exits with 0 if every trial ran. Rerun the same command to resume an interrupted run.
    """
    fixed: dict[str, Any] = {
        "world": world,
        "network": network,
        "world_options": dict(map(named_value, world_options or [])),
        "context_length": context_length,
        "restarts": restarts,
        "iterations": iterations,
        "learning_rate": learning_rate,
        "class_samples": class_samples,
        "test_samples": test_samples,
    }
    with resumable(), options_named(context):
        given = {name: value for name, value in fixed.items() if value not in (None, {})}
        asked: dict[str, Any] = {
            "n_samples": whole_numbers(n_samples, "--samples"),
            "trials": trials,
            "store": out / STORE,
            "seed": seed,
            "time_limit": time_limit,
            "memory_limit": memory_limit,
        }
        with private_stdout():
            from finetti.risk import RiskExperiment, decompose_risk

        if dry_run:
            with private_stdout():
                estimate = RiskExperiment(**asked, fixed=given).estimate(workers)
            present_estimate(estimate, as_json)
            return
        how = {"workers": workers, "cluster": cluster, "retry_failed": retry_failed}
        found = run_verb(decompose_risk, **asked, **given, **how, quiet=quiet, tell=tell)
    command = command_line(context)
    present(found, as_json=as_json, quiet=quiet, out=out, command=command)
