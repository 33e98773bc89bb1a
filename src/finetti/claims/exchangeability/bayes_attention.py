"""Section 3: attention is the posterior mean of a latent variable."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from finetti import attention, kernels, latent
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, close, trend, within
from finetti.claims.exchangeability.instances import attentions
from finetti.claims.wrong import louder
from finetti.core.numbers import largest_of, smallest_of


@dataclass(frozen=True)
class Regression:
    """One sequence of the world r = zc + noise, and a masked token's c."""

    world: latent.LinearGaussian
    keys: np.ndarray  # (L, d_c)
    values: np.ndarray  # (L, d_r)
    query: np.ndarray  # (d_c,)

    @property
    def tokens(self) -> latent.Pairs:
        """The sequence as the world reads it, (1, L, …)."""
        return latent.Pairs(self.keys[None], self.values[None])

    def miss(self, ridge: float) -> float:
        """How far attention with the linear kernel and this ridge is from the posterior mean."""
        module = attention.ConditionalMean(kernels.Linear(), ridge=ridge)
        mean, (exact, _) = module(self.query, self.keys, self.values), condition(self)
        return np.abs(np.asarray(mean) - exact).max() / np.abs(exact).max()


def draw_regression(rng: np.random.Generator, noise: float | None = None) -> Regression:
    """A world of one of three sizes (each compiles once) and random variances."""
    length, d_c, d_r = ((3, 1, 2), (12, 4, 3), (30, 6, 1))[rng.integers(3)]
    drawn, prior = 10.0 ** rng.uniform(-1, 1, size=2)
    world = latent.LinearGaussian(d_c, d_r, drawn if noise is None else noise, prior)
    draw = world.sample(rng, 1, length)
    return Regression(world, draw.tokens.keys[0], draw.tokens.values[0], draw.query[0])


def condition(case: Regression) -> tuple[np.ndarray, float]:
    """Mean and variance of a new r at the query, from the joint Gaussian of all r's (3.7)."""
    tokens = np.vstack([case.keys, case.query[None]])
    prior, noise = case.world.prior_variance, case.world.noise_variance
    joint = prior * tokens @ tokens.T + noise * np.eye(len(tokens))
    seen, across = joint[:-1, :-1], joint[:-1, -1]
    gain = np.linalg.solve(seen, across)
    return case.values.T @ gain, float(joint[-1, -1] - across @ gain)


@claim(
    id="E-sec-2-order",
    title="attention reads a set",
    statement="attn(q, K, V) does not change when the tokens are permuted: positions, where they "
    "matter, are part of the token.",
    formula="attn(q, π K, π V) = attn(q, K, V)",
    label="Section 2",
    controls=(
        Control(
            "later tokens that weigh more", breaks={"finetti.attention.Softmax.__call__": louder(3)}
        ),
    ),
)
def e_sec_2_order(context: Context) -> Evidence:
    """The change of the output when the tokens are permuted, and when only their values are."""
    measurements = []
    for name, module in attentions(ridge=0.1).items():
        worst, least = 0.0, np.inf
        for trial in range(context.pick(quick=10, paper=100)):
            rng = context.generator(e_sec_2_order.id, name, trial)
            query, keys = rng.normal(size=(4, 3)), rng.normal(size=(30, 3))
            values, order = rng.normal(size=(30, 2)), rng.permutation(30)
            before = np.asarray(module(query, keys, values))
            after = np.asarray(module(query, keys[order], values[order]))
            apart = np.asarray(module(query, keys, values[order]))
            worst = largest_of(worst, np.abs(after - before).max())
            least = smallest_of(least, np.abs(apart - before).max())
        measurements.append(close(f"{name}: change under permutation", worst, 1e-12))
        measurements.append(at_least(f"{name}: smallest change, values alone", least, 0.01))
    return Evidence(*measurements)


