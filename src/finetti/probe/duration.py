"""How long a probe will take: from what is stored, or from a few iterations at its largest size."""

import math
from dataclasses import dataclass

from finetti.probe.experiment import Experiment
from finetti.probe.learners.base import NetworkLearner
from finetti.probe.learners.loading import load_learner
from finetti.show import format_duration
from finetti.studies.estimate import time_pilot
from finetti.studies.executors.local import LocalExecutor
from finetti.studies.limits import Limits

BOUNDS = ("at least", "at most", "about")  # what is said of the sum: the first that is true of one
PILOT_CHECKS = 2  # validations of a trial that is trained for the estimate only


@dataclass(frozen=True)
class ProbeDuration:
    """The time that the trials which are left will take.

    Args:
        trials, pending: all of them, and those without a result.
        seconds: the estimate; None if no trial of the pilot ended.
        bound: ``about``, ``at most`` (trials that succeed stop early), or ``at least`` (a trial of
            the pilot took longer than it was given).
    """

    trials: int
    pending: int
    seconds: float | None
    bound: str

    @property
    def text(self) -> str:
        """The estimate as a sentence."""
        left = f"{self.pending} of {self.trials} trials to run"
        if not self.pending:
            return f"All {self.trials} trials are stored."
        if self.seconds is None:
            return f"{left}; no trial of the pilot ended, so their time is unknown."
        return f"{left}: {self.bound} {format_duration(self.seconds)}."


def estimate_duration(experiment: Experiment, workers: int = 1) -> ProbeDuration:
    """Estimate the time of what is left to do. Stores nothing.

    The cost of a trial is taken to grow as its context length.
    """
    trials, pending, seconds, bounds = 0, 0, [], set()
    for learner, study in experiment.studies().items():
        table = study.table(details=True)
        per_cell = experiment.trials * max(1, len(experiment.n_samples))
        total = per_cell * sum(experiment.context_lengths)
        left = total - float(table["context_length"].sum() if len(table) else 0)
        trials += per_cell * len(experiment.context_lengths)
        pending += per_cell * len(experiment.context_lengths) - len(table)
        if left <= 0:
            continue
        if len(table):
            rate, startup, bound = table["seconds"].sum() / (total - left), 0.0, "about"
        else:
            rate, startup, bound = _time_learner(experiment, learner)
        bounds.add(bound)
        seconds.append(None if rate is None else startup + left * rate / workers)
    known = None if None in seconds else math.fsum(filter(None, seconds))
    bound = next((each for each in BOUNDS if each in bounds), "about")
    return ProbeDuration(trials, pending, known, bound)


def _time_learner(experiment: Experiment, learner: str) -> tuple[float | None, float, str]:
    """Seconds per trial and token, seconds before the first trial, and what the sum is."""
    fixed, scale, n_samples = dict(experiment.fixed), 1.0, experiment.n_samples[-1:]
    loaded = load_learner(learner, experiment.options.get(learner, {}))
    trained = isinstance(loaded, NetworkLearner)
    if isinstance(loaded, NetworkLearner):
        iterations = fixed.get("iterations") or loaded.iterations
        few = min(iterations, PILOT_CHECKS * loaded.check_every)
        fixed["iterations"], scale, n_samples = few, iterations / few, experiment.n_samples
    largest = experiment.context_lengths[-1:]
    changes = {"context_lengths": largest, "n_samples": n_samples, "trials": 1, "fixed": fixed}
    plan = experiment.study(learner, **changes).plan
    todo = list(plan.places)
    pilot = time_pilot(plan, todo, list(plan.cohorts(todo)), LocalExecutor(), Limits())
    compiling = pilot.seconds_to_compile * len(experiment.context_lengths)
    if not pilot.timed:
        return (pilot.longest / largest[0], 0.0, "at least") if pilot.cut else (None, 0.0, "about")
    rate = pilot.seconds_per_trial * scale / largest[0]
    bound = "at least" if pilot.cut else "at most" if trained else "about"
    return rate, pilot.startup + compiling, bound
