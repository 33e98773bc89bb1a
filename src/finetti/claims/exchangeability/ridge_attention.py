"""(4.5) and (A.3): CME attention, and its ridge."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Context, claim
from finetti.claims.evidence import Evidence, at_least, close
from finetti.claims.exchangeability.instances import rbf


def _objective(gram: np.ndarray, values: np.ndarray, ridge: float, alpha: np.ndarray) -> float:
    """Σ‖v − f(k)‖² + λ‖f‖² of the function f = Σ α_ℓ K(k_ℓ, ·)."""
    residual = values - gram @ alpha
    return float(np.sum(residual**2) + ridge * np.sum(alpha * (gram @ alpha)))


@claim(
    id="E-eq-4.5",
    title="CME attention is kernel ridge regression",
    statement="attn_CME(·, K, V) is the function f that minimizes Σ‖v − f(k)‖² + λ‖f‖² over the "
    "kernel's space.",
)
def e_eq_4_5(context: Context) -> Evidence:
    """Stationarity and minimality of the regularized least squares that attention solves."""
    gradient = 0.0
    least_rise = np.inf
    for trial in range(context.pick(quick=10, paper=100)):
        rng = context.generator(e_eq_4_5.id, trial)
        keys, values, ridge = rng.normal(size=(20, 3)), rng.normal(size=(20, 2)), 0.2
        module = attention.ConditionalMean(kernels.RBF(), ridge=ridge)
        gram = rbf(keys, keys)
        # At the keys attention is Kα; the coefficients follow from the residual, α = (V − Kα)/λ.
        fitted = np.asarray(module(keys, keys, values))
        alpha = (values - fitted) / ridge
        best = _objective(gram, values, ridge, alpha)
        gradient = max(gradient, np.abs(gram @ alpha - fitted).max())
        for size in (1e-3, 1e-1, 1.0):
            moved = alpha + size * rng.normal(size=alpha.shape)
            least_rise = min(least_rise, _objective(gram, values, ridge, moved) - best)
    return Evidence(
        close("attention − the function with coefficients (V − fit)/λ", gradient, 1e-10),
        at_least("smallest rise of the objective under perturbation", least_rise, 0.0),
    )


def embedding_error(context: Context, claim_id: str, per_token: bool) -> float:
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
        module = attention.ConditionalMean(kernel, **{name: ridge})
        output = np.asarray(module(query, keys, values))
        worst = max(worst, np.abs(output - embedding.T).max() / np.abs(embedding).max())
    return worst


def _quadratic(tokens: np.ndarray) -> np.ndarray:
    """φ with φ(x)·φ(y) = (x·y + 1)²: all products of two coordinates of (x, 1)."""
    extended = np.hstack([tokens, np.ones((len(tokens), 1))])
    return np.einsum("li,lj->lij", extended, extended).reshape(len(tokens), -1)


@claim(
    id="E-eq-A.3",
    title="the empirical conditional mean embedding is attention with ridge L·λ",
    statement="Ĉ_VK(Ĉ_KK + λI)⁻¹k(q,·) = attn_CME(q, K, V) with the ridge L·λ.",
)
def e_eq_a_3(context: Context) -> Evidence:
    """Attention with `ridge_per_token` against the operators of (A.3) in feature space."""
    error = embedding_error(context, e_eq_a_3.id, per_token=True)
    return Evidence(close("attention with ridge Lλ − empirical embedding (relative)", error, 1e-9))


@claim(
    id="E-erratum-1",
    title="printed: one λ serves (4.5) and (A.3)",
    statement="attn_CME with the ridge λ is the empirical conditional mean embedding with that λ.",
    label="(4.5), (A.3)",
    erratum="(4.5) adds λ to the Gram matrix, (A.3) adds L·λ. Bayes statements need λ = noise / "
    "prior variance, Proposition 4.1 needs L·λ.",
)
def e_erratum_1(context: Context) -> Evidence:
    """Attention with the ridge λ, and with L·λ, against the empirical embedding with λ."""
    printed, derived = (embedding_error(context, e_erratum_1.id, each) for each in (False, True))
    return Evidence(
        close("attention with ridge λ − empirical embedding (relative)", printed, 1e-9),
        derived=(close("attention with ridge Lλ − empirical embedding (relative)", derived, 1e-9),),
    )
