"""The kind of trial that `finetti risk` repeats: train on n sequences, take the risk apart."""

import functools
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from finetti.core.errors import FinettiError, InputError
from finetti.latent import Encoded, LatentModel, worlds
from finetti.risk.networks.named_networks import make_network, network_code
from finetti.studies.trial_kinds import CohortKind, ParameterError, check_name, resolve_with
from finetti.studies.trials import Trial

RISK_PARTS = ("generalization", "approximation", "optimization")
MEASURED = ("excess", *RISK_PARTS, "baseline")  # each with its standard error


class RiskParameters(BaseModel):
    """A world, a network, and how it is trained. Unknown names are refused.

    Args:
        world: a name of `finetti.latent.worlds`.
        world_options: changes to its defaults.
        network: a name of `finetti.risk.networks.named_networks`, ``module:name`` or
            ``./file.py:name``.
        n_samples: n, the training sequences.
        context_length: L.
        restarts: starts for the two minima of (5.3).
        iterations, learning_rate, polish: of training, see `minimize_risk`.
        class_samples, test_samples: sequences for the best of the class, and for expectations.
    """

    model_config = ConfigDict(extra="forbid")

    world: str = "linear-gaussian"
    world_options: dict[str, Any] = {}
    network: str = "attention"
    n_samples: PositiveInt
    context_length: PositiveInt = 8
    restarts: PositiveInt = 2
    iterations: PositiveInt = 300
    learning_rate: PositiveFloat = 0.02
    polish: NonNegativeInt = 50
    class_samples: PositiveInt | None = None
    test_samples: int = Field(4000, ge=2)


@final
class RiskTrial(CohortKind):
    """One trial: draw a sample, train the network, and split its excess risk (5.3).

    All data follow from the trial's seed: with ``seed_by = "replicate"`` the sample sizes of a grid
    share the network's start and the sequences of the test.
    """

    version = 2  # since then with the baseline
    cohort_size = 1
    Parameters = RiskParameters

    def check_name(self, name: str) -> None:
        """Refuse what is not a parameter."""
        check_name(RiskParameters, name)

    def resolve(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, and the fingerprint of a user's network."""
        resolved = resolve_with(RiskParameters, params)
        world = make_world(resolved["world"], resolved["world_options"])
        example = functools.partial(_example, world, resolved["context_length"])
        resolved["network_code"] = network_code(resolved["network"], example)
        return resolved

    def named_sources(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        """The user's file that the network may stand in."""
        return (params["network"],)

    def run_cohort(self, trials: Sequence[Trial]) -> list[dict[str, Any]]:
        """The three parts of every trial, each with its standard error, and the bound."""
        return [_measure(dict(trial.params), trial.seed) for trial in trials]


def make_world(name: str, options: Mapping[str, Any]) -> LatentModel:
    """The world of that name; what it refuses is refused by the parameter."""
    if name not in worlds:
        raise InputError(f"Unknown world {name!r}. Choose one of {', '.join(worlds)}.")
    known = list(inspect.signature(worlds[name]).parameters)
    for option in options:
        if option not in known:
            text = f"must name settings of {name}: {', '.join(known)}. Got {option!r} instead"
            raise ParameterError("world_options", text)
    try:
        return worlds[name](**options)
    except (FinettiError, TypeError) as error:
        text = f"does not fit {name}: {str(error).rstrip('.')}"
        raise ParameterError("world_options", text) from error


def _example(world: LatentModel, context_length: int) -> Encoded:
    """Draw one sequence of the world, for its dimensions."""
    return world.encode(world.sample(0, 1, context_length))


def _measure(params: dict[str, Any], seed: int) -> dict[str, Any]:
    from finetti.risk.excess_risk import decompose  # loads JAX, which a plan does not need

    world = make_world(params.pop("world"), params.pop("world_options"))
    example = _example(world, params["context_length"])
    name, code = params.pop("network"), params.pop("network_code")
    network = make_network(name, code, example, seed)
    found = decompose(network, world, seed=seed, **params)
    metrics: dict[str, Any] = {}
    for part in MEASURED:
        estimate = getattr(found, part)
        metrics[part], metrics[f"{part}_error"] = estimate.value, estimate.standard_error
    metrics |= {
        "noise": found.noise,
        "train_risk": found.train_risk,
        "best_train_risk": found.best_train_risk,
        "bound_note": found.bound_note,
    }
    if found.bound is not None and math.isfinite(found.bound.value):
        metrics["bound"] = found.bound.value
    return metrics
