"""(4.5), (A.3) and Appendix B.1: CME attention, its ridge, and its error bars."""

import numpy as np

from finetti import attention, kernels, latent
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close
from finetti.claims.exchangeability.instances import rbf, squared
from finetti.claims.wrong import times
from finetti.core.numbers import largest_of, smallest_of


def _objective(gram: np.ndarray, values: np.ndarray, ridge: float, alpha: np.ndarray) -> float:
    """Σ‖v − f(k)‖² + λ‖f‖² of the function f = Σ α_ℓ K(k_ℓ, ·)."""
    residual = values - gram @ alpha
    return float(np.sum(residual**2) + ridge * np.sum(alpha * (gram @ alpha)))


@claim(
    id="E-eq-4.5",
    title="CME attention is kernel ridge regression",
    statement="attn_CME(·, K, V) is the function f that minimizes Σ‖v − f(k)‖² + λ‖f‖² over the "
    "kernel's space.",
    formula="attn_{CME}(q,K,V) = V^⊤ (K(K,K) + λI)^{-1} K(K,q)",
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_eq_4_5(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """Stationarity and minimality of the regularized least squares that attention solves."""
    gradient = 0.0
    least_rise = np.inf
    for trial in range(context.pick(quick=10, paper=100)):
        rng = context.generator(e_eq_4_5.id, trial)
        keys, values, ridge = rng.normal(size=(20, 3)), rng.normal(size=(20, 2)), 0.2
        module = attention.ConditionalMean(kernels.RBF(), ridge=ridge_factor * ridge)
        gram = rbf(keys, keys)
        # At the keys attention is Kα; the coefficients follow from the residual, α = (V − Kα)/λ.
        fitted = np.asarray(module(keys, keys, values))
        alpha = (values - fitted) / ridge
        best = _objective(gram, values, ridge, alpha)
        gradient = largest_of(gradient, np.abs(gram @ alpha - fitted).max())
        for size in (1e-3, 1e-1, 1.0):
            moved = alpha + size * rng.normal(size=alpha.shape)
            least_rise = smallest_of(least_rise, _objective(gram, values, ridge, moved) - best)
    return Evidence(
        close("attention − the function with coefficients (V − fit)/λ", gradient, 1e-10),
        at_least("smallest rise of the objective under perturbation", least_rise, 0.0),
    )


def embedding_error(
    context: Context, claim_id: str, per_token: bool, ridge_factor: float = 1.0
) -> float:
    """Largest distance between attention and Ĉ_VK(Ĉ_KK + λI)⁻¹φ(q) built from features."""
    worst = 0.0
    kernel = kernels.Polynomial(2)
    for trial in range(context.pick(quick=10, paper=100)):
        rng = context.generator(claim_id, trial)
        keys, values = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
        query, ridge = rng.normal(size=(5, 3)), 10.0 ** rng.uniform(-2, 0)
        # φ written out by hand, independent of the kernel's own feature map.
        features, query_features = (_quadratic(tokens) for tokens in (keys, query))
        covariance = features.T @ features / len(keys)
        cross = values.T @ features / len(keys)
        regularized = covariance + ridge * np.eye(len(covariance))
        embedding = cross @ np.linalg.solve(regularized, query_features.T)
        name = "ridge_per_token" if per_token else "ridge"
        module = attention.ConditionalMean(kernel, **{name: ridge_factor * ridge})
        output = np.asarray(module(query, keys, values))
        worst = largest_of(worst, np.abs(output - embedding.T).max() / np.abs(embedding).max())
    return worst


def _quadratic(tokens: np.ndarray) -> np.ndarray:
    """φ with φ(x)·φ(y) = (x·y + 1)²: all products of two coordinates of (x, 1)."""
    extended = np.hstack([tokens, np.ones((len(tokens), 1))])
    return np.einsum("li,lj->lij", extended, extended).reshape(len(tokens), -1)


@claim(
    id="E-eq-A.3",
    title="the empirical conditional mean embedding is attention with ridge L·λ",
    statement="Ĉ_VK(Ĉ_KK + λI)⁻¹k(q,·) = attn_CME(q, K, V) with the ridge L·λ.",
    formula=r"\hat{C}_{VK} (\hat{C}_{KK} + λI)^{-1} k(q,·) = V^⊤ (K + L λ I)^{-1} K(K,q)",
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_eq_a_3(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """Attention with `ridge_per_token` against the operators of (A.3) in feature space."""
    error = embedding_error(context, e_eq_a_3.id, True, ridge_factor)
    return Evidence(close("attention with ridge Lλ − empirical embedding (relative)", error, 1e-9))


@claim(
    id="E-erratum-1",
    title="printed: one λ serves (4.5) and (A.3)",
    statement="attn_CME with the ridge λ is the empirical conditional mean embedding with that λ.",
    formula=r"\hat{C}_{VK} (\hat{C}_{KK} + λI)^{-1} k(q,·) = V^⊤ (K + L λ I)^{-1} K(K,q)",
    printed=r"\hat{C}_{VK} (\hat{C}_{KK} + λI)^{-1} k(q,·) = V^⊤ (K + λ I)^{-1} K(K,q)",
    label="(4.5), (A.3)",
    erratum="(4.5) adds λ to the Gram matrix, (A.3) adds L·λ. Bayes statements need λ = noise / "
    "prior variance, Proposition 4.1 needs L·λ.",
    controls=(Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),),
)
def e_erratum_1(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """Attention with the ridge λ, and with L·λ, against the empirical embedding with λ."""
    printed, derived = (
        embedding_error(context, e_erratum_1.id, each, ridge_factor) for each in (False, True)
    )
    return Evidence(
        close("attention with ridge λ − empirical embedding (relative)", printed, 1e-9),
        derived=(close("attention with ridge Lλ − empirical embedding (relative)", derived, 1e-9),),
    )


def _members() -> dict[str, tuple]:
    """Every kernel with a plain NumPy formula beside it."""

    def matern(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        distance = np.sqrt(3.0) * np.sqrt(squared(x, y))
        return (1 + distance) * np.exp(-distance)

    return {
        "RBF": (kernels.RBF(0.8), lambda x, y: np.exp(-squared(x, y) / (2 * 0.8**2))),
        "Exponential": (kernels.Exponential(), lambda x, y: np.exp(x @ y.T)),
        "Linear": (kernels.Linear(), lambda x, y: x @ y.T),
        "Polynomial": (kernels.Polynomial(3), lambda x, y: (x @ y.T + 1) ** 3),
        "Matérn 3/2": (kernels.Matern(1.5), matern),
    }


@claim(
    id="E-app-B.1",
    title="CME attention is a Gaussian-process posterior",
    statement="If values are r = f(c) + noise with f ∼ GP(0, K) and noise variance λ, then "
    "attn_CME is the posterior mean of f at the query, for every kernel; its posterior variance is "
    "K(q,q) − K(q,K)(K + λI)⁻¹K(K,q).",
    formula="E[f(q)|X] = V^⊤ (K+λI)^{-1} K(K,q),  Var[f(q)|X] = K(q,q) − K(q,K) (K+λI)^{-1} K(K,q)",
    label="Appendix B.1, (4.5)",
    controls=(
        Control(
            "mean and variance 1 % too large",
            breaks={"finetti.attention.ConditionalMean.posterior": times(1.01)},
        ),
    ),
)
def e_app_b_1(context: Context) -> Evidence:
    """Mean and variance of each kernel against conditioning the joint Gaussian of values and f."""
    measurements = []
    for name, (kernel, formula) in _members().items():
        mean_error = variance_error = 0.0
        for trial in range(context.pick(quick=5, paper=50)):
            rng = context.generator(e_app_b_1.id, name, trial)
            keys, query = rng.normal(size=(24, 3)), rng.normal(size=(6, 3))
            values, ridge = rng.normal(size=(24, 2)), 10.0 ** rng.uniform(-1, 1)
            module = attention.ConditionalMean(kernel, ridge=ridge)
            mean, variance = module.posterior(query, keys, values)
            gain = np.linalg.solve(formula(keys, keys) + ridge * np.eye(24), formula(keys, query))
            exact_mean = gain.T @ values
            exact_variance = np.diag(formula(query, query) - formula(query, keys) @ gain)
            prior = np.diag(formula(query, query))
            scale = np.abs(exact_mean).max()
            mean_error = largest_of(mean_error, np.abs(mean - exact_mean).max() / scale)
            variance_error = largest_of(
                variance_error, (np.abs(variance - exact_variance) / prior).max()
            )
        measurements.append(close(f"{name}: mean (relative)", mean_error, 1e-10))
        measurements.append(close(f"{name}: variance (in prior variances)", variance_error, 1e-10))
    return Evidence(*measurements)


@claim(
    id="E-app-B.1-calibration",
    title="the error bars of attention are calibrated",
    statement="On sequences drawn from the latent Gaussian process, the predictive intervals of "
    "attn_CME cover at their nominal rate.",
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
    draw = world.sample(context.generator(e_app_b_1_calibration.id), count, length)
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
