"""How long a probe will take: from what is stored, or from a few iterations at its largest size."""

import math
from dataclasses import dataclass, replace

from finetti.probe.experiment import Experiment
from finetti.probe.information import information_bounds
from finetti.probe.learners.base import TrainedLearner
from finetti.probe.learners.learner_names import load_learner
from finetti.show import format_duration
from finetti.studies.estimate import time_pilot
from finetti.studies.executors.base import Executor
from finetti.studies.executors.held import hold
from finetti.studies.executors.local import LocalExecutor

LIKELY_FACTOR = 3  # times the information bound: what good learners need
PILOT_CHECKS = 2  # validations of a trial that is trained for the estimate only


@dataclass(frozen=True)
class ProbeDuration:
    """The time that the trials which are left will take.

    Args:
        trials, pending: all of them, and those without a result.
        seconds: the estimate; None if no trial of the pilot ended.
    """

    trials: int
    pending: int
    seconds: float | None

    @property
    def text(self) -> str:
        """The estimate as a sentence."""
        left = f"{self.pending} of {self.trials} trials to run"
        if not self.pending:
            return f"All {self.trials} trials are stored."
        if self.seconds is None:
            return f"{left}; the pilot took too long to tell their time."
        return f"{left}: about {format_duration(self.seconds)}, or less where trials end early."


def estimate_duration(experiment: Experiment, workers: int = 1) -> ProbeDuration:
    """Estimate the time of what is left to do. Stores nothing.

    The cost of a trial is taken to grow as T·m, or as T where it learns online.
    """
    lengths, sizes = experiment.context_lengths, experiment.n_samples or (1,)
    total = experiment.trials * sum(lengths) * sum(sizes)
    pending, seconds = 0, []
    with hold(LocalExecutor(workers)) as executor:  # one start for all learners, as in the run
        for learner, study in experiment.studies().items():
            table = study.table(details=True)
            pending += experiment.n_trials // len(experiment.learners) - len(table)
            of_each = (
                zip(table["context_length"], table["n_samples"], strict=True) if len(table) else ()
            )
            done = sum(int(T) * (1 if experiment.online else int(m)) for T, m in of_each)
            if done >= total:
                continue
            if done:
                rate, first = math.fsum(table["seconds"]) / done, 0.0
            else:
                n_shapes = len({*study.plan.shapes})
                rate, first = _time_learner(experiment, learner, n_shapes, executor)
            seconds.append(None if rate is None else first + (total - done) * rate / workers)
    known = None if None in seconds else math.fsum(filter(None, seconds))
    return ProbeDuration(experiment.n_trials, pending, known)


def _time_learner(
    experiment: Experiment, learner: str, n_shapes: int, executor: Executor
) -> tuple[float | None, float]:
    """Seconds per unit of T·m, and seconds that are spent once."""
    length, size = experiment.context_lengths[-1:], experiment.n_samples[-1:]
    options = experiment.options.get(learner, {})
    loaded = load_learner(learner, options, context_length=length[0])
    fixed, scale = dict(experiment.fixed), 1.0
    if isinstance(loaded, TrainedLearner):
        iterations = fixed.get("iterations") or loaded.iterations
        fixed["iterations"] = min(iterations, PILOT_CHECKS * loaded.check_every)
        scale = iterations / fixed["iterations"]
    largest = replace(experiment, context_lengths=length, n_samples=size, trials=1, fixed=fixed)
    study = largest.study(learner)
    plan = study.plan
    todo = list(plan.places)
    pilot = time_pilot(plan, todo, list(plan.cohorts(todo)), executor, study.limits())
    units = length[0] * (size or (1,))[0]
    if not pilot.timed:
        return None, 0.0
    once = pilot.startup + pilot.seconds_to_compile * n_shapes
    return pilot.seconds_per_trial * scale / units, once


def likely_grid(experiment: Experiment) -> Experiment:
    """A search as the grid that it would be if it took all its trials near a likely threshold."""
    longest = experiment.rule(experiment.context_lengths[-1])
    likely = round(LIKELY_FACTOR * information_bounds(longest).first_order)
    low, high = experiment.n_samples[0], experiment.n_samples[-1]
    return replace(experiment, n_samples=(min(max(likely, low), high),))
