"""Empirical risk minimization of (3.11) and (4.8): training, restarts, and a polish."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from finetti.core.arguments import as_whole
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import smallest_of
from finetti.core.numerics.float64 import float64
from finetti.core.numerics.random_keys import random_key
from finetti.display import Card, Displayable
from finetti.latent import Encoded
from finetti.models.model import evaluate
from finetti.risk.networks.attention_network import AttentionNetwork
from finetti.risk.networks.user_network import as_network, unwrapped
from finetti.risk.parameters import flatten, redraw, unflatten
from finetti.risk.solvers import minimize_smooth
from finetti.training import Member, TrainingRun, adamw, train_cohort

SequenceLoss = Callable[[Any, Any], Any]
CHUNK = 4096  # sequences that one evaluation reads at a time
FEWEST_STEPS, MOST_STEPS = 10, 100  # of one call of the training program


def squared_loss(prediction: Any, target: Any) -> Any:
    """ℓ = ‖y − f(X)‖² of every sequence                                     (5.2), zhang2022"""
    return jnp.sum((target - prediction) ** 2, axis=-1)


@dataclass(frozen=True)
class RiskMinimum(Displayable):
    """The networks that several starts of training gave.

    Args:
        trained: the network after training from the first start, f̂.
        best: the one with the smallest empirical risk, polished: f̃ as far as was found.
        risk, best_risk: their empirical risks Ê ℓ.
        slope: the norm of the gradient of Ê ℓ at ``best``; 0 where it is stationary (5.12).
        starts: what every start gave, before the polish; ``trained`` is the first.
        start_risks: their empirical risks.
        failures: why starts were left out, if any were.
    """

    trained: Any
    best: Any
    risk: float
    best_risk: float
    slope: float
    starts: tuple[Any, ...]
    start_risks: tuple[float, ...]
    failures: tuple[str, ...] = ()

    def __card__(self) -> Card:
        fields = (
            ("empirical risk of the trained network", self.risk),
            ("smallest empirical risk found", self.best_risk),
            ("gradient there", self.slope),
            ("starts", len(self.starts)),
        )
        return Card("Empirical risk minimization", fields, notes=self.failures)


def minimize_risk(
    network: Any,
    data: Any,
    *,
    seed: Any,
    loss: SequenceLoss = squared_loss,
    restarts: int = 1,
    iterations: int = 1000,
    learning_rate: float = 0.02,
    optimizer: optax.GradientTransformation | None = None,
    batch_size: int | None = None,
    polish: int = 200,
    slots: int = 1,
) -> RiskMinimum:
    """min_θ Ê ℓ(f_θ(X; msk), y) over the arrays of a network               (3.11), (4.8), zhang2022

    By Adam through `finetti.training`; then the best of all starts is polished by
    L-BFGS in float64, which gets far closer to a stationary point.

    Args:
        network: an `AttentionNetwork`, an Equinox module that is called with one sequence as
            ``network(tokens, mask_token)``, a Flax or PyTorch module or a pair (init, apply) that
            is called with a batch of them, or a class of these: the first start.
        data: tokens (n, L, d), mask tokens (n, d) and targets (n, d_y); ``world.encode(draw)``.
        seed: a number or a word, from which the other starts follow.
        loss: ``loss(prediction, target)``, one number per sequence.
        restarts: how many starts; the others are redrawn (`finetti.risk.parameters.redraw`).
        iterations: steps of training.
        learning_rate: at the first step; it falls to 0 along a cosine.
        optimizer: of Optax, instead of Adam with that rate.
        batch_size: sequences of a step, drawn at random; all of them by default.
        polish: most iterations of L-BFGS, always on all sequences; 0 for none.
        slots: starts that train at a time in one compiled program.

    >>> from finetti.risk import AttentionNetwork
    >>> rng = np.random.default_rng(0)
    >>> tokens = rng.normal(size=(50, 4, 2))
    >>> data = tokens, tokens[:, 0], tokens.mean(axis=1)
    >>> network = AttentionNetwork.init(jax.random.key(0), token_dimension=2, out_dimension=2)
    >>> found = minimize_risk(network, data, seed=0, iterations=100)
    >>> found.best_risk <= found.risk < float(np.mean(np.sum(data[2] ** 2, axis=1)))
    True
    """
    data = as_encoded(data, "minimize_risk")
    network = as_network(network, data, seed)
    restarts = as_whole(restarts, "restarts", "minimize_risk")
    iterations = as_whole(iterations, "iterations", "minimize_risk")
    if batch_size is not None:
        batch_size = as_whole(batch_size, "batch_size", "minimize_risk")
    count = len(data.tokens)
    keys = [random_key("finetti.risk start", seed, index) for index in range(restarts)]
    first = _float32(network)
    starts = (first if index == 0 else redraw(first, key) for index, key in enumerate(keys))
    rule = _adam(learning_rate, iterations) if optimizer is None else optimizer
    runs = train_cohort(
        _objective(loss),
        [Member(start, _float32(data), key) for start, key in zip(starts, keys, strict=True)],
        optimizer=rule,
        iterations=iterations,
        check_every=_steps_per_call(iterations),
        slots=slots,
        stream=_batches(batch_size) if batch_size is not None and batch_size < count else None,
    )
    return _chosen(runs, data, loss, polish)


def _steps_per_call(iterations: int) -> int:
    """The largest divisor up to `MOST_STEPS`; all steps if it is small, as that of a prime.

    >>> _steps_per_call(300), _steps_per_call(7), _steps_per_call(1009)
    (100, 7, 1009)
    """
    steps = next(each for each in range(MOST_STEPS, 0, -1) if iterations % each == 0)
    return steps if steps >= FEWEST_STEPS else iterations


def _chosen(
    runs: Sequence[TrainingRun], data: Encoded, loss: SequenceLoss, polish: int
) -> RiskMinimum:
    if runs[0].failure is not None:
        raise bad_argument(
            "network", "minimize_risk", "one that trains", "a failure", runs[0].failure
        )
    kept = [run.params for run in runs if run.failure is None]
    risks = [empirical_risk(each, data, loss) for each in kept]
    best = kept[int(np.argmin(risks))]
    polished, slope = _polished(best, data, loss, polish)
    best_risk = empirical_risk(polished, data, loss)
    if best_risk > smallest_of(risks):  # rounding: the polish ends in float64, networks are float32
        polished, best_risk = best, smallest_of(risks)
    failures = tuple(run.failure for run in runs if run.failure is not None)
    trained, best, *starts = map(unwrapped, (kept[0], polished, *kept))
    return RiskMinimum(
        trained, best, risks[0], best_risk, slope, tuple(starts), tuple(risks), failures
    )


def polish_network(
    network: Any, data: Any, loss: SequenceLoss = squared_loss, *, iterations: int = 200
) -> tuple[Any, float]:
    """A network with a smaller empirical risk by L-BFGS in float64, and ‖∇_θ Ê ℓ‖ there."""
    data = as_encoded(data, "polish_network")
    polished, slope = _polished(as_network(network, data), data, loss, iterations)
    return unwrapped(polished), slope


def _polished(
    network: Any, data: Encoded, loss: SequenceLoss, iterations: int
) -> tuple[Any, float]:
    with float64():
        held = jax.tree.map(lambda leaf: as_array(np.asarray(leaf, np.float64)), data)

        def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
            risk, slope = _risk_and_slope(as_array(flat), network, held, loss)
            return float(risk), np.asarray(slope)

        start = flatten(network)
        if iterations:
            start = minimize_smooth(value, start, iterations=iterations)
        slope = float(np.linalg.norm(value(start)[1]))
    return _float32(unflatten(start, network)), slope


def predictions(network: Any, data: Any) -> np.ndarray:
    """f(X; msk) of every sequence, (n, d_y), float64 from a float32 program, part by part."""
    data = as_encoded(data, "predictions")
    network, found = _float32(as_network(network, data)), []
    count = len(data.tokens)
    size = min(CHUNK, count)
    for start in range(0, count, size):
        # The last part is filled up, so that one program serves all.
        rows = np.minimum(np.arange(start, start + size), count - 1)
        part = evaluate(network, *_float32((data.tokens[rows], data.mask_token[rows])))
        found.append(np.asarray(part, np.float64)[: count - start])
    return np.concatenate(found)


def empirical_risk(network: Any, data: Any, loss: SequenceLoss = squared_loss) -> float:
    """Ê ℓ(f(X; msk), y)."""
    data = as_encoded(data, "empirical_risk")
    return float(np.mean(losses(predictions(network, data), data.target, loss)))


def losses(prediction: np.ndarray, target: np.ndarray, loss: SequenceLoss) -> np.ndarray:
    """ℓ of every sequence, in float64."""
    with float64():
        return np.asarray(loss(as_array(prediction), as_array(target)), np.float64)


def as_encoded(data: Any, owner: str) -> Encoded:
    """Checked: as many mask tokens and targets as sequences."""
    tokens, mask_token, target = (np.asarray(each, np.float64) for each in tuple(data)[:3])
    count = len(tokens)
    if tokens.ndim != 3 or not count:
        requirement = "tokens of shape (n, L, d), mask tokens (n, d) and targets (n, d_y)"
        raise bad_argument("data", owner, requirement, f"tokens of shape {tokens.shape}")
    for name, array in (("mask tokens", mask_token), ("targets", target)):
        if array.ndim != 2 or len(array) != count:
            got = f"{name} of shape {array.shape}"
            raise bad_argument("data", owner, f"one row of {name} for {count} sequences", got)
    return Encoded(tokens, mask_token, target)


def _float32(tree: Any) -> Any:
    def cast(leaf: Any) -> Any:
        return as_array(np.asarray(leaf, np.float32)) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(cast, tree)


@functools.lru_cache
def _adam(learning_rate: float, iterations: int) -> optax.GradientTransformation:
    """Return one optimizer object per rate, so that nothing is compiled twice."""
    return adamw(optax.cosine_decay_schedule(learning_rate, iterations))


@functools.lru_cache
def _batches(size: int) -> Callable[[Any, Any, Any], Any]:
    def stream(data: Encoded, key: Any, _: Any) -> Encoded:
        rows = jax.random.randint(key, (size,), 0, len(data.tokens))
        return jax.tree.map(lambda array: array[rows], data)

    return stream


@functools.lru_cache
def _objective(loss: SequenceLoss) -> Callable[[Any, Any, Any], Any]:
    def objective(network: Any, data: Encoded, key: Any) -> Any:
        # Ours draws nothing; a user's may have dropout, in training only.
        drawn = {} if isinstance(network, AttentionNetwork) else {"key": key}
        found = network(data.tokens, data.mask_token, **drawn)
        _check_shapes(found, data.target, loss)
        each = loss(found, data.target)
        if jnp.shape(each) != (len(data.target),):
            wanted = f"one number per sequence, shape ({len(data.target)},)"
            raise bad_argument("loss", "minimize_risk", wanted, f"shape {jnp.shape(each)}")
        return jnp.mean(each)

    return objective


def _check_shapes(found: Any, target: Any, loss: SequenceLoss) -> None:
    """Shapes that do not fit would be stretched silently, and the risk be that of another sum."""
    wanted = (len(target), target.shape[1])
    shape = jnp.shape(found)
    if shape == wanted or (loss is not squared_loss and len(shape) == 2 and shape[0] == wanted[0]):
        return
    why = (
        "An Equinox module is called with one sequence as network(tokens, mask_token), tokens "
        "(L, d) and mask token (d,); Flax and PyTorch modules and pairs (init, apply) with a batch."
    )
    requirement = f"one that answers a batch with shape {wanted}, as the targets have"
    raise bad_argument("network", "minimize_risk", requirement, f"shape {shape}", why)


@eqx.filter_jit
def _risk_and_slope(flat: Any, network: Any, data: Encoded, loss: SequenceLoss) -> Any:
    def risk(flat: Any) -> Any:
        return _objective(loss)(unflatten(flat, network), data, None)

    return jax.value_and_grad(risk)(flat)
