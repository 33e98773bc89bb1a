"""Section 3, (4.5), (A.3), Appendix B.1: attention is the posterior mean of a latent variable."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from finetti import attention, kernels, latent
from finetti.claims.claim import DERIVED, Claim, Context, Control, Erratum, claim
from finetti.claims.evidence import Evidence, at_most, within
from finetti.claims.measures import Agreement


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """‖x − y‖² of all rows."""
    return np.sum((x[..., :, None, :] - y[..., None, :, :]) ** 2, axis=-1)


def rbf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """exp(−‖x − y‖²/2) of all rows, in plain NumPy."""
    return np.exp(-squared_distances(x, y) / 2)


def attentions(ridge: float) -> dict[str, Any]:
    """One member of each family of attention, by name."""
    return {
        "softmax": attention.Softmax(),
        "RBF smoother": attention.KernelSmoother(kernels.RBF()),
        "conditional mean": attention.ConditionalMean(kernels.RBF(), ridge=ridge),
    }


def gaussian_conditional(
    seen: np.ndarray, across: np.ndarray, prior: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, d_r) and variance (n,) of new points given ``values`` (L, d_r) of old ones.

    ``seen`` (L, L) is the covariance of the old ones, ``across`` (L, n) that with the new ones, and
    ``prior`` (n,) the variance of the new ones.
    """
    gain = np.linalg.solve(seen, across)
    return gain.T @ values, prior - np.sum(across * gain, axis=0)


def _draw_permuted(rng: np.random.Generator) -> tuple:
    query, keys = rng.normal(size=(4, 3)), rng.normal(size=(30, 3))
    return query, keys, rng.normal(size=(30, 2)), rng.permutation(30)


def _permuted(query: Any, keys: Any, values: Any, order: Any) -> dict[str, Any]:
    return {
        f"{name}: change under permutation": (
            module(query, keys[order], values[order]),
            module(query, keys, values),
        )
        for name, module in attentions(ridge=0.1).items()
    }


e_sec_2_order = Claim(
    id="E-sec-2-order",
    title="attention reads a set",
    statement="Attention does not change when the tokens are permuted: positions, where they "
    "matter, are part of the token.",
    formula="attn(q, π K, π V) = attn(q, K, V)",
    label="Section 2",
    measure=Agreement(
        _permuted,
        draw=_draw_permuted,
        tolerance=1e-12,
        sides="attention over permuted tokens and over tokens as they were",
    ),
)


@dataclass(frozen=True)
class Regression:
    """One sequence of the world r = zc + noise, and a masked token's c."""

    world: latent.LinearGaussian
    keys: np.ndarray  # (L, d_c)
    values: np.ndarray  # (L, d_r)
    query: np.ndarray  # (d_c,)

    def condition(self) -> tuple[np.ndarray, float]:
        """Mean and variance of a new r at the query, from the joint Gaussian of all r's (3.7)."""
        tokens = np.vstack([self.keys, self.query[None]])
        prior, noise = self.world.prior_variance, self.world.noise_variance
        joint = prior * tokens @ tokens.T + noise * np.eye(len(tokens))
        mean, variance = gaussian_conditional(
            joint[:-1, :-1], joint[:-1, -1:], joint[-1:, -1], self.values
        )
        return mean[0], float(variance[0])


def draw_regression(rng: np.random.Generator) -> tuple[Regression]:
    """A world of one of three sizes (each compiles once) and random variances."""
    length, d_c, d_r = ((3, 1, 2), (12, 4, 3), (30, 6, 1))[rng.integers(3)]
    noise, prior = 10.0 ** rng.uniform(-1, 1, size=2)
    world = latent.LinearGaussian(d_c, d_r, noise, prior)
    draw = world.sample(rng, 1, length)
    return (Regression(world, draw.tokens.keys[0], draw.tokens.values[0], draw.query[0]),)


def _means(case: Regression, form: str = DERIVED) -> dict[str, Any]:
    """Attention with the ridge σ²/τ², printed with τ², and the mean given all r's."""
    ridge = case.world.ridge if form == DERIVED else case.world.prior_variance
    module = attention.ConditionalMean(kernels.Linear(), ridge=ridge)
    found = module(case.query, case.keys, case.values)
    return {"attention − Bayes posterior mean (relative)": (found, case.condition()[0])}


