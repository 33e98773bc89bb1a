"""The kind of trial that a probe repeats: can this learner find a hidden rule from m samples?"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, final

import jax
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from finetti.core.errors import FinettiError
from finetti.models.model_loading import changed
from finetti.probe.learners.learner import NetworkLearner, TrainedLearner
from finetti.probe.learners.learner_names import AnyLearner, find_learner, load_learner
from finetti.probe.learners.torch_learner import TorchLearner
from finetti.probe.tasks.trial_samples import rule_from_params
from finetti.probe.tasks.validation import SUCCESS_ACCURACY
from finetti.probe.trials.fit_trials import FitTrials
from finetti.probe.trials.jax_trials import JaxTrials, padded_size
from finetti.probe.trials.network_trials import NetworkTrials, TraceName
from finetti.probe.trials.torch_trials import TorchTrials
from finetti.probe.trials.traces import ShowsAttention
from finetti.studies.trial_kinds import CohortKind, ParameterError, check_name, resolve_with
from finetti.studies.trials import Trial, TrialResult, canonical_json, plain

ACCELERATOR_SLOTS = 16
TRIAL_SETTINGS = ("iterations", "check_every")  # settings of a network that are the trial's own


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
        n_validation, success_accuracy: found = a higher accuracy on so many fresh samples, at
            some check.
        early_stop: end the training at the first check that says so.
        ambiguous: training sets that other hidden sets explain as well: count the sets and
            ``report`` them, ``keep`` them uncounted, or ``reject`` them and draw again.
        trace: what to note at each check: ``loss``, ``accuracy``, ``walsh`` (Walsh–Fourier
            coefficients on the hidden bits), ``attention`` (its share on the hidden positions).
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
    success_accuracy: Annotated[float, Field(gt=0, lt=1)] = SUCCESS_ACCURACY
    early_stop: bool = True
    ambiguous: Literal["report", "keep", "reject"] = "report"
    trace: list[TraceName] = []


@final
class ProbeTrial(CohortKind):
    """One trial: draw a hidden rule and m samples, train the learner, validate it.

    The data follow from the trial's seed, T and m, not from the learner: with ``seed_by =
    "replicate"`` a grid over learners compares them on the same data (the default, ``trial``, draws
    new data for each). All settings of the learner and the hash of a user's source enter the id.

    Args:
        slots: trials of a network that run at a time in one program; None: what suits the device.

    Reference: Section 5 and Appendix C, edelman2022.
    """

    version = 2  # gradients of sharp attention were wrong before
    Parameters = ProbeParameters

    def __init__(self, slots: int | None = None) -> None:
        # A CPU is busy with one network: more of them at a time gained nothing there.
        self.slots = slots or (1 if jax.default_backend() == "cpu" else ACCELERATOR_SLOTS)

    @property
    def cohort_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Trials whose outcomes come together, and are lost together if a worker is."""
        return 1 if self.slots == 1 else 4 * self.slots

    def check_name(self, name: str) -> None:
        """Refuse what is not a parameter."""
        check_name(ProbeParameters, name)

    def resolve(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters with all settings of the learner, and the fingerprint of its source."""
        resolved = resolve_with(ProbeParameters, params)
        _check_samples(resolved)
        _check_rule(resolved)
        learner = _load(resolved)
        settings = plain(learner.settings(), "learner")
        if isinstance(learner, TrainedLearner):
            resolved["iterations"] = resolved["iterations"] or learner.iterations
            resolved["check_every"] = learner.check_every
            if resolved["iterations"] % learner.check_every:
                sentence = f"must be a multiple of {learner.check_every}, the steps between checks"
                got = resolved["iterations"]
                raise ParameterError("iterations", f"{sentence}. Got {got} instead")
        elif resolved["online"]:
            name = resolved["learner"]
            sentence = f"needs a learner that the probe trains by gradients, which {name!r} is not"
            raise ParameterError("online", sentence)
        else:
            if resolved["iterations"] is not None:
                name = resolved["learner"]
                sentence = (
                    f"is for learners that the probe trains by gradients, which {name!r} is not. "
                    "Leave it out; give it to others of the same probe as their option `iterations`"
                )
                raise ParameterError("iterations", sentence)
        if not resolved["online"]:
            resolved["batch_size"] = None
        if "attention" in resolved["trace"] and not isinstance(learner, ShowsAttention):
            sentence = f"cannot have 'attention': {resolved['learner']!r} has no such method"
            raise ParameterError("trace", sentence)
        resolved["settings"] = {k: v for k, v in settings.items() if k not in TRIAL_SETTINGS}
        resolved["learner_code"] = learner.fingerprint()
        return resolved

    def named_sources(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        """The user's file that the learner may stand in."""
        return (params["learner"],)

    def cohort_key(self, params: Mapping[str, Any]) -> Any:
        """Sample sizes that are padded to one size share a program."""
        size = None if params["n_samples"] is None else padded_size(params["n_samples"])
        return {**params, "n_samples": size}

    def run_cohort(self, trials: Sequence[Trial]) -> list[TrialResult | Exception]:
        """The outcome of every trial; a learner that cannot run fails them all, with its reason."""
        shared = {**trials[0].params, "n_samples": None}
        try:
            runner = _runner(canonical_json(shared))
        except FinettiError as error:
            return [error] * len(trials)
        return runner.run(trials, self.slots)


def _load(params: Mapping[str, Any]) -> AnyLearner:
    """The learner, loaded anew only if its source has changed."""
    reference = params["learner"]
    source = find_learner(reference).fingerprint
    return _loaded(reference, canonical_json(params["options"]), params["context_length"], source)


@functools.lru_cache(maxsize=256)
def _loaded(reference: str, options: str, context_length: int, source: str) -> AnyLearner:
    return load_learner(reference, json.loads(options), context_length=context_length)


@functools.lru_cache(maxsize=32)
def _runner(shared: str) -> NetworkTrials | FitTrials:
    """Return the runner of trials of all sample sizes; it is kept with its compiled programs."""
    params = json.loads(shared)
    learner = _load(params)
    if learner.fingerprint() != params["learner_code"]:
        raise changed(params["learner"], "learner")
    if isinstance(learner, NetworkLearner):
        return JaxTrials(learner, params)
    if isinstance(learner, TorchLearner):
        return TorchTrials(learner, params)
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
    chance, wanted = rule_from_params(params).chance, params["success_accuracy"]
    if chance >= wanted and params["function"] != "table":  # a table is drawn anew in every trial
        higher = f"{1 - (1 - chance) / 4:.6g}"
        sentence = (
            f"must be above {chance:.6g}, the accuracy of a constant answer, or success would say "
            f"nothing. Got {wanted:g} instead; {higher} asks for the rule"
        )
        raise ParameterError("success_accuracy", sentence)
