"""Sets of tokens with a known target, to try an estimator on."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from finetti.core.arguments import as_norm, as_whole
from finetti.core.errors import bad_argument
from finetti.estimators.ridge import Floats
from finetti.estimators.token_targets import (
    CorrelationPowerTarget,
    KeyPowerTarget,
    TokenTarget,
)

FAMILIES = {"key_power": KeyPowerTarget, "correlation_power": CorrelationPowerTarget}


def random_directions(random: Any, *shape: int) -> Floats:
    """Uniform on the unit sphere, along the last axis; ``random`` is any generator of NumPy."""
    vectors = random.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def make_token_regression(
    n_samples: int = 100,
    n_tokens: int = 17,
    n_features: int = 16,
    *,
    target: Any = "key_power",
    degree: int = 2,
    noise: float = 0.0,
    centered: bool = False,
    return_target: bool = False,
    random_state: Any = None,
) -> tuple[Any, ...]:
    """Sets of random tokens and a target of paper R: ``X`` (n, tokens, d) and ``y`` (n,).

    Tokens are independent and uniform on the unit sphere; token 0 is the query and the others are
    its keys, as the estimators read them.

    Args:
        n_samples, n_tokens, n_features: n, N + 1 (the query included) and d.
        target: "key_power" (f_{1,p} = (1/N)Σ⟨β, x_i⟩^p), "correlation_power" (f_{2,q} =
            (1/N)Σ⟨x₀, x_i⟩^q⟨β, x_i⟩), each with a random β of length 1, or a `TokenTarget`.
        degree: p or q.
        noise: standard deviation of the normal noise on ``y``.
        centered: whether the target's mean over all inputs is taken away; an average of even powers
            has a large one, and a constant already looks good.
        return_target: whether the `TokenTarget` is returned, too.
        random_state: of all draws.

    >>> X, y, target = make_token_regression(50, 5, 3, return_target=True, random_state=0)
    >>> X.shape, y.shape, bool(np.allclose(y, np.mean((X[:, 1:] @ target.direction) ** 2, axis=1)))
    ((50, 5, 3), (50,), True)

    Reference: the target families of fu2023.
    """
    owner = "make_token_regression"
    random = check_random_state(random_state)
    n_samples = as_whole(n_samples, "n_samples", owner)
    n_features = as_whole(n_features, "n_features", owner)
    if as_whole(n_tokens, "n_tokens", owner) < 2:
        raise bad_argument("n_tokens", owner, "at least 2, the query and a key", n_tokens)
    if isinstance(target, str):
        if target not in FAMILIES:
            known = f"a TokenTarget, or one of {', '.join(FAMILIES)}"
            raise bad_argument("target", owner, known, repr(target))
        target = FAMILIES[target](random_directions(random, n_features), degree)
    elif not isinstance(target, TokenTarget):
        raise bad_argument("target", owner, "a TokenTarget or the name of a family", repr(target))
    elif target.n_features != n_features:
        wanted = f"of n_features = {n_features} dimensions"
        raise bad_argument("target", owner, wanted, f"one of {target.n_features}")
    X = random_directions(random, n_samples, n_tokens, n_features)
    y = target(X[:, 0], X[:, 1:]) - (target.mean if centered else 0.0)
    y = y + as_norm(noise, "noise", owner) * random.normal(size=n_samples)
    return (X, y, target) if return_target else (X, y)
