"""Trials of learners with fit and predict: one after another."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from finetti.probe.learners.estimator_learner import as_labels
from finetti.probe.learners.learner import FitLearner
from finetti.probe.tasks.trial_samples import draw_samples
from finetti.probe.tasks.validation import BLOCK, ErrorCount, allowed_errors, score_until
from finetti.probe.trials.trial_metrics import run_each, trial_metrics
from finetti.studies.trials import Trial, TrialResult


class FitTrials:
    """Fits one learner to tasks. ``params`` are those of the trials."""

    def __init__(self, learner: FitLearner, params: Mapping[str, Any]) -> None:
        self.learner, self.params = learner, params
        self.allowed = allowed_errors(params["n_validation"], params["success_accuracy"])

    def run(self, trials: Sequence[Trial], slots: int) -> list[TrialResult | Exception]:
        """The outcome of every trial."""
        return run_each(trials, self._run)

    def _run(self, trial: Trial) -> TrialResult:
        samples = draw_samples(trial.params, trial.seed)
        learner = self.learner.with_function(samples.task.rule.function)
        fitted = learner.fit(samples.bits, samples.labels, trial.seed)

        def errors_in(start: int, stop: int) -> int:
            bits, labels = (each[: stop - start] for each in samples.validation(start // BLOCK))
            return self._errors(fitted, bits, labels)

        # One check only, so that all of it is affordable, and exact for everybody.
        score = score_until(errors_in, self.params["n_validation"], self.params["n_validation"])
        n_samples = len(samples.labels)
        fit = ErrorCount(self._errors(fitted, samples.bits, samples.labels), n_samples)
        return TrialResult(
            trial_metrics(
                samples,
                success=score.errors <= self.allowed,
                best=score,
                last=score,
                fit=fit,
                more={"seed": trial.seed},
            )
        )

    def _errors(self, fitted: Any, bits: np.ndarray, labels: np.ndarray) -> int:
        found = as_labels(self.learner.label, fitted.predict(bits), len(bits))
        return int(np.sum(found != labels))
