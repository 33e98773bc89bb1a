"""The metrics of a trial: whether the rule was found, and if not, why."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from finetti.core.errors import FinettiError
from finetti.probe.tasks.trial_samples import TrialSamples
from finetti.probe.tasks.validation import ErrorCount
from finetti.studies.trials import Trial, TrialResult


class LearnerError(FinettiError):
    """A learner did something that no learner may do."""


def run_each(
    trials: Sequence[Trial], run: Callable[[Trial], TrialResult | Exception]
) -> list[TrialResult | Exception]:
    """The outcome of every trial, in order; an exception in the place of one that raised."""
    found: list[TrialResult | Exception] = []
    for trial in trials:
        try:
            found.append(run(trial))
        except Exception as error:
            found.append(error)  # becomes the failure of this trial, with its traceback
    return found


def trial_metrics(
    samples: TrialSamples,
    *,
    success: bool,
    best: ErrorCount,
    last: ErrorCount,
    fit: ErrorCount | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """The metrics of a trial.

    ``success``: on validation. ``best_accuracy`` is that of the best check, on
    ``best_accuracy_samples`` samples: a check ends when it has seen too many errors. ``accuracy``:
    at the end, on all. ``fitted``: every training label is given back at the end, without dropout.
    ``reason``: ``solved``; or else ``ambiguous`` (the training set is consistent with other hidden
    sets, too: information), ``not fitted`` (optimization), ``not generalized`` (statistics).
    """
    found: dict[str, Any] = {
        "success": int(success),
        "best_accuracy": best.accuracy,
        "best_accuracy_samples": best.n_scored,
        "accuracy": last.accuracy,
        **more,
    }
    if fit is not None:
        found |= {"train_accuracy": fit.accuracy, "fitted": int(fit.errors == 0)}
    consistent = samples.consistent
    if consistent is not None and consistent.count is not None:
        found["n_consistent"] = consistent.count
    if consistent is not None and consistent.identified is not None:
        found["identified"] = int(consistent.identified)
    if success:
        reason = "solved"
    elif found.get("identified") == 0:
        reason = "ambiguous"
    elif found.get("fitted") == 0:
        reason = "not fitted"
    else:
        reason = "not generalized"
    return {**found, "reason": reason}