e_eq_3_6 = Claim(
    id="E-eq-3.6",
    title="linear CME attention is the latent posterior mean",
    statement="If r = zc + noise with a Gaussian latent z, the posterior mean of z at c is "
    "attention with values r, keys c and a linear kernel; its ridge is noise over prior variance.",
    formula=r"\bar{z}(X) c = R^⊤ (C C^⊤ + λI)^{-1} C c,  λ = \frac{σ^2}{τ^2}",
    label="(3.6), (3.12)",
    erratum=Erratum(
        2,
        title="printed: the ridge is the prior variance λ",
        formula=r"z ∼ N(0, τ^2 I) ⇒ E[z|X] = R^⊤ (C C^⊤ + \frac{σ^2}{τ^2} I)^{-1} C",
        printed="z ∼ N(0, λI) ⇒ E[z|X] = R^⊤ (C C^⊤ + λ I)^{-1} C",
        label="Section 3, below (3.3)",
        why="The text can be read as giving z the prior N(0, λI) and the ridge λ. Bayes' rule "
        "gives the ridge σ²/τ² for noise σ² and prior variance τ².",
    ),
    measure=Agreement(
        _means,
        draw=draw_regression,
        tolerance=1e-10,
        sides="CME attention and the mean given the joint Gaussian of all r's",
        trials=(20, 200),
    ),
)


def _variances(case: Regression) -> dict[str, Any]:
    """Attention, the closed form, and joint conditioning."""
    kernel = case.world.prior_variance * kernels.Linear()
    module = attention.ConditionalMean(kernel, ridge=case.world.noise_variance)
    found = module.posterior(case.query, case.keys, case.values, predictive=True)[1]
    tokens = latent.Pairs(case.keys[None], case.values[None])
    closed = case.world.predict(tokens, case.query[None]).variance[0, 0]
    return {
        "attention variance − σ²(1 + cᵀ(CᵀC + λI)⁻¹c) (relative)": (found, closed),
        "attention variance − joint conditioning (relative)": (found, case.condition()[1]),
    }


e_eq_3_7 = Claim(
    id="E-eq-3.7",
    title="the predictive variance is the attention posterior's",
    statement="Given the context, a new r is Gaussian around the attention output, with a variance "
    "that the paper approximates by a constant.",
    formula=r"\tilde{σ}^2 = σ^2 (1 + c^⊤ (C^⊤ C + λI)^{-1} c)",
    measure=Agreement(
        _variances,
        draw=draw_regression,
        tolerance=1e-10,
        sides="`ConditionalMean.posterior`, the closed form, and joint conditioning of all r's",
        trials=(20, 200),
    ),
)


