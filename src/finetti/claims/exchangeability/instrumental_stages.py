"""Appendix B.1: attention as the first stage of an instrumental regression."""

import numpy as np

from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most
from finetti.core.errors import InputError
from finetti.latent import InstrumentalWorld, Pairs

ROUNDS, ROWS = 40, 2000


def _least_squares(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of y on x, both centered."""
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / (x @ x))


def _is_refused(x: np.ndarray, y: np.ndarray, instruments: np.ndarray) -> bool:
    """Whether the regression says that the instruments are too weak."""
    from finetti.estimators import InstrumentalRegressor

    try:
        InstrumentalRegressor(random_state=0).fit(x[:, None], y, instruments=instruments)
    except InputError as error:
        return "too weak" in str(error)
    return False


@claim(
    id="E-app-B.1-iv",
    title="two stages find the effect that plain regression misses",
    statement="With E[ε|z] = 0 and P(x|z) not constant in z, E[y|z] = E[g(x)|z]: a first stage for "
    "x given z and a second for y recover g, where regression of y on x does not. Without "
    "relevance the regression refuses.",
    formula="E[ϵ|z] = 0 ⇒ E[y|z] = E[g(x)|z]",
    label="Assumption B.1, (B.3)",
    # χ² with 40 degrees of freedom above 98.5 or below 11.8: 5e-6; |mean z| > 5/√40: 6e-7;
    # F ≥ 10 for three of 40 useless pairs of instruments: 10⁴ · e^−30; half of |κ| < 0.12: 1e-9.
    false_alarm=1e-5,
    controls=(Control("x as its own instrument", changes={"own": True}),),
)
def e_app_b_1_iv(context: Context, own: bool = False) -> Evidence:
    """Two-stage estimates of 40 drawn effects in standard errors, and plain ones by their limit.

    Both follow the world's own exact answers: its effects β, and what regression of y on x tends
    to. A useless instrument is drawn apart from everything else.
    """
    from finetti.estimators import InstrumentalRegressor

    rng = context.draws()
    world = InstrumentalWorld()
    draw = world.sample(rng, ROUNDS, ROWS)
    tokens: Pairs = draw.tokens
    effects, limits = draw.latent[:, 0, 0], world.least_squares_limit(draw.latent)[:, 0]
    scores, plain, refused = [], [], 0
    for z, values in zip(tokens.keys, tokens.values, strict=True):
        x, y = values[:, 0], values[:, 1]
        model = InstrumentalRegressor(random_state=0)
        model.fit(x[:, None], y, instruments=x[:, None] if own else z)
        scores.append((model.coef_[0], model.standard_errors_[0]))
        plain.append(_least_squares(x, y))
        refused += _is_refused(x, y, rng.normal(size=z.shape))
    found, errors = np.array(scores).T
    z_scores = (found - effects) / errors
    squares = float(np.sum(z_scores**2))
    away = np.abs(np.array(plain) - effects)
    return Evidence(
        at_most("two stages: Σ z² of 40 effects", squares, 98.5),
        at_least("two stages: the same, not too small", squares, 11.8),
        at_most("two stages: |mean z|·√40", abs(z_scores.mean()) * ROUNDS**0.5, 5.0),
        at_least("plain regression: median distance to g", np.median(away), 0.05),
        at_most("plain regression: median distance to its limit", _median(plain, limits), 0.05),
        at_least(
            "two stages: plain distance / theirs", np.median(away) / _median(found, effects), 3
        ),
        at_least("useless instruments refused, of 40", refused, 38),
    )


def _median(found: object, wanted: np.ndarray) -> float:
    return float(np.median(np.abs(np.asarray(found) - wanted)))
