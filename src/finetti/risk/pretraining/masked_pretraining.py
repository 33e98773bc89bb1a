"""Self-supervised pretraining: predict the masked token, freeze, aggregate for another task."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.attention import LinearMap
from finetti.core.arguments import as_norm, as_whole
from finetti.core.errors import bad_argument
from finetti.core.numerics.random_keys import generator
from finetti.display import Card, Displayable
from finetti.latent import Encoded, FiniteAtoms
from finetti.latent.world import LatentModel
from finetti.risk.minimization import (
    RiskMinimum,
    as_encoded,
    minimize_risk,
    predictions,
)
from finetti.risk.networks.attention_network import AttentionNetwork
from finetti.risk.pretraining.transfer_report import TransferReport, transfer_report
from finetti.risk.theorems.context_table import enumerate_contexts


def _as_it_is(readout: Any) -> Any:
    return readout


@dataclass(frozen=True, eq=False)
class Pretrained(Displayable):
    """A network that predicts the masked token of a world, to be frozen.

    Args:
        network: f̂_PT = agg^PT∘attn(q_θ̂(msk), k_θ̂(X), v_θ̂(X)).
        world: whose tokens it has seen.
        context_length: L − 1, the tokens that it reads.
        minimum: how the training went.
    """

    network: AttentionNetwork
    world: LatentModel
    context_length: int
    minimum: RiskMinimum

    @property
    def frozen(self) -> AttentionNetwork:
        """Its attention alone, which a downstream aggregation reads, (6.2)."""
        return dataclasses.replace(self.network.limited(), aggregation=_as_it_is, limits=None)

    def with_aggregation(self, aggregation: Any) -> AttentionNetwork:
        """agg^DS∘attn with the frozen attention: a downstream function, (6.2)."""
        return dataclasses.replace(self.frozen, aggregation=aggregation)

    def fit_aggregation(self, data: Any, *, ridge: float = 0.0) -> AttentionNetwork:
        """The linear aggregation of least empirical risk, in closed form.

        W = (HᵀH + ridge·I)⁻¹HᵀY, by the pseudo-inverse without ridge; H is the frozen readout.

        Args:
            data: tokens, mask tokens and downstream targets; ``world.encode(draw)``.
            ridge: λ.
        """
        ridge = as_norm(ridge, "ridge", "Pretrained.fit_aggregation")
        data = as_encoded(data, "Pretrained.fit_aggregation")
        readout, targets = predictions(self.frozen, data), data.target
        if ridge:
            root = ridge**0.5 * np.eye(readout.shape[1])
            readout = np.vstack([readout, root])
            targets = np.vstack([targets, np.zeros((len(root), targets.shape[1]))])
        weights = np.linalg.lstsq(readout, targets, rcond=None)[0]
        return self.with_aggregation(LinearMap(np.asarray(weights, np.float32)))

    def __card__(self) -> Card:
        fields = (
            ("world", self.world.name),
            ("task", "predict the masked token"),
            ("tokens read", self.context_length),
            ("empirical risk", self.minimum.best_risk),
        )
        return Card("A pretrained network", fields)


def pretrain(
    network: AttentionNetwork,
    world: LatentModel,
    n_samples: int,
    *,
    context_length: int,
    seed: Any,
    **options: Any,
) -> Pretrained:
    """Mask-token pretraining: min_θ Ê‖x_L − f_θ(x_1, …, x_{L−1}; msk)‖²     (6.1), zhang2022

    Args:
        network: an `AttentionNetwork`, the first start.
        world: draws the sequences; its answer must be the next token.
        n_samples: how many sequences.
        context_length: L − 1, the tokens that are not masked.
        seed: a number or a word, from which the sequences and all starts follow.
        options: of `minimize_risk`: iterations, restarts, learning_rate, polish, ….

    >>> import jax
    >>> world = FiniteAtoms(prior=[0.5, 0.5], emission=[[0.9, 0.1], [0.2, 0.8]])
    >>> network = AttentionNetwork.init(jax.random.key(0), token_dimension=2, out_dimension=2)
    >>> small = {"context_length": 3, "seed": 0, "iterations": 50, "polish": 0}
    >>> pretrained = pretrain(network, world, 200, **small)
    >>> pretrained.network(np.eye(2)[None, [0, 0, 0]], np.zeros((1, 2))).shape
    (1, 2)
    """
    owner = "pretrain"
    if not isinstance(network, AttentionNetwork):
        wanted = "an AttentionNetwork, whose attention can be frozen"
        raise bad_argument("network", owner, wanted, type(network).__name__)
    if not getattr(world, "answers_next_token", True):
        advice = "Leave its `answers` out; they belong to the downstream task."
        raise bad_argument("world", owner, "one that answers the next token", "another", advice)
    count = as_whole(n_samples, "n_samples", owner)
    length = as_whole(context_length, "context_length", owner)
    draw = world.sample(generator("finetti.risk pretraining", seed), count, length)
    minimum = minimize_risk(network, world.encode(draw), seed=seed, **options)
    return Pretrained(minimum.best, world, length, minimum)


def measure_transfer(
    pretrained: Pretrained,
    downstream: FiniteAtoms,
    *,
    mask_token: Any = None,
    features: Any = None,
) -> TransferReport:
    """Both sides of Theorem 6.4 for a pretrained network and a downstream task, exactly.

    Args:
        pretrained: of a world with finitely many atoms and letters.
        downstream: the same world with the answers of the downstream task.
        mask_token: msk_DS, (d,); that of pretraining, 0, unless given.
        features: ψ_DS, E[value at the downstream mask | z], (atoms, p); by default that of the
            next token, as in pretraining.
    """
    world = pretrained.world
    contexts = enumerate_contexts(world, pretrained.context_length)
    assert isinstance(world, FiniteAtoms)
    same = isinstance(downstream, FiniteAtoms) and all(
        np.array_equal(*pair)
        for pair in (
            (downstream.prior, world.prior),
            (downstream.emission.mean, world.emission.mean),
        )
    )
    if not same:
        wanted = "the pretraining world with other answers"
        raise bad_argument("downstream", "measure_transfer", wanted, "another world")
    tokens = world.emission.encode(contexts.tokens)
    asked = np.zeros((len(tokens), tokens.shape[2]))
    at_pretraining = Encoded(tokens, asked, asked)
    if mask_token is not None:
        asked = asked + _mask(mask_token, tokens.shape[2])
    return transfer_report(
        contexts,
        pretraining=world.emission.mean,
        downstream=downstream.answers.mean,
        pretrained=predictions(pretrained.network, at_pretraining),
        readout=predictions(pretrained.frozen, Encoded(tokens, asked, asked)),
        features=features,
    )


def _mask(value: Any, dimension: int) -> np.ndarray:
    array = np.asarray(value, np.float64)
    if array.shape != (dimension,) or not np.isfinite(array).all():
        got = f"shape {array.shape}"
        raise bad_argument("mask_token", "measure_transfer", f"{dimension} finite numbers", got)
    return array
