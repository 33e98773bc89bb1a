"""A small Transformer that is trained on a world's prior: how Bayesian does it become?"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from finetti.coherence.measuring import CoherenceTable, measure_coherence
from finetti.coherence.predictors.context_predictor import RegressionPredictor
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.numbers import as_positive, as_whole
from finetti.display.card import Card
from finetti.display.shown import Shown
from finetti.latent.world import LatentModel, Pairs
from finetti.training import CheckResult, adamw, train

SNAPSHOTS = 5
LEAST_VARIANCE = 1e-3


class ContextBlock(eqx.Module):
    """x + attention(x), then x + MLP(x), each on normalized tokens; no positions."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    first: jax.Array
    second: jax.Array
    n_heads: int = eqx.field(static=True)

    def __call__(self, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        """Tokens (L + 1, width); ``mask`` (L + 1,) says which may be read."""
        inputs = _normalized(tokens)
        q, k, v = (
            (inputs @ weight).reshape(len(tokens), self.n_heads, -1)
            for weight in (self.query, self.key, self.value)
        )
        scores = jnp.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
        shares = jax.nn.softmax(jnp.where(mask[None, None], scores, -jnp.inf), axis=2)
        tokens = tokens + jnp.einsum("hqk,khd->qhd", shares, v).reshape(tokens.shape)
        return tokens + jax.nn.gelu(_normalized(tokens) @ self.first) @ self.second


class InContextTransformer(eqx.Module):
    """Reads pairs and a query as tokens (k, v, 0) and (q, 0, 1), and answers with N(m, s²).

    Only the pairs and the query itself are read, and nothing says where they stand: the order of
    the context does not matter.
    """

    embedding: jax.Array
    blocks: tuple[ContextBlock, ...]
    readout: jax.Array

    def __init__(self, d_k: int, d_v: int, width: int, n_layers: int, n_heads: int, key: Any):
        keys = iter(jax.random.split(key, 2 + 5 * n_layers))

        def matrix(rows: int, columns: int) -> jax.Array:
            return jax.random.normal(next(keys), (rows, columns), jnp.float32) / rows**0.5

        self.embedding = matrix(d_k + d_v + 1, width)
        self.blocks = tuple(
            ContextBlock(
                query=matrix(width, width),
                key=matrix(width, width),
                value=matrix(width, width),
                first=matrix(width, 4 * width),
                second=matrix(4 * width, width),
                n_heads=n_heads,
            )
            for _ in range(n_layers)
        )
        self.readout = 0.1 * matrix(width, 2 * d_v)

    def __call__(
        self, keys: ArrayLike, values: ArrayLike, query: ArrayLike, mask: Any = None
    ) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of a new value at the query, (d_v,) each."""
        keys, values, query = map(jnp.asarray, (keys, values, query))
        pairs = jnp.concatenate([keys, values, jnp.zeros_like(keys[:, :1])], axis=1)
        zeros = jnp.zeros((values.shape[1],), query.dtype)
        asked = jnp.concatenate([query, zeros, jnp.ones((1,), query.dtype)])
        tokens = jnp.concatenate([pairs, asked[None]]) @ self.embedding
        counted = jnp.ones(len(keys), bool) if mask is None else mask
        counted = jnp.concatenate([counted, jnp.ones(1, bool)])
        for block in self.blocks:
            tokens = block(tokens, counted)
        mean, raw = jnp.split(_normalized(tokens[-1]) @ self.readout, 2)
        return mean, jax.nn.softplus(raw) + LEAST_VARIANCE


def _normalized(tokens: jax.Array) -> jax.Array:
    return tokens / jnp.sqrt(jnp.mean(tokens**2, axis=-1, keepdims=True) + 1e-6)


def transformer_predictor(
    network: InContextTransformer, name: str = "in-context Transformer"
) -> RegressionPredictor:
    """The network in float64; all networks of one shape share a program."""
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), network)
    found = as_predictor(wide, name=name, linear=False)
    assert isinstance(found, RegressionPredictor)
    return found


@dataclass(frozen=True, eq=False)
class PriorFitted(Shown):
    """A network that was trained on a world, and what it was on the way: (step, network)."""

    world: LatentModel
    network: InContextTransformer
    snapshots: tuple[tuple[int, InContextTransformer], ...]
    losses: Any
    max_length: int

    @property
    def predictor(self) -> RegressionPredictor:
        """The network as trained."""
        return transformer_predictor(self.network)

    def history(self, context_length: int | None = None, **options: Any) -> CoherenceTable:
        """Defects and distance to the truth at every snapshot; options of `measure_coherence`."""
        length = self.max_length // 2 if context_length is None else context_length
        steps = [transformer_predictor(each, f"step {step}") for step, each in self.snapshots]
        return measure_coherence(steps, self.world, [length], **options)

    def __card__(self) -> Card:
        size = sum(leaf.size for leaf in jax.tree.leaves(self.network))
        fields = (
            ("world", self.world.name),
            ("parameters", size),
            ("steps", len(self.losses)),
            ("loss, first and last", f"{self.losses[0]:.3f}, {np.mean(self.losses[-50:]):.3f}"),
        )
        return Card("Prior-fitted network", fields)


def fit_prior(
    world: LatentModel,
    max_length: int = 16,
    *,
    width: int = 32,
    n_layers: int = 2,
    n_heads: int = 2,
    iterations: int = 2000,
    batch_size: int = 64,
    n_sequences: int = 20_000,
    learning_rate: float = 2e-3,
    seed: int = 0,
) -> PriorFitted:
    """Train a small in-context Transformer on sequences of a world, to predict the next value.

    minimize −E log N(y; m(q; X), s²(q; X)) over contexts X of 1, …, ``max_length`` pairs: its least
    value is that of the exact predictive, so that training is approximate Bayesian inference.

    Args:
        world: LinearGaussian or GaussianProcessWorld.
        max_length: the longest context.
        width, n_layers, n_heads: of the network.
        iterations, batch_size, learning_rate: of AdamW.
        n_sequences: sequences that are drawn once, of which every step takes some, cut at random.
        seed: of sequences, weights and batches.

    Reference: Müller et al., Transformers can do Bayesian inference, arXiv 2112.10510.
    """
    owner = "fit_prior"
    given = {"max_length": max_length, "width": width, "n_layers": n_layers, "n_heads": n_heads}
    given |= {"iterations": iterations, "batch_size": batch_size, "n_sequences": n_sequences}
    for name, value in given.items():
        as_whole(value, name, owner)
    if width % n_heads:
        raise bad_argument("width", owner, f"a multiple of n_heads = {n_heads}", width)
    draw = world.sample(np.random.default_rng(seed), n_sequences, max_length)
    if not isinstance(draw.tokens, Pairs):
        raise UnsupportedError(f"{owner} reads pairs. Use LinearGaussian or GaussianProcessWorld.")
    arrays = (*draw.tokens, draw.query, draw.answer)
    data = tuple(jnp.asarray(each, jnp.float32) for each in arrays)
    start, batches = jax.random.split(jax.random.key(seed))
    dimensions = data[0].shape[2], data[1].shape[2]
    network = InContextTransformer(*dimensions, width, n_layers, n_heads, start)
    first = 0, jax.tree.map(np.array, network)  # a copy: training writes into its parameters
    every = max(1, iterations // SNAPSHOTS)

    def stream(data: Any, key: Any, step: Any) -> Any:
        rows, lengths = jax.random.split(key)
        chosen = jax.random.randint(rows, (batch_size,), 0, n_sequences)
        counts = jax.random.randint(lengths, (batch_size, 1), 1, max_length + 1)
        return *(part[chosen] for part in data), jnp.arange(max_length)[None] < counts

    def loss(network: Any, batch: Any, key: Any) -> Any:
        keys, values, query, answer, mask = batch
        mean, variance = jax.vmap(network)(keys, values, query, mask)
        return jnp.mean(0.5 * ((answer - mean) ** 2 / variance + jnp.log(variance)))

    def check(tag: Any, params: Any, step: int, losses: Any) -> CheckResult:
        return CheckResult(record=(step, jax.tree.map(np.array, params)))

    rate = as_positive(learning_rate, "learning_rate", owner)
    run = train(
        loss,
        network,
        data,
        key=batches,
        optimizer=adamw(rate, clip=1.0),
        iterations=iterations,
        check_every=every,
        check=check,
        stream=stream,
    )
    return PriorFitted(world, run.params, (first, *run.records), run.losses, max_length)
