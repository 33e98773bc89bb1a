"""The empirical conditional mean embedding is attention with the ridge L·λ."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, close


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
        module = (
            attention.ConditionalMean(kernel, ridge_per_token=ridge)
            if per_token
            else attention.ConditionalMean(kernel, ridge=ridge)
        )
        output = np.asarray(module(query, keys, values))
        worst = max(worst, np.abs(output - embedding.T).max() / np.abs(embedding).max())
    return worst


def _quadratic(tokens: np.ndarray) -> np.ndarray:
    """φ with φ(x)·φ(y) = (x·y + 1)²: all products of two coordinates of (x, 1)."""
    extended = np.hstack([tokens, np.ones((len(tokens), 1))])
    return np.einsum("li,lj->lij", extended, extended).reshape(len(tokens), -1)


def run(context: Context) -> Evidence:
    """Attention with `ridge_per_token` against the operators of (A.3) in feature space."""
    error = embedding_error(context, CLAIM.id, per_token=True)
    return Evidence(
        (close("attention with ridge Lλ − empirical embedding (relative)", error, 1e-9),)
    )


CLAIM = Claim(
    id="E-eq-A.3",
    title="the empirical conditional mean embedding is attention with ridge L·λ",
    statement="Ĉ_VK(Ĉ_KK + λI)⁻¹k(q,·) = attn_CME(q, K, V) with the ridge L·λ.",
    paper="E",
    label="(A.3)",
    run=run,
)
