"""Trials of networks that the probe trains: checked every few steps, whoever makes the steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from finetti.core.numerics.random_keys import generator
from finetti.probe.tasks.trial_samples import TrialSamples
from finetti.probe.tasks.validation import BLOCK, ErrorCount, allowed_errors, score_until
from finetti.probe.trials.traces import attention_mass, walsh_trace
from finetti.probe.trials.trial_metrics import LearnerError, trial_metrics
from finetti.studies.trials import Trial, TrialResult
from finetti.training.cohort import CheckResult, TrainingRun

TraceName = Literal["loss", "accuracy", "walsh", "attention"]
N_BACKGROUNDS = 64  # settings of the other bits, for each setting of the hidden ones
N_LOOKS = 256  # samples whose attention is averaged


@dataclass
class TrialState:
    """State of a trial under way: its samples, best validation and traces."""

    trial: Trial
    samples: TrialSamples
    best: ErrorCount | None = None
    solved_at: int | None = None
    failure: str | None = None
    trace: dict[str, list[Any]] = field(default_factory=dict)

    def note(self, score: ErrorCount) -> None:
        """Keep the best; of equal ones the last."""
        if self.best is None or score.accuracy >= self.best.accuracy:
            self.best = score


class NetworkTrials(ABC):
    """Trains one learner on tasks, and checks what it has learned.

    Args:
        params: of the trials; they may differ in ``n_samples``.
    """

    learner: Any  # a TrainedLearner, of the library that the subclass is for

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params
        self.allowed = allowed_errors(params["n_validation"], params["success_accuracy"])

    @abstractmethod
    def run(self, trials: Sequence[Trial], slots: int) -> list[TrialResult | Exception]:
        """The outcome of every trial, in order."""

    @abstractmethod
    def _errors(self, network: Any, bits: np.ndarray, labels: np.ndarray, n_samples: int) -> int:
        """Errors among the first ``n_samples`` rows, of which there are always `BLOCK`."""

    @abstractmethod
    def _probability(self, network: Any, bits: np.ndarray) -> Any:
        """P(label = 1) of each row."""

    def _check(self, state: TrialState, network: Any, step: int, losses: np.ndarray) -> CheckResult:
        try:
            score = self._validate(state.samples, network, self.allowed)
        except LearnerError as error:
            state.failure = f"{error} This was after step {step}."
            return CheckResult(done=True)
        state.note(score)
        if state.solved_at is None and score.errors <= self.allowed:
            state.solved_at = step
        if self.params["trace"]:
            self._record(state, network, step, float(losses[-1]), score)
        return CheckResult(done=self.params["early_stop"] and state.solved_at is not None)

    def _record(
        self, state: TrialState, network: Any, step: int, loss: float, score: ErrorCount
    ) -> None:
        """Add an entry to each requested trace, and the step.

        ``loss``: of the last step. ``accuracy``: on validation, with the number of samples that the
        decision took as ``accuracy_samples``. ``walsh``: the mean Walsh–Fourier coefficient of
        P(label = 1) on the parities of 0, 1, …, s hidden bits. ``attention``: the share of
        attention on the hidden positions, head by head.
        """
        names, samples = self.params["trace"], state.samples
        found: dict[str, Any] = {"step": step}
        if "loss" in names:
            found["loss"] = loss
        if "accuracy" in names:
            found |= {"accuracy": score.accuracy, "accuracy_samples": score.n_scored}
        if "walsh" in names:
            rng = generator(*samples.name, "walsh")
            probability = partial(self._probability, network)
            trace = walsh_trace(probability, samples.task, rng, N_BACKGROUNDS)
            found["walsh"] = trace.by_degree().tolist()
        if "attention" in names:
            bits = samples.validation(0)[0][:N_LOOKS]
            weights = np.asarray(self.learner.attention(network, bits))
            found["attention"] = attention_mass(weights, samples.task).mean.tolist()
        for name, value in found.items():
            state.trace.setdefault(name, []).append(value)

    def _validate(self, samples: TrialSamples, network: Any, allowed: int) -> ErrorCount:
        def errors_in(start: int, stop: int) -> int:
            return self._errors(network, *samples.validation(start // BLOCK), stop - start)

        return score_until(errors_in, self.params["n_validation"], allowed)

    def _fit(self, samples: TrialSamples, network: Any) -> ErrorCount:
        """Errors on the training set, in blocks of the shape that is compiled already."""

        def errors_in(start: int, stop: int) -> int:
            empty = BLOCK - (stop - start)
            bits = np.pad(samples.bits[start:stop], ((0, empty), (0, 0)))
            labels = np.pad(samples.labels[start:stop], (0, empty))
            return self._errors(network, bits, labels, stop - start)

        n_samples = len(samples.labels)
        return score_until(errors_in, n_samples, allowed=n_samples)

    def _result(self, run: TrainingRun) -> TrialResult | Exception:
        state: TrialState = run.tag
        failure = run.failure or state.failure
        if failure is not None:
            return LearnerError(failure)
        samples = state.samples
        try:
            last = self._validate(samples, run.params, self.params["n_validation"])
            fit = None if self.params["online"] else self._fit(samples, run.params)
        except LearnerError as error:
            return error
        state.note(last)
        assert state.best is not None
        more: dict[str, Any] = {"train_loss": float(run.losses[-1]), "steps": run.steps}
        if state.solved_at is not None:
            more["solved_at"] = state.solved_at
        metrics = trial_metrics(
            samples,
            success=state.solved_at is not None,
            best=state.best,
            last=last,
            fit=fit,
            more={**more, "seed": state.trial.seed},
        )
        return TrialResult(metrics, state.trace or None)
