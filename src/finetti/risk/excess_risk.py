"""Excess risk (5.3), taken apart: what the sample, the class and the training cost."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from finetti.bounds import BoundValue
from finetti.core.arguments import as_whole
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.numerics.random_keys import generator
from finetti.core.statistics.intervals import mean_with_error
from finetti.display import Card, Chart, Displayable, Table, format_number, waterfall
from finetti.latent import LatentModel, WorldDraw
from finetti.risk.minimization import (
    RiskMinimum,
    SequenceLoss,
    empirical_risk,
    losses,
    minimize_risk,
    polish_network,
    predictions,
    squared_loss,
)
from finetti.risk.theorems.generalization_bound import risk_bound

MIN_CLASS_SAMPLES, CLASS_BATCH = 4096, 256


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{format_number(self.value)} ± {format_number(self.standard_error)}"


@dataclass(frozen=True)
class ExcessRisk(Displayable):
    """E[ℓ(f̂)] − E[ℓ(f*)] = E_gen + E_approx + E_opt                        (5.3), zhang2022

    The three parts add up to ``excess`` exactly. Standard errors are those of the test sample,
    given the training sample: E_opt is a difference of two empirical risks, and known exactly.

    Args:
        excess: E[ℓ(f̂)] − E[ℓ(f*)] of the trained network f̂.
        generalization: E_gen.
        approximation: E_approx, from above: the best of the class is the best that was found.
        optimization: E_opt, from below: so is the best on the sample.
        baseline: E[ℓ(ȳ)] − E[ℓ(f*)] of the mean answer ȳ of the training sample, given to every
            sequence: what is had without a network.
        noise: E[ℓ(f*)], which nobody can avoid.
        train_risk: Ê[ℓ(f̂)].
        best_train_risk: Ê[ℓ(f̃)], the smallest found.
        bound: of E_gen, Theorem 5.3 with all constants; None where it does not apply.
        bound_note: what the bound rests on, or why there is none.
        n_samples, context_length, restarts, class_samples, test_samples: how it was measured.
        minimum: the networks that training gave.
        best_of_class: the network behind E_approx.
    """

    excess: Estimate
    generalization: Estimate
    approximation: Estimate
    optimization: Estimate
    baseline: Estimate
    noise: float
    train_risk: float
    best_train_risk: float
    bound: BoundValue | None
    bound_note: str
    n_samples: int
    context_length: int
    restarts: int
    class_samples: int
    test_samples: int
    minimum: RiskMinimum = field(repr=False)
    best_of_class: Any = field(repr=False)

    @property
    def parts(self) -> dict[str, Estimate]:
        """E_gen, E_approx and E_opt by name."""
        return {
            "generalization": self.generalization,
            "approximation": self.approximation,
            "optimization": self.optimization,
        }

    def chart(self) -> Chart:
        """A waterfall: from 0 by the three parts to the excess risk."""
        labels = {"approximation": "approximation (≤)", "optimization": "optimization (≥)"}
        parts = [(labels.get(name, name), *part) for name, part in self.parts.items()]
        title = f"Excess risk with {self.n_samples} sequences of {self.context_length} tokens"
        total = ("excess risk", *self.excess)
        return waterfall(parts, total, title=title, y_title="risk above E[ℓ(f*)]")

    def __card__(self) -> Card:
        meanings = {
            "generalization": "a sample of this size",
            "approximation": "the class (an upper estimate)",
            "optimization": "one start (a lower estimate)",
        }
        rows = [(name, *part, meanings[name]) for name, part in self.parts.items()]
        rows.append(("excess risk", *self.excess, "all three together"))
        bound = "none" if self.bound is None else self.bound.text
        fields = (
            ("training sequences", self.n_samples),
            ("tokens in each", self.context_length),
            ("excess risk of the mean answer, without a network", str(self.baseline)),
            ("risk of E[y|X], which nobody beats", self.noise),
            ("training risk", self.train_risk),
            ("smallest training risk found", self.best_train_risk),
            ("bound on the generalization part", bound),
        )
        notes = (self.bound_note,) if self.bound_note else ()
        columns = ("part", "value", "standard error", "what it costs")
        return Card("Excess risk", fields, (Table("", columns, tuple(rows)),), notes)


def decompose(
    network: Any,
    world: LatentModel,
    n_samples: int,
    *,
    seed: Any,
    context_length: int,
    restarts: int = 4,
    loss: SequenceLoss = squared_loss,
    truth: Callable[[Any], Any] | None = None,
    class_samples: int | None = None,
    test_samples: int = 10_000,
    delta: float = 0.05,
    polish: int = 200,
    **training: Any,
) -> ExcessRisk:
    """Train a network on n sequences of a world, and take its excess risk apart   (5.3), zhang2022

    E_gen = E[ℓ(f̂)] − Ê[ℓ(f̂)] + Ê[ℓ(f̃)] − min_F E[ℓ(f)],  E_approx = min_F E[ℓ(f)] − E[ℓ(f*)],
    E_opt = Ê[ℓ(f̂)] − Ê[ℓ(f̃)],  f̃ = argmin_F Ê[ℓ(f)].

    f̂ is the network after training from its own start; f̃ the best of all starts on the same
    sample, polished. The best of the class comes from the same starts, trained and polished on a
    large sample of its own. Expectations are over a test sample that nothing was trained on; with
    the squared loss E[ℓ(f)] − E[ℓ(f*)] is the mean of ‖f − f*‖², free of the answers' noise.

    Args:
        network: an `AttentionNetwork` or your own, as `minimize_risk` takes it.
        world: where the answer is known: f*(X) = E[y|X] is ``world.predict(…).mean``.
        n_samples: n, training sequences.
        seed: a number or a word, from which all randomness follows.
        context_length: L.
        restarts: K starts for the two minima.
        loss: ``loss(prediction, target)``, one number per sequence.
        truth: f* from the law p(y|X), where the best answer under the loss is not its mean.
        class_samples: sequences for the best of the class; 4n and at least 4096 by default.
        test_samples: sequences for the expectations.
        delta: the probability with which the bound may fail.
        polish: iterations of L-BFGS.
        **training: iterations, learning_rate, optimizer, batch_size (of both samples) and slots of
            `minimize_risk`.

    >>> import jax
    >>> from finetti.latent import BetaBernoulli
    >>> from finetti.risk import AttentionNetwork
    >>> network = AttentionNetwork.init(jax.random.key(0), token_dimension=2, out_dimension=2)
    >>> options = {"restarts": 2, "iterations": 100, "class_samples": 500, "polish": 20}
    >>> found = decompose(network, BetaBernoulli(), 50, seed=0, context_length=4, **options)
    >>> abs(sum(part.value for part in found.parts.values()) - found.excess.value) < 1e-12
    True
    """
    owner = "decompose"
    if not isinstance(world, LatentModel):
        raise bad_argument("world", owner, "a world of finetti.latent", type(world).__name__)
    n_samples = as_whole(n_samples, "n_samples", owner)
    test_samples = as_whole(test_samples, "test_samples", owner)
    if test_samples < 2:
        why = "One sequence has no standard error."
        raise bad_argument("test_samples", owner, "a whole number ≥ 2", test_samples, why)
    if class_samples is None:
        class_samples = max(4 * n_samples, MIN_CLASS_SAMPLES)
    class_samples = as_whole(class_samples, "class_samples", owner)

    def draw(what: str, count: int) -> WorldDraw:
        return world.sample(generator("finetti.risk", what, seed), count, context_length)

    sample = world.encode(draw("training", n_samples))
    options = {"seed": seed, "restarts": restarts, "polish": polish, **training}
    minimum = minimize_risk(network, sample, loss=loss, **options)
    large = world.encode(draw("class", class_samples))
    best_of_class = _best_of_class(network, minimum.best, large, loss, options)

    tested = draw("test", test_samples)
    law = world.predict(tested.tokens, tested.query)
    best = np.asarray(law.mean if truth is None else truth(law), np.float64)
    encoded = world.encode(tested)
    noise, above = _above(encoded.target, best, law, loss, truth)
    trained, closest = (
        above(predictions(each, encoded)) for each in (minimum.trained, best_of_class)
    )
    constant = np.broadcast_to(np.mean(sample.target, axis=0, dtype=np.float64), best.shape)
    excess, approximation = _mean(trained), _mean(closest)
    optimization = Estimate(minimum.risk - minimum.best_risk, 0.0)
    rest = excess.value - approximation.value - optimization.value
    try:
        bound = risk_bound(minimum.trained, sample, delta=delta)
        note = " ".join(bound.notes)
    except UnsupportedError as error:
        bound, note = None, str(error)
    if loss is not squared_loss and bound is not None:
        bound, note = None, "Theorem 5.3 is evaluated for the squared loss only."
    return ExcessRisk(
        excess=excess,
        generalization=Estimate(rest, _mean(trained - closest).standard_error),
        approximation=approximation,
        optimization=optimization,
        baseline=_mean(above(constant)),
        noise=noise,
        train_risk=minimum.risk,
        best_train_risk=minimum.best_risk,
        bound=bound,
        bound_note=note,
        n_samples=n_samples,
        context_length=int(context_length),
        restarts=restarts,
        class_samples=class_samples,
        test_samples=test_samples,
        minimum=minimum,
        best_of_class=best_of_class,
    )


def _best_of_class(
    network: Any, sample_best: Any, large: Any, loss: SequenceLoss, options: dict[str, Any]
) -> Any:
    """The smallest risk on a large sample; chosen there, not on the test sample.

    From every start in small batches, and from the best network of the training sample.
    """
    options = {"batch_size": CLASS_BATCH, **options}
    found = [
        minimize_risk(network, large, loss=loss, **options).best,
        polish_network(sample_best, large, loss, iterations=options["polish"])[0],
    ]
    return min(found, key=lambda each: empirical_risk(each, large, loss))


def _above(
    target: np.ndarray, best: np.ndarray, law: Any, loss: SequenceLoss, truth: Any
) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """E[ℓ(f*)], and what a prediction costs above f*, sequence by sequence."""
    if loss is squared_loss and truth is None:
        # E‖y − f‖² = E‖y − f*‖² + E‖f − f*‖², and E‖y − f*‖² is the variance of the law.
        noise = float(np.mean(np.sum(law.variance, axis=-1)))
        return noise, lambda found: np.sum((found - best) ** 2, axis=-1)
    least = losses(best, target, loss)
    return float(least.mean()), lambda found: losses(found, target, loss) - least


def _mean(values: np.ndarray) -> Estimate:
    return Estimate(*mean_with_error(values))