@claim(
    id="E-eq-3.11",
    title="the training objective finds the Bayes ridge",
    statement="Minimizing the mean squared error of attention over sequences recovers the ridge "
    "of Bayes' rule: the parameters are shared over sequences, the latent is inferred per "
    "sequence.",
    formula=r"argmin_λ \hat{E} ‖y − \bar{z}_λ(X) c‖^2 = \frac{σ^2}{τ^2}",
    # The rule is ±10 %; the argmin's measured spread at this size is 2 %, so five of them.
    false_alarm=1e-5,
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_eq_3_11(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """The argmin over λ of the mean squared error of attention on 20 000 sequences."""
    world, length = latent.LinearGaussian(4, 3, noise_variance=0.5, prior_variance=1.0), 7
    count = context.pick(quick=20_000, paper=100_000)
    draw = world.sample(context.draws(), count, length)

    def risk(log_ridge: float) -> float:
        ridge = ridge_factor * np.exp(log_ridge)
        module = attention.ConditionalMean(kernels.Linear(), ridge=ridge)
        errors = draw.answer - np.asarray(module(draw.query, *draw.tokens))
        return float(np.mean(np.sum(errors**2, axis=1)))

    found: Any = scipy.optimize.minimize_scalar(
        risk, bounds=(np.log(0.05), np.log(5.0)), method="bounded", options={"xatol": 1e-3}
    )
    ridge = float(np.exp(found.x))
    target = world.ridge
    return Evidence(
        within("ridge that minimizes (3.11)", ridge, 0.9 * target, 1.1 * target),
        note=f"{count} sequences of {length} tokens; noise {world.noise_variance:g}, prior "
        f"variance {world.prior_variance:g}.",
    )


def _minimizers(query: Any, keys: Any, values: Any, ridge: float = 0.2) -> dict[str, Any]:
    """CME attention, and the f = Σ α_ℓ K(k_ℓ, ·) with the least ‖V − Kα‖² + λ αᵀKα."""
    gram = rbf(keys, keys)
    rows = np.vstack([gram, np.sqrt(ridge) * np.linalg.cholesky(gram).T])
    targets = np.vstack([values, np.zeros_like(values)])
    best = rbf(query, keys) @ np.linalg.lstsq(rows, targets, rcond=None)[0]
    found = attention.ConditionalMean(kernels.RBF(), ridge=ridge)(query, keys, values)
    return {"attention − the minimizer (relative)": (found, best)}


e_eq_4_5 = Claim(
    id="E-eq-4.5",
    title="CME attention is kernel ridge regression",
    statement="As a function of the query, attention minimizes the squared errors at the keys plus "
    "λ times the squared norm of the kernel's space.",
    formula="attn_{CME}(q,K,V) = V^⊤ (K(K,K) + λI)^{-1} K(K,q) = argmin_f Σ_ℓ ‖v_ℓ − f(k_ℓ)‖^2 + "
    "λ ‖f‖^2",
    measure=Agreement(
        _minimizers,
        draw=lambda rng: tuple(rng.normal(size=each) for each in ((5, 3), (20, 3), (20, 2))),
        tolerance=1e-9,
        sides="CME attention and the best function of the kernel's space, by least squares",
    ),
)


def _quadratic(tokens: np.ndarray) -> np.ndarray:
    """φ with φ(x)·φ(y) = (x·y + 1)²: all products of two coordinates of (x, 1)."""
    extended = np.hstack([tokens, np.ones((len(tokens), 1))])
    return np.einsum("li,lj->lij", extended, extended).reshape(len(tokens), -1)


def _draw_context(rng: np.random.Generator) -> tuple:
    keys, values = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    return rng.normal(size=(5, 3)), keys, values, 10.0 ** rng.uniform(-2, 0)


def _embeddings(
    query: Any, keys: Any, values: Any, ridge: float, form: str = DERIVED
) -> dict[str, Any]:
    """Attention, and (A.3) in feature space; φ is independent of the kernel's own feature map."""
    features, query_features = (_quadratic(tokens) for tokens in (keys, query))
    covariance, cross = (each.T @ features / len(keys) for each in (features, values))
    regularized = covariance + ridge * np.eye(len(covariance))
    embedding = (cross @ np.linalg.solve(regularized, query_features.T)).T
    options: Any = {"ridge_per_token" if form == DERIVED else "ridge": ridge}
    found = attention.ConditionalMean(kernels.Polynomial(2), **options)(query, keys, values)
    return {"attention − empirical embedding (relative)": (found, embedding)}


e_eq_a_3 = Claim(
    id="E-eq-A.3",
    title="the empirical conditional mean embedding is attention with ridge L·λ",
    statement="The empirical conditional mean embedding with λ is attention with the ridge L·λ.",
    formula=r"\hat{C}_{VK} (\hat{C}_{KK} + λI)^{-1} k(q,·) = V^⊤ (K + L λ I)^{-1} K(K,q)",
    erratum=Erratum(
        1,
        title="printed: one λ serves (4.5) and (A.3)",
        statement="The empirical conditional mean embedding with λ is attention with the ridge λ.",
        printed=r"\hat{C}_{VK} (\hat{C}_{KK} + λI)^{-1} k(q,·) = V^⊤ (K + λ I)^{-1} K(K,q)",
        label="(4.5), (A.3)",
        why="(4.5) adds λ to the Gram matrix, (A.3) adds L·λ. Bayes statements need λ = noise / "
        "prior variance, Proposition 4.1 needs L·λ.",
    ),
    measure=Agreement(
        _embeddings,
        draw=_draw_context,
        tolerance=1e-9,
        sides="attention with the ridge Lλ and the operators of (A.3) in feature space",
    ),
)


def _kernels() -> dict[str, tuple]:
    """Every kernel with a plain NumPy formula beside it."""

    def matern(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        distance = np.sqrt(3.0 * squared_distances(x, y))
        return (1 + distance) * np.exp(-distance)

    return {
        "RBF": (kernels.RBF(0.8), lambda x, y: np.exp(-squared_distances(x, y) / (2 * 0.8**2))),
        "Exponential": (kernels.Exponential(), lambda x, y: np.exp(x @ y.T)),
        "Linear": (kernels.Linear(), lambda x, y: x @ y.T),
        "Polynomial": (kernels.Polynomial(3), lambda x, y: (x @ y.T + 1) ** 3),
        "Matérn 3/2": (kernels.Matern(1.5), matern),
    }


def _draw_process(rng: np.random.Generator) -> tuple:
    keys, query = rng.normal(size=(24, 3)), rng.normal(size=(6, 3))
    return query, keys, rng.normal(size=(24, 2)), 10.0 ** rng.uniform(-1, 1)


def _posteriors(query: Any, keys: Any, values: Any, ridge: float) -> dict[str, Any]:
    """Attention with each kernel, and conditioning of the joint Gaussian of values and f."""
    found = {}
    for name, (kernel, formula) in _kernels().items():
        mean, variance = attention.ConditionalMean(kernel, ridge=ridge).posterior(
            query, keys, values
        )
        prior, seen = np.diag(formula(query, query)), formula(keys, keys) + ridge * np.eye(24)
        exact = gaussian_conditional(seen, formula(keys, query), prior, values)
        found[f"{name}: mean (relative)"] = mean, exact[0]
        found[f"{name}: variance (in prior variances)"] = variance / prior, exact[1] / prior
    return found


e_app_b_1 = Claim(
    id="E-app-B.1",
    title="CME attention is a Gaussian-process posterior",
    statement="If values are a Gaussian process at the keys plus noise of variance λ, attention is "
    "the posterior mean of the process at the query, for every kernel, and has its posterior "
    "variance.",
    formula="E[f(q)|X] = V^⊤ (K+λI)^{-1} K(K,q),  Var[f(q)|X] = K(q,q) − K(q,K) (K+λI)^{-1} K(K,q)",
    label="Appendix B.1, (4.5)",
    measure=Agreement(
        _posteriors,
        draw=_draw_process,
        tolerance=1e-10,
        sides="mean and variance of attention and of the joint Gaussian of values and f",
        trials=(5, 50),
    ),
)


@claim(
    id="E-app-B.1-calibration",
    title="the error bars of attention are calibrated",
    statement="On sequences drawn from the latent Gaussian process, the predictive intervals of "
    "attention cover at their nominal rate.",
    formula=r"P(|y − m(q)| ≤ 1.96 \sqrt{s^2(q)}) = 0.95,  E[\frac{(y−m)^2}{s^2}] = 1",
    false_alarm=2e-4,
    controls=(
        Control("a ridge 20 % too small", changes={"ridge_factor": 0.8}),
        Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),
    ),
)
def e_app_b_1_calibration(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """Coverage of 95 % intervals and mean squared z over sequences drawn from the process."""
    world, length = latent.GaussianProcessWorld(kernels.RBF(), 2, noise_variance=0.3), 8
    count = context.pick(quick=20_000, paper=100_000)
    draw = world.sample(context.draws(), count, length)
    ridge = ridge_factor * world.noise_variance
    module = attention.ConditionalMean(kernels.RBF(), ridge=ridge)
    mean, variance = module.posterior(draw.query, *draw.tokens, predictive=True)
    z = (draw.answer - np.asarray(mean))[:, 0] / np.sqrt(np.asarray(variance))
    coverage = float(np.mean(np.abs(z) <= 1.959963984540054))
    # Both limits are 3.9 and 4.0 standard errors at 20 000 sequences.
    return Evidence(
        at_most("|coverage of 95 % intervals − 0.95|", abs(coverage - 0.95), 0.006),
        at_most("|mean z² − 1|", abs(float(np.mean(z**2)) - 1), 0.04),
        note=f"{count} sequences of {length} tokens; coverage {coverage:.4f}, mean z² "
        f"{np.mean(z**2):.4f}. A ridge 20 % too small would give 1.16.",
    )
