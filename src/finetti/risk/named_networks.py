"""Networks by name, for commands and studies: those of the house, and a user's own."""

import functools
from collections.abc import Callable
from typing import Any

from finetti.attention import ConditionalMean
from finetti.core.errors import FinettiError, InputError
from finetti.core.keys import random_key
from finetti.kernels import RBF
from finetti.latent import Encoded
from finetti.risk.networks import AttentionNetwork
from finetti.studies.importing import load_object
from finetti.studies.sources import find_source

RIDGE = 0.1
NetworkMaker = Callable[..., Any]


def _conditional_mean(key: Any, token_dimension: int, out_dimension: int) -> AttentionNetwork:
    reader = ConditionalMean(RBF(float(token_dimension) ** 0.5), ridge=RIDGE)
    return AttentionNetwork.init(key, token_dimension, out_dimension, attention=reader)


# A name → what makes the network from a random key and the dimensions of a token and an answer.
networks: dict[str, NetworkMaker] = {
    "attention": AttentionNetwork.init,
    "conditional-mean": _conditional_mean,
}


def network_code(name: str) -> str:
    """What the source of a user's network is known by; empty for those of the house."""
    if name in networks:
        return ""
    if ":" not in name:
        raise InputError(
            f"`network` is {name!r}. Known are {', '.join(networks)}; or give your own as "
            "module:name or ./file.py:name, a function of (key, token_dimension, out_dimension)."
        )
    return find_source(name, ".", argument="network").fingerprint


@functools.lru_cache(maxsize=16)
def _maker(name: str, code: str) -> NetworkMaker:
    if name in networks:
        return networks[name]
    source = find_source(name, ".", argument="network")
    if source.fingerprint != code:
        raise FinettiError(
            f"The source of the network {name} is not the one that the study was planned with. "
            "Start the study again, and leave the file as it is while it runs."
        )
    return load_object(source, "network")


def make_network(name: str, code: str, data: Encoded, seed: Any) -> Any:
    """The network of that name for such data, with weights that follow from the seed.

    >>> from finetti.latent import BetaBernoulli
    >>> world = BetaBernoulli()
    >>> network = make_network("attention", "", world.encode(world.sample(0, 1, 3)), seed=0)
    >>> network.token_dimension
    2
    """
    key = random_key("finetti.risk network", name, seed)
    return _maker(name, code)(key, data.tokens.shape[2], data.target.shape[1])
