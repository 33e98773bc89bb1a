"""Runs the trials of a cohort with a kind: the same code in every executor."""

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from finetti.core.errors import InputError
from finetti.core.provenance import jax_device, software
from finetti.studies.importing import Strays
from finetti.studies.kinds import CohortKind, StudyKind, TrialKind
from finetti.studies.outcome import Outcome, failed_by, outcome_of
from finetti.studies.trial import Trial


def worker_place() -> dict[str, Any]:
    """What is known of this process before any trial has run: all but the device."""
    return {**software(), "host": socket.gethostname()}


def worker_provenance() -> dict[str, Any]:
    """Where this process computes. Asks JAX for its device only if a trial has loaded it."""
    return {**worker_place(), "device": jax_device() or "cpu"}


def work(kind: StudyKind, trials: Sequence[Trial], strays: Strays) -> Iterator[Outcome]:
    """The outcome of each trial, in order.

    Each gets parameters of its own, of the types that the kind says. A trial of a ``TrialKind``
    that raises is a failed outcome, and so is one that loads code which its id does not know
    (``strays``). A ``CohortKind`` that raises does so for the whole cohort, and whoever called
    splits it.
    """
    start = time.perf_counter()
    if isinstance(kind, CohortKind):
        given = [replace(trial, params=kind.deliver(trial.params)) for trial in trials]
        results = list(kind.run_cohort(given))
        strays.refuse()
        if len(results) != len(trials):
            raise InputError(
                f"run_cohort returned {len(results)} results for {len(trials)} trials. "
                "Return one for each, in order."
            )
        seconds = (time.perf_counter() - start) / len(trials)
        for trial, result in zip(trials, results, strict=True):
            yield _checked(trial, result, seconds)
        return
    assert isinstance(kind, TrialKind)
    for trial in trials:
        start = time.perf_counter()
        try:
            result = kind.run(kind.deliver(trial.params), trial.seed)
            strays.refuse()
        except (Exception, SystemExit) as error:
            yield failed_by(trial.id, error, time.perf_counter() - start)
            continue
        yield _checked(trial, result, time.perf_counter() - start)


def _checked(trial: Trial, result: object, seconds: float) -> Outcome:
    try:
        return outcome_of(trial.id, result, seconds)
    except Exception as error:
        # Not ours alone: what is computed when it is looked at may raise only now.
        return failed_by(trial.id, error, seconds)
