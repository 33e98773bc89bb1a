"""Networks by name, for commands and studies: those of the house, and a user's own."""

import functools
from collections.abc import Callable
from typing import Any

from finetti.core.errors import FinettiError, InputError
from finetti.core.keys import random_key
from finetti.latent import Encoded
from finetti.studies.source_code import find_source, load_object

NETWORKS = ("attention", "limited-attention", "conditional-mean")
LIMIT = 2.0  # ω and α of limited-attention
RIDGE = 0.1  # λ of conditional-mean


def network_code(name: str) -> str:
    """What the source of a user's network is known by; empty for those of the house."""
    if name in NETWORKS:
        return ""
    if ":" not in name:
        raise InputError(
            f"Unknown network {name!r}. Choose one of {', '.join(NETWORKS)}, or pass your own as "
            "package.module:name or ./file.py:name, a function of (key, token_dimension, "
            "out_dimension)."
        )
    return find_source(name, ".", argument="network").fingerprint


def make_network(name: str, code: str, data: Encoded, seed: Any) -> Any:
    """The network of that name for such data, with weights that follow from the seed.

    Args:
        name: one of `NETWORKS`, ``module:name`` or ``./file.py:name``: a function that is called
            with a JAX key and the dimensions of a token and of an answer.
        code: `network_code` as it was when the study was planned.
        data: whose dimensions the network must have.
        seed: a number or a word.

    >>> from finetti.latent import BetaBernoulli
    >>> world = BetaBernoulli()
    >>> network = make_network("attention", "", world.encode(world.sample(0, 1, 3)), seed=0)
    >>> network.token_dimension
    2
    """
    key = random_key("finetti.risk network", name, seed)
    return _maker(name, code)(key, data.tokens.shape[2], data.target.shape[1])


@functools.lru_cache(maxsize=16)
def _maker(name: str, code: str) -> Callable[[Any, int, int], Any]:
    own = {"conditional-mean": _conditional_mean, "limited-attention": _limited}
    if name in own:
        return own[name]
    if name == "attention":
        from finetti.risk.networks import AttentionNetwork

        return AttentionNetwork.init
    source = find_source(name, ".", argument="network")
    if source.fingerprint != code:
        raise FinettiError(
            f"The source of the network {name} has changed since the study was planned. "
            "Start the study again, and do not edit the file while it runs."
        )
    return load_object(source, "network")


def _limited(key: Any, token_dimension: int, out_dimension: int) -> Any:
    """(5.1) within Assumption 5.1, and ‖f‖ ≤ 1: a class that is fixed before the sample is seen."""
    from finetti.risk.limits import NormLimits
    from finetti.risk.networks import AttentionNetwork

    limits = NormLimits(attention=LIMIT, feed_forward=LIMIT)
    return AttentionNetwork.init(key, token_dimension, out_dimension, limits=limits)


def _conditional_mean(key: Any, token_dimension: int, out_dimension: int) -> Any:
    """(4.8): CME attention, with the kernel of (5.4)."""
    from finetti.attention import ConditionalMean
    from finetti.kernels import RBF
    from finetti.risk.networks import AttentionNetwork

    reader = ConditionalMean(RBF(float(token_dimension) ** 0.5), ridge=RIDGE)
    return AttentionNetwork.init(key, token_dimension, out_dimension, attention=reader)
