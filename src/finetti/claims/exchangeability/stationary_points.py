"""Proposition 5.6: what a stationary point costs, by its local linearization."""

from dataclasses import replace
from typing import Any

import numpy as np

from finetti import attention, risk
from finetti.claims.claim import CheckMethod, Context, Control, Erratum, claim
from finetti.claims.evidence import Evidence, at_most, close, within
from finetti.claims.measures import ratios_at_most_one
from finetti.core.numerics.extremes import largest_of

SEQUENCES, LENGTH = 12, 4
WIDTH = 2.0  # Θ = [−2, 2]⁸


def small_attention(theta: Any, tokens: Any, mask_token: Any = None) -> Any:
    """tanh(w·Σ_ℓ softmax_ℓ(q⟨k, x_ℓ⟩) tanh(⟨v, x_ℓ⟩ + b) + o) with θ = (q, k, v, b, w, o).

    An attention network of eight numbers, smooth and bounded by 1: one number per sequence, (n, 1).
    """
    import jax
    import jax.numpy as jnp

    weights = jax.nn.softmax(theta[0] * (tokens @ theta[1:3]), axis=-1)
    read = jnp.sum(weights * jnp.tanh(tokens @ theta[3:5] + theta[5]), axis=-1)
    return jnp.tanh(theta[6] * read + theta[7])[:, None]


def parabola(theta: Any, tokens: Any, mask_token: Any) -> Any:
    """1 − θ², which has no derivative at 0, the same for every sequence."""
    import jax.numpy as jnp

    return jnp.broadcast_to(1 - theta**2, (len(tokens), 1))


def _network(function: Any, theta: np.ndarray, data: Any) -> Any:
    """A network of a pair (init, apply) whose weights are given."""
    from finetti.risk.minimization import as_encoded
    from finetti.risk.networks.user_network import as_network

    pair = (lambda key: theta), function
    return as_network(pair, as_encoded(data, "optimization_bound"))


def _stationary(slope: Any, start: np.ndarray) -> np.ndarray:
    """A stationary point of the empirical risk over Θ, (5.12), by L-BFGS-B."""
    from finetti.risk.solvers import minimize_smooth

    bounds = [(-WIDTH, WIDTH)] * len(start)
    for _ in range(4):  # a line search may fail, and is fine again without memory
        start = minimize_smooth(slope, start, bounds, iterations=400, ftol=1e-15, gtol=1e-8)
    return start