@claim(
    id="E-eq-3.6",
    title="linear CME attention is the latent posterior mean",
    statement="If r = zc + noise with a Gaussian latent z, then E[z|X]c is attention with values "
    "r, keys c and a linear kernel: Rᵀ(CCᵀ + λI)⁻¹Cc, λ = noise / prior variance.",
    formula=r"\bar{z}(X) c = R^⊤ (C C^⊤ + λI)^{-1} C c,  λ = \frac{σ^2}{τ^2}",
    label="(3.6), (3.12)",
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_eq_3_6(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """CME attention against conditioning the joint Gaussian of all r's, and against its primal."""
    worst = primal = 0.0
    for trial in range(context.pick(quick=20, paper=200)):
        case = draw_regression(context.generator(e_eq_3_6.id, trial))
        exact, _ = condition(case)
        worst = largest_of(worst, case.miss(ridge_factor * case.world.ridge))
        mean = case.world.posterior(case.tokens).mean[0] @ case.query
        primal = largest_of(primal, np.abs(mean - exact).max() / np.abs(exact).max())
    return Evidence(
        close("attention − Bayes posterior mean (relative)", worst, 1e-10),
        close("primal form − Bayes posterior mean (relative)", primal, 1e-10),
        note="3 to 30 tokens of dimension 1 to 6; noise and prior variances from 0.1 to 10.",
    )


@claim(
    id="E-eq-3.7",
    title="the predictive variance is the attention posterior's",
    statement="Given the context, a new r at c is Gaussian around the attention output with "
    "variance σ̃² = σ²(1 + cᵀ(CᵀC + λI)⁻¹c); the paper approximates it by a constant.",
    formula=r"\tilde{σ}^2 = σ^2 (1 + c^⊤ (C^⊤ C + λI)^{-1} c)",
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_eq_3_7(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """`ConditionalMean.posterior` against the closed form and against joint conditioning."""
    closed = brute = 0.0
    for trial in range(context.pick(quick=20, paper=200)):
        case = draw_regression(context.generator(e_eq_3_7.id, trial))
        kernel = case.world.prior_variance * kernels.Linear()
        ridge = ridge_factor * case.world.noise_variance
        module = attention.ConditionalMean(kernel, ridge=ridge)
        _, variance = module.posterior(case.query, case.keys, case.values, predictive=True)
        formula = case.world.predict(case.tokens, case.query[None]).variance[0, 0]
        _, exact = condition(case)
        closed = largest_of(closed, abs(float(variance) / formula - 1))
        brute = largest_of(brute, abs(float(variance) / exact - 1))
    return Evidence(
        close("attention variance − σ²(1 + cᵀ(CᵀC + λI)⁻¹c) (relative)", closed, 1e-10),
        close("attention variance − joint conditioning (relative)", brute, 1e-10),
    )


@claim(
    id="E-eq-3.11",
    title="the training objective finds the Bayes ridge",
    statement="Minimizing the mean squared error of attention over sequences recovers "
    "λ = σ²/τ²: the parameters are shared over sequences, the latent is inferred per sequence.",
    formula=r"argmin_λ \hat{E} ‖y − \bar{z}_λ(X) c‖^2 = \frac{σ^2}{τ^2}",
    # The rule is ±10 %; the argmin's measured spread at this size is 2 %, so five of them.
    false_alarm=1e-5,
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_eq_3_11(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """The argmin over λ of the mean squared error of attention on 20 000 sequences."""
    world, length = latent.LinearGaussian(4, 3, noise_variance=0.5, prior_variance=1.0), 7
    count = context.pick(quick=20_000, paper=100_000)
    draw = world.sample(context.generator(e_eq_3_11.id), count, length)

    def risk(log_ridge: float) -> float:
        ridge = ridge_factor * np.exp(log_ridge)
        module = attention.ConditionalMean(kernels.Linear(), ridge=ridge)
        errors = draw.answer - np.asarray(module(draw.query, *draw.tokens))
        return float(np.mean(np.sum(errors**2, axis=1)))

    found: Any = scipy.optimize.minimize_scalar(
        risk, bounds=(np.log(0.05), np.log(5.0)), method="bounded", options={"xatol": 1e-3}
    )
    ridge = float(np.exp(found.x))
    grid = np.geomspace(0.1, 2.5, 9)
    records = [{"ridge": float(value), "risk": risk(np.log(value))} for value in grid]
    axes = {"ridge": "ridge λ", "risk": "mean squared error"}
    chart = trend(records, axes, "Risk (3.11) against the ridge")
    target = world.ridge
    return Evidence(
        within("ridge that minimizes (3.11)", ridge, 0.9 * target, 1.1 * target),
        note=f"{count} sequences of {length} tokens; noise {world.noise_variance:g}, prior "
        f"variance {world.prior_variance:g}.",
        charts=(chart,),
    )


@claim(
    id="E-erratum-2",
    title="printed: the ridge is the prior variance λ",
    statement="With the prior z ∼ N(0, λI), the posterior mean is Rᵀ(CCᵀ + λI)⁻¹C.",
    formula=r"z ∼ N(0, τ^2 I) ⇒ E[z|X] = R^⊤ (C C^⊤ + \frac{σ^2}{τ^2} I)^{-1} C",
    printed="z ∼ N(0, λI) ⇒ E[z|X] = R^⊤ (C C^⊤ + λ I)^{-1} C",
    label="Section 3, below (3.3)",
    erratum="The text can be read as giving z the prior N(0, λI) and the ridge λ. Bayes' rule "
    "gives the ridge σ²/τ² for noise σ² and prior variance τ².",
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_erratum_2(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """The Bayes mean under the prior N(0, λI), against attention with the ridge λ and σ²/λ."""
    printed = derived = 0.0
    for trial in range(20):
        case = draw_regression(context.generator(e_erratum_2.id, trial), noise=0.25)
        printed = largest_of(printed, case.miss(case.world.prior_variance))
        derived = largest_of(derived, case.miss(ridge_factor * case.world.ridge))
    return Evidence(
        close("attention with ridge λ − Bayes mean under N(0, λI) (relative)", printed, 1e-10),
        derived=(close("attention with ridge σ²/λ − the same (relative)", derived, 1e-10),),
    )
