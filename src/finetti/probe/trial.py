"""The kind of trial that a probe repeats: can this learner find a hidden rule from m samples?"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from finetti.core.errors import FinettiError
from finetti.probe.fit_trials import FitTrials
from finetti.probe.learners.base import NetworkLearner
from finetti.probe.learners.loading import load_learner
from finetti.probe.network_trials import NetworkTrials, padded_size
from finetti.probe.result import LearnerError
from finetti.probe.samples import rule_of
from finetti.studies.canonical import canonical_json, plain
from finetti.studies.kinds import CohortKind
from finetti.studies.outcome import TrialResult
from finetti.studies.parameters import ParameterError, check_name, resolve_with
from finetti.studies.trial import Trial

OF_TRAINING = ("iterations", "check_every")  # settings of a network that the trial takes over


class ProbeParameters(BaseModel):
    """A hidden rule, a learner, and when the rule counts as found. Unknown names are refused.

    Args:
        function, sparsity, bit_probability, label_noise: the hidden rule (`make_rule`).
        context_length: T.
        n_samples: m; none if online.
        learner: a name (``paper``, ``l1``, …), ``module:name`` or ``./file.py:Name``.
        options: settings of the learner; those not named have its defaults.
        iterations: steps of a network; the learner's own unless given.
        online: train on fresh batches of ``batch_size`` samples instead of m samples.
        n_validation, level: found = accuracy above ``level`` on ``n_validation`` fresh samples, at
            some check.
        early_stop: end the training at the first check that says so.
        ambiguous: training sets that other hidden sets explain as well: count the sets and
            ``report`` them, ``keep`` them uncounted, or ``reject`` them and draw again.
        trace: what to note at each check: ``loss``, ``accuracy``.
    """

    model_config = ConfigDict(extra="forbid")

    function: str = "and"
    sparsity: PositiveInt | None = 3
    context_length: PositiveInt
    n_samples: PositiveInt | None = None
    learner: str = "paper"
    options: dict[str, Any] = {}
    bit_probability: float = 0.5
    label_noise: float = 0.0
    iterations: PositiveInt | None = None
    online: bool = False
    batch_size: PositiveInt = 2048
    n_validation: PositiveInt = 10_000
    level: Annotated[float, Field(gt=0, lt=1)] = 0.99
    early_stop: bool = True
    ambiguous: Literal["report", "keep", "reject"] = "report"
    trace: list[Literal["loss", "accuracy"]] = []


@final
class ProbeTrial(CohortKind):
    """One trial: draw a hidden rule and m samples, train the learner, validate it.

    The data follow from the trial's seed, T and m, not from the learner: with ``seed_by =
    "replicate"`` a grid over learners compares them on the same data (the default, ``trial``, draws
    new data for each). All settings of the learner and the hash of a user's source enter the id.

    Reference: Section 5 and Appendix C, edelman2022.
    """

    version = 1
    cohort_size: ClassVar[int] = 16
    slots: ClassVar[int] = 1
    Parameters = ProbeParameters

    def check_name(self, name: str) -> None:
        """Refuse what is not a parameter."""
        check_name(ProbeParameters, name)

    def resolve(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters with all settings of the learner, and the fingerprint of its source."""
        resolved = resolve_with(ProbeParameters, params)
        _check_samples(resolved)
        _check_rule(resolved)
        learner = load_learner(resolved["learner"], resolved["options"])
        settings = plain(learner.settings(), "options")
        if isinstance(learner, NetworkLearner):
            resolved["iterations"] = resolved["iterations"] or settings["iterations"]
            resolved["check_every"] = settings["check_every"]
            if resolved["iterations"] % resolved["check_every"]:
                sentence = f"must be a multiple of {resolved['check_every']}, when checks are made"
                got = resolved["iterations"]
                raise ParameterError("iterations", f"{sentence}. Got {got} instead")
        elif resolved["online"]:
            sentence = (
                f"needs a learner that is trained by gradients. {resolved['learner']!r} is not"
            )
            raise ParameterError("online", sentence)
        else:
            resolved["iterations"] = None
        resolved["options"] = {k: v for k, v in settings.items() if k not in OF_TRAINING}
        resolved["learner_code"] = learner.fingerprint()
        if not resolved["online"]:
            resolved["batch_size"] = None
        return resolved

    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """Sample sizes that are padded to one size share a program."""
        size = None if params["n_samples"] is None else padded_size(params["n_samples"])
        return {**params, "n_samples": size}

    def run_cohort(self, trials: Sequence[Trial]) -> list[TrialResult | Exception]:
        """The outcome of every trial; a learner that cannot run fails them all, with its reason."""
        shape = canonical_json(self.cohort_key(trials[0].params))
        try:
            runner = _runner(shape)
        except LearnerError as error:
            return [error] * len(trials)
        return runner.run(trials, self.slots)


@functools.lru_cache(maxsize=32)
def _runner(shape: str) -> NetworkTrials | FitTrials:
    """What runs the trials of one shape; kept, with all that it has compiled."""
    params = json.loads(shape)
    learner = load_learner(params["learner"], params["options"])
    if learner.fingerprint() != params["learner_code"]:
        raise FinettiError(
            f"The source of the learner {params['learner']} is not the one that the study was "
            "planned with. Start the study again."
        )
    if isinstance(learner, NetworkLearner):
        return NetworkTrials(learner, params)
    return FitTrials(learner, params)


def _check_samples(params: Mapping[str, Any]) -> None:
    if params["online"] and params["n_samples"] is not None:
        raise ParameterError("n_samples", "has no meaning online, where every batch is new")
    if not params["online"] and params["n_samples"] is None:
        raise ParameterError("n_samples", "is missing: how many samples may the learner see?")


def _check_rule(params: Mapping[str, Any]) -> None:
    length, sparsity = params["context_length"], params["sparsity"]
    if sparsity is not None and sparsity > length:
        sentence = f"must be at most context_length ({length}). Got {sparsity} instead"
        raise ParameterError("sparsity", sentence)
    rule_of(params)
