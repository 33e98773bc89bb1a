"""Trials of learners that are trained by gradients: together, in cohorts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from finetti.core.errors import FinettiError
from finetti.core.keys import random_key
from finetti.probe.learners.base import NetworkLearner
from finetti.probe.online import batch_stream, task_arrays
from finetti.probe.recording import record
from finetti.probe.result import LearnerError, trial_metrics
from finetti.probe.samples import TrialSamples, draw_samples, rule_of
from finetti.probe.validation import BLOCK, ErrorCount, allowed_errors, score_until
from finetti.studies.outcome import TrialResult
from finetti.studies.trial import Trial
from finetti.training.cohort import CheckResult, Member, TrainingRun, train_cohort

SMALLEST_BATCH = 64


def padded_size(n_samples: int) -> int:
    """The rows of a padded training set: few sizes, so that sample sizes share compilations.

    It depends on the trial alone, never on its company, so that its numbers do not either.

    >>> [padded_size(n) for n in (1, 64, 65, 100, 140, 200)]
    [64, 64, 96, 128, 192, 256]
    """
    size = SMALLEST_BATCH
    while size < n_samples:
        size = size * 3 // 2 if size.bit_count() == 1 else size * 4 // 3
    return size


@dataclass
class _Watch:
    """What is known of a trial under way."""

    trial: Trial
    samples: TrialSamples
    best: ErrorCount | None = None
    solved_at: int | None = None
    failure: str | None = None
    trace: dict[str, list[Any]] = field(default_factory=dict)

    def note(self, score: ErrorCount) -> None:
        if self.best is None or score.accuracy >= self.best.accuracy:
            self.best = score


class NetworkTrials:
    """Trains one learner on tasks of one shape; what is compiled is kept.

    Args:
        learner: whose network is trained.
        params: of the trials; they may differ in ``n_samples``.
    """

    def __init__(self, learner: NetworkLearner, params: Mapping[str, Any]) -> None:
        # An optimizer with a schedule must know how many steps this trial makes.
        learner = replace(learner, iterations=params["iterations"])
        self.learner, self.params = learner, params
        self.allowed = allowed_errors(params["n_validation"], params["success_accuracy"])
        self.stream = None
        if params["online"]:
            self.stream = batch_stream(rule_of(params), params["batch_size"])
        self.optimizer = learner.optimizer()
        self._check_shape()

        # Functions of their own, made once: compiled programs are found again by them.
        def apply(network: Any, bits: Any, key: Any) -> Any:
            return learner.apply(network, bits, key)

        def loss(network: Any, batch: Any, key: Any) -> Any:
            bits, labels, weights = batch
            logits = apply(network, bits, key)
            each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            weights = weights.astype(each.dtype)
            return jnp.sum(weights * each) / jnp.sum(weights)

        self.apply, self.loss = apply, loss

    def _check_shape(self) -> None:
        """Run the network without computing anything, so that what it returns is known."""
        name, length = type(self.learner).__name__, self.params["context_length"]
        bits = jax.ShapeDtypeStruct((BLOCK, length), jnp.uint8)
        key = random_key("shape")
        try:
            network = eqx.filter_eval_shape(self.learner.init, key, length)
            for each in (key, None):
                found = eqx.filter_eval_shape(self.learner.apply, network, bits, each)
                shape = getattr(found, "shape", type(found).__name__)
                if shape != (BLOCK, 2):
                    raise LearnerError(
                        f"`apply` of the learner {name} must return logits of shape (m, 2), one "
                        f"for each label. Got {shape} for bits of shape {bits.shape} instead."
                    )
        except LearnerError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise LearnerError(f"The learner {name} fails on T = {length}. {told}") from error

    def run(self, trials: Sequence[Trial], slots: int) -> list[TrialResult | Exception]:
        """The outcome of every trial, in order."""
        found: dict[str, TrialResult | Exception] = {}
        runs = train_cohort(
            self.loss,
            self._members(trials, found),
            optimizer=self.optimizer,
            iterations=self.params["iterations"],
            check_every=self.params["check_every"],
            slots=slots,
            check=self._check,
            stream=self.stream,
        )
        found |= {run.tag.trial.id: self._result(run) for run in runs}
        return [found[trial.id] for trial in trials]

    def _members(
        self, trials: Sequence[Trial], failed: dict[str, TrialResult | Exception]
    ) -> Iterator[Member]:
        """The trials as members, made when a slot is free; those without data go to ``failed``."""
        for trial in trials:
            try:
                samples = draw_samples(trial.params, trial.seed)
            except FinettiError as error:
                failed[trial.id] = error
                continue
            start, steps = jax.random.split(random_key("training", *samples.name))
            network = self.learner.init(start, self.params["context_length"])
            yield Member(network, self._data(samples), steps, _Watch(trial, samples))

    def _data(self, samples: TrialSamples) -> Any:
        if self.params["online"]:
            return task_arrays(samples.task)
        n_samples = len(samples.labels)
        empty = padded_size(n_samples) - n_samples
        weights = np.arange(n_samples + empty) < n_samples
        bits = np.pad(samples.bits, ((0, empty), (0, 0)))
        labels = np.pad(samples.labels, (0, empty)).astype(np.int32)
        return bits, labels, weights.astype(np.float32)

    def _check(self, watch: _Watch, network: Any, step: int, losses: np.ndarray) -> CheckResult:
        try:
            score = self._validate(watch.samples, network, self.allowed)
        except LearnerError as error:
            watch.failure = f"{error} This was after step {step}."
            return CheckResult(done=True)
        watch.note(score)
        if watch.solved_at is None and score.errors <= self.allowed:
            watch.solved_at = step
        if self.params["trace"]:
            self._record(watch, network, step, float(losses[-1]), score)
        return CheckResult(done=self.params["early_stop"] and watch.solved_at is not None)

    def _record(
        self, watch: _Watch, network: Any, step: int, loss: float, score: ErrorCount
    ) -> None:
        entries = record(
            self.params["trace"],
            step=step,
            loss=loss,
            score=score,
            samples=watch.samples,
            probability=lambda bits: _probability(self.apply, network, bits),
            learner=self.learner,
            network=network,
        )
        for name, value in entries.items():
            watch.trace.setdefault(name, []).append(value)

    def _validate(self, samples: TrialSamples, network: Any, allowed: int) -> ErrorCount:
        def errors_in(start: int, stop: int) -> int:
            return self._errors(network, *samples.validation(start // BLOCK), stop - start)

        return score_until(errors_in, self.params["n_validation"], allowed)

    def _errors(self, network: Any, bits: np.ndarray, labels: np.ndarray, n_samples: int) -> int:
        counts = _count_errors(self.apply, network, bits, labels, np.int32(n_samples))
        errors, wrong_numbers = map(int, counts)
        if wrong_numbers:
            name = type(self.learner).__name__
            raise LearnerError(f"The learner {name} returned logits that are not finite.")
        return errors

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
        watch: _Watch = run.tag
        failure = run.failure or watch.failure
        if failure is not None:
            return LearnerError(failure)
        samples = watch.samples
        try:
            last = self._validate(samples, run.params, self.params["n_validation"])
            fit = None if self.params["online"] else self._fit(samples, run.params)
        except LearnerError as error:
            return error
        watch.note(last)
        assert watch.best is not None
        more: dict[str, Any] = {"train_loss": float(run.losses[-1]), "steps": run.steps}
        if watch.solved_at is not None:
            more["solved_at"] = watch.solved_at
        metrics = trial_metrics(
            samples,
            success=watch.solved_at is not None,
            best=watch.best,
            last=last,
            fit=fit,
            more={**more, "seed": watch.trial.seed},
        )
        return TrialResult(metrics, watch.trace or None)


@eqx.filter_jit
def _probability(apply: Any, network: Any, bits: Any) -> Any:
    """P(label = 1) of each row."""
    return jax.nn.softmax(apply(network, bits, None))[:, 1]


@eqx.filter_jit
def _count_errors(apply: Any, network: Any, bits: Any, labels: Any, n_samples: Any) -> Any:
    """Errors, and logits that are no numbers, among the first ``n_samples`` rows."""
    logits = apply(network, bits, None)
    counted = jnp.arange(len(labels), dtype=jnp.int32) < n_samples
    wrong = (logits[:, 1] > logits[:, 0]) != (labels == 1)
    unusable = ~jnp.isfinite(logits).all(axis=1)
    return jnp.sum(wrong & counted), jnp.sum(unusable & counted)