def _points(rng: np.random.Generator, starts: int, value_and_grad: Any, network: Any) -> list[Any]:
    """Both sides of (5.13) at the stationary points of one sample, and at its saddle θ = 0."""

    tokens, target = rng.normal(size=(SEQUENCES, LENGTH, 2)), rng.normal(size=(SEQUENCES, 1))
    target -= target.mean()
    target /= np.abs(target).max()  # centered answers of size at most 1

    def slope(theta: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = value_and_grad(theta, tokens, target)
        return float(found), np.asarray(gradient)

    found = [_stationary(slope, rng.uniform(-2, 2, size=8)) for _ in range(starts)]
    answers = [np.asarray(small_attention(theta, tokens)) for theta in found]
    best = min(answers, key=lambda answer: float(np.mean((target - answer) ** 2)))
    data, box = (tokens, np.zeros((SEQUENCES, 2)), target), risk.ParameterBox(-WIDTH, WIDTH)
    # At w = o = 0 and v = b = 0 nothing moves to first order but o, along the mean answer, 0.
    networks = [replace(network, params=theta) for theta in (*found, np.zeros(8))]
    return [risk.optimization_bound(each, data, best, box, tolerance=1e-3) for each in networks]


def _coin_saddle(rng: np.random.Generator, fit: float) -> Evidence:
    """A head at its saddle θ̂ = 0, on labels that are fair coins: f_θ̂ is E[y|X] = 0.

    f_θ(X) = ⟨w, attn_SM(q, X, XW_v)⟩ has no derivative at w = 0, W_v = 0, so (5.12) is an equality
    and the linearization is 0, whatever θ. The least squares fit of the coins is the best f_θ.
    """
    import jax

    sequences, length, dimension = 400, 8, 4
    tokens = rng.normal(size=(sequences, length, dimension))
    query = rng.normal(size=(sequences, dimension))
    labels = rng.choice([-1.0, 1.0], size=sequences)

    def predict(readout: Any, value_weights: Any) -> Any:
        return attention.Softmax()(query, tokens, tokens @ value_weights) @ readout

    saddle = np.zeros(dimension), np.zeros((dimension, dimension))
    slopes = jax.tree.leaves(jax.jacobian(predict, argnums=(0, 1))(*saddle))
    means = np.stack([predict(axis, np.eye(dimension)) for axis in np.eye(dimension)], axis=1)
    readout = fit * np.linalg.lstsq(means, labels, rcond=None)[0]
    fitted = np.asarray(predict(readout, np.eye(dimension)))
    at_saddle = np.asarray(predict(*saddle))
    excess = np.mean((labels - at_saddle) ** 2) - np.mean((labels - fitted) ** 2)
    printed, derived = (4 * np.mean(np.abs(at_saddle - g)) for g in (0.0, fitted))
    steepest = largest_of(np.abs(slope).max() for slope in slopes)
    return Evidence(
        at_most("E_opt, against 4·Ê‖linearization − E[y|X]‖", excess, printed),
        derived=(
            at_most("E_opt, against 4·Ê‖linearization − f̃‖", excess, derived),
            close("E_opt − Ê‖f̃‖² (least squares)", excess - np.mean(fitted**2), 1e-12),
            close("largest derivative at the saddle", steepest, 0.0),
            at_most("largest |f̃|, for the 4", np.abs(fitted).max(), 1.0),
        ),
    )


@claim(
    id="E-prop-5.6",
    title="what a stationary point costs, by its linearization",
    statement="At a stationary point (5.12), the optimization error is bounded by how well the "
    "linearization there can represent the best function f̃ of the class on the sample, for "
    "‖y‖, ‖f‖ ≤ 1.",
    formula=r"E_{opt} ≤ 4 min_θ \hat{E} ‖f_{\hat{θ}} + ∇f_{\hat{θ}}^⊤ (θ − \hat{θ}) − \tilde{f}‖",
    label="Proposition 5.6, (5.13)",
    check=CheckMethod.TIGHT,
    rejects="a constant other than 4 by 1 %",
    erratum=Erratum(
        7,
        title="printed: Proposition 5.6 compares with E[y|X]",
        statement="At a stationary point, the optimization error is bounded by how well the "
        "linearization there can represent E[y|X].",
        printed=r"E_{opt} ≤ 4 min_θ \hat{E} ‖f_{\hat{θ}} + ∇f_{\hat{θ}}^⊤ (θ − \hat{θ}) − f^*‖,  "
        "f^* = E[y|X]",
        why="Appendix D proves it with the best function of the class on the sample, f̃, for f*. "
        "E_opt is measured against f̃, which fits the noise in part; E[y|X] does not.",
        # |f̃| ≤ 1: its standard deviation is about √(4/400).
        false_alarm=1e-9,
        controls=(Control("a fit that is not the best of the class", changes={"fit": 0.5}),),
    ),
)
def e_prop_5_6(context: Context, form: str = "derived", fit: float = 1.0) -> Evidence:
    """E_opt over the certified right-hand side, at stationary points of small attention networks.

    Minima and saddles over the box [−2, 2]⁸; the best of them all stands for f̃, so that E_opt is a
    lower estimate. The right-hand side is a dual value, which is at most what it should be. As
    printed: a head at its saddle θ̂ = 0, on labels that are fair coins.
    """
    import jax
    import jax.numpy as jnp

    if form == "printed":
        return _coin_saddle(context.draws("coins"), fit)

    def empirical_risk(theta: Any, tokens: Any, target: Any) -> Any:
        return jnp.mean((target - small_attention(theta, tokens)) ** 2)

    value_and_grad = jax.jit(jax.value_and_grad(empirical_risk))
    rng, samples = context.draws(), context.pick(quick=40, paper=400)
    sizes = np.zeros((SEQUENCES, LENGTH, 2)), np.zeros((SEQUENCES, 2)), np.zeros((SEQUENCES, 1))
    network = _network(small_attention, np.zeros(8), sizes)  # one, so that programs are shared
    found = [each for _ in range(samples) for each in _points(rng, 5, value_and_grad, network)]
    gaps = [each.gap / each.value for each in found if each.excess > 1e-3]
    # y = −1, f_θ = 1 − θ² at θ̂ = 0, f̃ = 1 − η: E_opt = 4η − η², and 4·η is the bound.
    data = np.zeros((1, 1, 1)), np.zeros((1, 1)), -np.ones((1, 1))
    flat = (lambda key: np.zeros(1)), parabola
    tight = risk.optimization_bound(flat, data, [[0.98]], risk.ParameterBox(-1.0, 1.0))
    return Evidence(
        ratios_at_most_one(np.array([each.ratio for each in found]), "stationary points"),
        within("y = −1, f = 1 − θ², f̃ = 0.98", tight.ratio, 0.99, 1 + 1e-9),
        at_most("slack of the stationary points (5.12)", largest_of(e.slack for e in found), 1e-3),
        at_most("value − dual, over the value, where E_opt > 0.001", largest_of(gaps), 1e-2),
        note=f"{len(gaps)} of {len(found)} points have E_opt > 0.001.",
    )
