"""Appendix B.2: what several heads read that one does not."""

from typing import Any

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most
from finetti.claims.exchangeability.bayes_attention import attentions
from finetti.claims.measures import Agreement


def _draw_heads(rng: np.random.Generator) -> tuple:
    return *rng.normal(size=(3, 3, 6, 2)), rng.normal(size=(3, 2, 6)), rng.normal(size=(12, 6))


def _sums(query: Any, key: Any, value: Any, output: Any, tokens: Any) -> dict[str, Any]:
    """The sum of heads and their concatenation, each head by itself."""
    found = {}
    for name, module in attentions(ridge=0.3).items():
        # Concatenation with W_o is the sum whose values are W_v^h W_o^h.
        summed = attention.MultiHead(query, key, value @ output, attention=module)(tokens, tokens)
        parts = [module(tokens @ query[h], tokens @ key[h], tokens @ value[h]) for h in range(3)]
        beside = np.concatenate(parts, axis=1) @ np.concatenate(output)
        found[f"{name}: sum − concatenation"] = summed, beside
    return found


e_eq_b_2 = Claim(
    id="E-eq-B.2",
    title="adding heads is concatenating them",
    statement="A sum of heads is the concatenation of narrower heads times an output matrix, for "
    "every attention that is linear in its values.",
    formula="Σ_h attn(q, X W_k^h, X W_v^h) = [head_1 … head_H] W_o",
    measure=Agreement(
        _sums,
        draw=_draw_heads,
        tolerance=1e-10,
        sides="the sum of three heads and their concatenation, with each attention inside",
        trials=(1, 10),
    ),
)


def _grid(side: int) -> np.ndarray:
    """side² tokens that fill the square [−1, 1]²."""
    axis = np.linspace(-1, 1, side)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def _parabola(length: int, bend: float) -> np.ndarray:
    """Tokens (u, bend·u²): the second coordinate is no linear function of the first."""
    u = np.linspace(-1, 1, length)
    return np.stack([u, bend * u**2], axis=1)


@claim(
    id="E-app-B.2-heads",
    title="one full-rank head is blind to the sequence",
    statement="With one head and an invertible W_k, attention tends to a function that is linear "
    "in the query and independent of the sequence. Several heads with W_k of lower rank are "
    "neither.",
    formula="attn(q,K,V) → (W_k^{-1} W_v)^⊤ q",
    controls=(Control("a ridge of 0.1", changes={"ridge": 0.1}),),
)
def e_app_b_2_heads(context: Context, ridge: float = 1e-6) -> Evidence:
    """CME attention with one invertible W_k, and with two narrow ones, over different sequences."""
    reach = np.linspace(-0.9, 0.9, 19)[:, None]
    module = attention.ConditionalMean(kernels.RBF(), ridge=ridge)
    turn, value = np.linalg.qr(context.draws().normal(size=(2, 2, 2)))[0]
    key = turn * np.array([0.8, 1.25])
    one = attention.MultiHead(np.eye(2)[None], key[None], value[None], attention=module)
    query = 0.7 * _grid(9) @ key
    limit = query @ np.linalg.solve(key, value)
    errors = [
        np.abs(np.asarray(one(query, tokens)) - limit).max()
        for tokens in (_grid(3), _grid(20), np.sin(1.3 * _grid(20)) ** 3 + 0.05 * _grid(20))
    ]
    # Two heads of width 1 that read u; their values are the two coordinates of the token.
    coordinates = np.array([np.diag(axis) for axis in np.eye(2)])
    first = np.array([[[1.0], [0.0]]] * 2)
    narrow = attention.MultiHead(np.ones((2, 1, 1)), first, coordinates, attention=module)
    up, down = (np.asarray(narrow(reach, _parabola(60, bend))) for bend in (1.0, -1.0))
    fit = reach @ np.linalg.lstsq(reach, up, rcond=None)[0]
    return Evidence(
        at_most("one head: distance to (W_k⁻¹W_v)ᵀq, 400 tokens", errors[1], 1e-3),
        at_most("one head: the same over another sequence", errors[2], 1e-3),
        at_least("one head: error with 9 tokens / error with 400", errors[0] / errors[1], 10),
        at_least("two narrow heads: distance from linear in q", np.abs(up - fit).max(), 0.1),
        at_least("two narrow heads: change with the sequence", np.abs(up - down).max(), 0.1),
    )
