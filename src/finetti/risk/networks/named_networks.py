"""Networks by name, for commands and studies: those of the package, and a user's own."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from finetti.core.numerics.random_keys import random_key
from finetti.latent import Encoded

_HERE = "finetti.risk.networks.named_networks"
NETWORKS: Mapping[str, str] = {
    "attention": f"{_HERE}:plain_attention",
    "limited-attention": f"{_HERE}:limited_attention",
    "conditional-mean": f"{_HERE}:conditional_mean",
}
LIMIT = 2.0  # ω and α of limited-attention
RIDGE = 0.1  # λ of conditional-mean


def network_code(name: str, example: Callable[[], Encoded]) -> str:
    """The fingerprint of a user's network, empty for those of the package.

    A user's network is loaded and traced for data like the ``example``: what cannot be trained is
    refused. Those of the package are not, and a plan does without JAX.
    """
    if name in NETWORKS:
        return ""
    from finetti.models.model_loading import find_model
    from finetti.risk.networks.user_network import DataShapes

    code = find_model(name, NETWORKS, "network").fingerprint
    _loaded(name, code, DataShapes.of(example()))
    return code


def make_network(name: str, code: str, data: Encoded, seed: Any) -> Any:
    """The network of that name for such data, with weights that follow from the seed.

    Args:
        name: one of `NETWORKS`, ``module:name`` or ``./file.py:name``: a class or factory of an
            Equinox, Flax or PyTorch module or of a pair (init, apply), which is called with those
            of ``key``, ``token_dimension``, ``out_dimension`` and ``context_length`` that it names.
        code: `network_code` as it was when the study was planned.
        data: whose dimensions the network must have.
        seed: a number or a word.

    >>> from finetti.latent import BetaBernoulli
    >>> world = BetaBernoulli()
    >>> network = make_network("attention", "", world.encode(world.sample(0, 1, 3)), seed=0)
    >>> network.token_dimension
    2
    """
    from finetti.models.model_loading import changed, find_model
    from finetti.risk.networks.user_network import DataShapes, start_network

    source = find_model(name, NETWORKS, "network")
    if source.fingerprint != code:
        raise changed(name, "network")
    shapes = DataShapes.of(data)
    model = _loaded(name, code, shapes)
    return start_network(model, shapes, random_key("finetti.risk network", name, seed))


@functools.lru_cache(maxsize=16)
def _loaded(name: str, code: str, shapes: tuple[int, int, int]) -> Any:
    """Kept, with all that was compiled for it."""
    from finetti.models.model_loading import find_model, load_model
    from finetti.risk.networks.user_network import DataShapes, check_network

    like = DataShapes(*shapes)
    source = find_model(name, NETWORKS, "network")
    model = load_model(source, name=name, purpose=like.purpose, example=like.example)
    return model if name in NETWORKS else check_network(model, like)


def plain_attention(key: Any, token_dimension: int, out_dimension: int) -> Any:
    """(5.1): softmax attention in the RBF form (5.4)."""
    from finetti.risk.networks.attention_network import AttentionNetwork

    return AttentionNetwork.init(key, token_dimension, out_dimension)


def limited_attention(key: Any, token_dimension: int, out_dimension: int) -> Any:
    """(5.1) within Assumption 5.1, and ‖f‖ ≤ 1: a class that is fixed before the sample is seen."""
    from finetti.risk.networks.attention_network import AttentionNetwork
    from finetti.risk.networks.weight_limits import NormLimits

    limits = NormLimits(attention=LIMIT, feed_forward=LIMIT)
    return AttentionNetwork.init(key, token_dimension, out_dimension, limits=limits)


def conditional_mean(key: Any, token_dimension: int, out_dimension: int) -> Any:
    """(4.8): CME attention, with the kernel of (5.4)."""
    from finetti.attention import ConditionalMean
    from finetti.kernels import RBF
    from finetti.risk.networks.attention_network import AttentionNetwork

    reader = ConditionalMean(RBF(float(token_dimension) ** 0.5), ridge=RIDGE)
    return AttentionNetwork.init(key, token_dimension, out_dimension, attention=reader)
