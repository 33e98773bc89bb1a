"""One full-rank head cannot see the sequence; several narrow ones can."""

import numpy as np

from finetti import kernels
from finetti.claims.claim import (
    Claim,
    Context,
    Control,
    Evidence,
    Measurement,
    at_least,
    at_most,
    close,
)

RIDGE = 1e-6
REACH = np.linspace(-0.9, 0.9, 19)[:, None]


def grid(side: int) -> np.ndarray:
    """side² tokens that fill the square [−1, 1]²."""
    axis = np.linspace(-1, 1, side)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def parabola(length: int, bend: float) -> np.ndarray:
    """Tokens (u, bend·u²): the second coordinate is no linear function of the first."""
    u = np.linspace(-1, 1, length)
    return np.stack([u, bend * u**2], axis=1)


def nonlinearity(inputs: np.ndarray, outputs: np.ndarray) -> float:
    """The largest distance of ``outputs`` from their best linear function of ``inputs``."""
    fit = np.linalg.lstsq(inputs, outputs, rcond=None)[0]
    return float(np.abs(outputs - inputs @ fit).max())


def by_hand(query: np.ndarray, keys: np.ndarray, values: np.ndarray, ridge: float) -> np.ndarray:
    """V^⊤(K + λI)⁻¹K(K, q) with the RBF kernel, in plain NumPy."""

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-np.sum((x[:, None] - y[None]) ** 2, axis=-1) / 2)

    gram = kernel(keys, keys) + ridge * np.eye(len(keys))
    return kernel(query, keys) @ np.linalg.solve(gram, values)


def full_head(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """W_q, W_k and W_v of one head, all invertible."""
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    key, value = turn * np.array([0.8, 1.25]), np.linalg.qr(rng.normal(size=(2, 2)))[0]
    return np.eye(2)[None], key[None], value[None]


def narrow_heads() -> tuple[np.ndarray, ...]:
    """Two heads of width 1 that read u; their values are the two coordinates of the token."""
    keys, values = [[[1.0], [0.0]]] * 2, [np.diag([1.0, 0.0]), np.diag([0.0, 1.0])]
    return np.ones((2, 1, 1)), np.array(keys), np.array(values)


def recomputed(context: Context, factor: float = 1.0) -> tuple[Measurement, ...]:
    """Both kinds of heads with the ridge 0.1, times ``factor``, against plain NumPy with 0.1."""
    from finetti.attention import ConditionalMean
    from finetti.attention.networks.multihead import MultiHead

    module = ConditionalMean(kernels.RBF(), ridge=factor * 0.1)
    full, few, tokens = full_head(context.generator(CLAIM.id)), grid(3), parabola(60, 1.0)
    query, reach = 0.7 * grid(9) @ full[1][0], REACH
    one = MultiHead(*full, attention=module)(query, few)
    two = MultiHead(*narrow_heads(), attention=module)(reach, tokens)
    one_again = by_hand(query, few @ full[1][0], few @ full[2][0], 0.1)
    two_again = by_hand(reach, tokens[:, :1], tokens, 0.1)
    return (
        close("one head recomputed, λ = 0.1", float(np.abs(one - one_again).max()), 1e-12),
        close("two narrow heads, the same", float(np.abs(two - two_again).max()), 1e-12),
    )


def run(context: Context) -> Evidence:
    """CME attention with one invertible W_k, and with two narrow ones, over different sequences.

    The limits need a small ridge and cannot see how small; at a larger one the answers of both are
    recomputed.
    """
    from finetti.attention import ConditionalMean
    from finetti.attention.networks.multihead import MultiHead

    module = ConditionalMean(kernels.RBF(), ridge=RIDGE)
    weights = full_head(context.generator(CLAIM.id))
    one = MultiHead(*weights, attention=module)
    query = 0.7 * grid(9) @ weights[1][0]
    limit = query @ np.linalg.solve(weights[1][0], weights[2][0])
    errors = [
        float(np.abs(np.asarray(one(query, tokens)) - limit).max())
        for tokens in (grid(3), grid(20), np.sin(1.3 * grid(20)) ** 3 + 0.05 * grid(20))
    ]
    narrow = MultiHead(*narrow_heads(), attention=module)
    up, down = (np.asarray(narrow(REACH, parabola(60, bend))) for bend in (1.0, -1.0))
    return Evidence(
        (
            at_most("one head: distance to (W_k⁻¹W_v)ᵀq, 400 tokens", errors[1], 1e-3),
            at_most("one head: the same over another sequence", errors[2], 1e-3),
            at_least("one head: error with 9 tokens / error with 400", errors[0] / errors[1], 10),
            at_least("two narrow heads: distance from linear in q", nonlinearity(REACH, up), 0.1),
            at_least(
                "two narrow heads: change with the sequence", float(np.abs(up - down).max()), 0.1
            ),
            *recomputed(context),
        )
    )


def _larger_ridge(context: Context) -> Evidence:
    return Evidence(recomputed(context, 1.2))


CLAIM = Claim(
    id="E-app-B.2-heads",
    title="one full-rank head is blind to the sequence",
    statement="With one head and an invertible W_k, attention tends to (W_k⁻¹W_v)ᵀq: linear in q "
    "and independent of X. Several heads with W_k of lower rank are neither.",
    paper="E",
    label="Appendix B.2",
    run=run,
    controls=(Control("a ridge 20 % too large", _larger_ridge),),
)
