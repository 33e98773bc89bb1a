"""Record the requested traces at a validation step: curves, parities, where attention looks."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from finetti.core.keys import generator
from finetti.probe.learners.learner import Learner
from finetti.probe.tasks.trial_samples import TrialSamples
from finetti.probe.tasks.validation import ErrorCount
from finetti.probe.trials.traces import ShowsAttention, attention_mass, walsh_trace
from finetti.probe.trials.trial_metrics import LearnerError

TraceName = Literal["loss", "accuracy", "walsh", "attention"]
N_BACKGROUNDS = 64  # settings of the other bits, for each setting of the hidden ones
N_LOOKS = 256  # samples whose attention is averaged


def record_traces(
    names: Sequence[TraceName],
    *,
    step: int,
    loss: float,
    score: ErrorCount,
    samples: TrialSamples,
    probability: Callable[[Any], Any],
    learner: Learner,
    network: Any,
) -> dict[str, Any]:
    """One entry of each requested trace, and the step.

    ``loss``: of the last step. ``accuracy``: on validation, with the number of samples that the
    decision took as ``accuracy_samples``. ``walsh``: the mean Walsh–Fourier coefficient of
    P(label = 1) on the parities of 0, 1, …, s hidden bits. ``attention``: the share of attention on
    the hidden positions, head by head.
    """
    found: dict[str, Any] = {"step": step} if names else {}
    if "loss" in names:
        found["loss"] = loss
    if "accuracy" in names:
        found |= {"accuracy": score.accuracy, "accuracy_samples": score.n_scored}
    if "walsh" in names:
        rng = generator(*samples.name, "walsh")
        trace = walsh_trace(probability, samples.task, rng, N_BACKGROUNDS)
        found["walsh"] = trace.by_degree().tolist()
    if "attention" in names:
        if not isinstance(learner, ShowsAttention):
            raise LearnerError(f"{learner.label} has no `attention` to be traced.")
        bits = samples.validation(0)[0][:N_LOOKS]
        weights = np.asarray(learner.attention(network, bits))
        found["attention"] = attention_mass(weights, samples.task).mean.tolist()
    return found
