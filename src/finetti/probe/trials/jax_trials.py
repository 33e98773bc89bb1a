"""Trials of networks in JAX: together, in cohorts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from finetti.core.errors import FinettiError
from finetti.core.numerics.random_keys import random_key
from finetti.probe.learners.learner import NetworkLearner
from finetti.probe.tasks.trial_samples import TrialSamples, draw_samples, rule_from_params
from finetti.probe.trials.network_trials import NetworkTrials, TrialState
from finetti.probe.trials.online_batches import batch_stream, task_arrays
from finetti.probe.trials.trial_metrics import LearnerError
from finetti.studies.trials import Trial, TrialResult
from finetti.training.cohort import Member, train_cohort

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


@final
class JaxTrials(NetworkTrials):
    """Trains one learner on tasks of one shape; what is compiled is kept.

    Args:
        learner: whose network is trained.
        params: of the trials; they may differ in ``n_samples``.
    """

    def __init__(self, learner: NetworkLearner, params: Mapping[str, Any]) -> None:
        # An optimizer with a schedule must know how many steps this trial makes.
        learner = replace(learner, iterations=params["iterations"])
        super().__init__(params)
        self.learner = learner
        self.stream = None
        if params["online"]:
            self.stream = batch_stream(rule_from_params(params), params["batch_size"])
        self.optimizer = learner.optimizer()

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
            yield Member(network, self._data(samples), steps, TrialState(trial, samples))

    def _data(self, samples: TrialSamples) -> Any:
        if self.params["online"]:
            return task_arrays(samples.task)
        n_samples = len(samples.labels)
        empty = padded_size(n_samples) - n_samples
        weights = np.arange(n_samples + empty) < n_samples
        bits = np.pad(samples.bits, ((0, empty), (0, 0)))
        labels = np.pad(samples.labels, (0, empty)).astype(np.int32)
        return bits, labels, weights.astype(np.float32)

    def _errors(self, network: Any, bits: np.ndarray, labels: np.ndarray, n_samples: int) -> int:
        counts = _count_errors(self.apply, network, bits, labels, np.int32(n_samples))
        errors, wrong_numbers = map(int, counts)
        if wrong_numbers:
            raise LearnerError(f"{self.learner.label} returned logits that are not finite.")
        return errors

    def _probability(self, network: Any, bits: np.ndarray) -> Any:
        return _probability(self.apply, network, bits)


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
