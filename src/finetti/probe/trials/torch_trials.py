"""Trials of PyTorch modules: one after another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, repeat
from typing import Any, final

import numpy as np

from finetti.core.numerics.random_keys import generator, seed_of
from finetti.probe.learners.torch_learner import TorchLearner
from finetti.probe.tasks.trial_samples import TrialSamples, draw_samples
from finetti.probe.trials.network_trials import NetworkTrials, TrialState
from finetti.probe.trials.trial_metrics import LearnerError, run_each
from finetti.studies.trials import Trial, TrialResult
from finetti.training.cohort import TrainingRun


@final
class TorchTrials(NetworkTrials):
    """Trains one module on tasks.

    Args:
        learner: whose module is trained.
        params: of the trials; they may differ in ``n_samples``.
    """

    def __init__(self, learner: TorchLearner, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self.learner = replace(learner, iterations=params["iterations"])

    def run(self, trials: Sequence[Trial], slots: int) -> list[TrialResult | Exception]:
        """The outcome of every trial."""
        return run_each(trials, lambda trial: self._result(self._train(trial)))

    def _train(self, trial: Trial) -> TrainingRun:
        import torch  # pyright: ignore[reportMissingImports]

        samples = draw_samples(trial.params, trial.seed)
        run = TrainingRun(TrialState(trial, samples))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("training", *samples.name))
            run.params = self.learner.init(self.params["context_length"])
            self._make_steps(run, self._batches(samples))
        return run

    def _make_steps(self, run: TrainingRun, batches: Iterator[Any]) -> None:
        learner, network = self.learner, run.params
        optimizer, losses = learner.optimizer(network), []
        for step in range(1, learner.iterations + 1):
            network.train()
            losses.append(learner.step(network, optimizer, *next(batches)))
            run.losses = np.array(losses)
            if not np.isfinite(losses[-1]):
                run.failure = (
                    f"The loss of step {step} is {losses[-1]}, not a finite number. "
                    "Lower the learning rate, or clip the gradient."
                )
                return
            if step % learner.check_every == 0:
                network.eval()
                if self._check(run.tag, network, step, run.losses).done:
                    return

    def _batches(self, samples: TrialSamples) -> Iterator[Any]:
        if self.params["online"]:
            rng, size = generator(*samples.name, "batches"), self.params["batch_size"]
            return (samples.task.sample(rng, size) for _ in count())
        return repeat((samples.bits, samples.labels))

    def _errors(self, network: Any, bits: np.ndarray, labels: np.ndarray, n_samples: int) -> int:
        logits = self._logits(network, bits[:n_samples])
        if not np.isfinite(logits).all():
            raise LearnerError(f"{self.learner.label} returned logits that are not finite.")
        return int(np.sum((logits[:, 1] > logits[:, 0]) != (labels[:n_samples] == 1)))

    def _probability(self, network: Any, bits: np.ndarray) -> Any:
        logits = self._logits(network, bits)
        return 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))

    def _logits(self, network: Any, bits: np.ndarray) -> np.ndarray:
        import torch  # pyright: ignore[reportMissingImports]

        with torch.no_grad():
            return self.learner.apply(network, bits).double().numpy()
