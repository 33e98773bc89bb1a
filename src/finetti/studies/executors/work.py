"""Runs the trials of a cohort with a kind: the same code in every executor."""

import socket
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from finetti.core.errors import InputError
from finetti.core.provenance import jax_device, software
from finetti.studies.executors.base import Failure
from finetti.studies.importing import Strays
from finetti.studies.kinds import CohortKind, TrialKind, load_kind
from finetti.studies.outcome import Outcome, failed_by, outcome_of
from finetti.studies.sources import KindSource
from finetti.studies.trial import Trial


class Worker:
    """A process that has loaded the kind of ``source``.

    ``place`` is what is sure of where its trials run: a device only once JAX has told it.
    """

    def __init__(self, source: KindSource) -> None:
        self.kind = load_kind(source)
        self.strays = Strays(source)
        self.place = {**software(), "host": socket.gethostname()}

    def run(self, trials: Sequence[Trial]) -> Iterator[Outcome | Failure]:
        """The outcome of each trial, in order; in the place of all a failure, if all raised.

        Each gets parameters of its own, of the types that the kind says. A trial of a ``TrialKind``
        that raises is a failed outcome, and so is one that loads code which its id does not know
        (``strays``). A ``CohortKind`` that raises does so for the whole cohort, which the engine
        splits.
        """
        together = isinstance(self.kind, CohortKind)
        try:
            for outcome in self._together(trials) if together else map(self._alone, trials):
                yield replace(outcome, provenance=self._provenance())
        except (Exception, SystemExit) as error:
            text, details = f"{type(error).__name__}: {error}", traceback.format_exc()
            yield Failure("raised", text, details, provenance=self._provenance())

    def _provenance(self) -> dict[str, Any]:
        # After a trial, which may have chosen a device. JAX's is that of later ones, too.
        if device := jax_device():
            self.place["device"] = device
        return {"device": "cpu", **self.place}

    def _together(self, trials: Sequence[Trial]) -> Iterator[Outcome]:
        assert isinstance(self.kind, CohortKind)
        start = time.perf_counter()
        given = [replace(trial, params=self.kind.deliver(trial.params)) for trial in trials]
        results = list(self.kind.run_cohort(given))
        self.strays.refuse()
        if len(results) != len(trials):
            raise InputError(
                f"run_cohort returned {len(results)} results for {len(trials)} trials. "
                "Return one for each, in order."
            )
        seconds = (time.perf_counter() - start) / len(trials)
        for trial, result in zip(trials, results, strict=True):
            yield _checked(trial, result, seconds)

    def _alone(self, trial: Trial) -> Outcome:
        assert isinstance(self.kind, TrialKind)
        start = time.perf_counter()
        try:
            result = self.kind.run(self.kind.deliver(trial.params), trial.seed)
            self.strays.refuse()
        except (Exception, SystemExit) as error:
            return failed_by(trial.id, error, time.perf_counter() - start)
        return _checked(trial, result, time.perf_counter() - start)


def _checked(trial: Trial, result: object, seconds: float) -> Outcome:
    try:
        return outcome_of(trial.id, result, seconds)
    except Exception as error:
        # Not ours alone: what is computed when it is looked at may raise only now.
        return failed_by(trial.id, error, seconds)
