"""How Bayesian does a network become while it trains? A prior-fitted network, measured on the way.

A small Transformer reads pairs (k, v) of a world and answers at a query with N(m, s²). It is
trained to predict the next value of new sequences,

    minimize −E log N(y; m(q; X), s²(q; X)) over contexts X of 1, …, 8 pairs,

whose least value is that of the exact predictive: training is approximate Bayesian inference
(Müller et al., arXiv 2112.10510). A table shows its defects and its distance to the truth at each
snapshot.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from finetti.coherence import as_predictor, measure_coherence
from finetti.latent import LinearGaussian
from finetti.training import CheckResult, adamw, train

WORLD = LinearGaussian(key_dimension=2, value_dimension=1, noise_variance=0.25)
LONGEST, WIDTH, LAYERS, HEADS, BATCH, SNAPSHOTS = 8, 32, 2, 2, 64, 5


def normalized(tokens):
    """Tokens of mean square 1."""
    return tokens / jnp.sqrt(jnp.mean(tokens**2, axis=-1, keepdims=True) + 1e-6)


class Block(eqx.Module):
    """x + attention(x), then x + MLP(x), each on normalized tokens; no positions."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    first: jax.Array
    second: jax.Array

    def __call__(self, tokens, mask):
        """Tokens (L + 1, width); ``mask`` (L + 1,) says which may be read."""
        inputs = normalized(tokens)
        q, k, v = (
            (inputs @ weight).reshape(len(tokens), HEADS, -1)
            for weight in (self.query, self.key, self.value)
        )
        scores = jnp.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
        shares = jax.nn.softmax(jnp.where(mask[None, None], scores, -jnp.inf), axis=2)
        tokens = tokens + jnp.einsum("hqk,khd->qhd", shares, v).reshape(tokens.shape)
        return tokens + jax.nn.gelu(normalized(tokens) @ self.first) @ self.second


class Network(eqx.Module):
    """Reads pairs and a query as tokens (k, v, 0) and (q, 0, 1); nothing says where they stand."""

    embedding: jax.Array
    blocks: tuple[Block, ...]
    readout: jax.Array

    def __init__(self, d_k, d_v, key):
        keys = iter(jax.random.split(key, 2 + 5 * LAYERS))

        def matrix(rows, columns):
            return jax.random.normal(next(keys), (rows, columns), jnp.float32) / rows**0.5

        square, wide = (WIDTH, WIDTH), (WIDTH, 4 * WIDTH)
        self.embedding = matrix(d_k + d_v + 1, WIDTH)
        self.blocks = tuple(
            Block(*(matrix(*shape) for shape in (square, square, square, wide, wide[::-1])))
            for _ in range(LAYERS)
        )
        self.readout = 0.1 * matrix(WIDTH, 2 * d_v)

    def __call__(self, keys, values, query, mask=None):
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
        mean, raw = jnp.split(normalized(tokens[-1]) @ self.readout, 2)
        return mean, jax.nn.softplus(raw) + 1e-3


def fit(steps, n_sequences):
    """The network after some steps, as a list of (step, network)."""
    draw = WORLD.sample(np.random.default_rng(0), n_sequences, LONGEST)
    data = tuple(jnp.asarray(each, jnp.float32) for each in (*draw.tokens, draw.query, draw.answer))
    start, batches = jax.random.split(jax.random.key(0))
    network = Network(data[0].shape[2], data[1].shape[2], start)
    first = 0, jax.tree.map(np.array, network)  # a copy: training writes into its parameters

    def stream(data, key, step):
        rows, lengths = jax.random.split(key)
        chosen = jax.random.randint(rows, (BATCH,), 0, n_sequences)
        counts = jax.random.randint(lengths, (BATCH, 1), 1, LONGEST + 1)
        return *(part[chosen] for part in data), jnp.arange(LONGEST)[None] < counts

    def loss(network, batch, key):
        keys, values, query, answer, mask = batch
        mean, variance = jax.vmap(network)(keys, values, query, mask)
        return jnp.mean(0.5 * ((answer - mean) ** 2 / variance + jnp.log(variance)))

    def check(tag, params, step, losses):
        return CheckResult(record=(step, jax.tree.map(np.array, params)))

    run = train(
        loss,
        network,
        data,
        key=batches,
        optimizer=adamw(2e-3, clip=1.0),
        iterations=steps,
        check_every=steps // SNAPSHOTS,
        check=check,
        stream=stream,
    )
    return [first, *run.records]


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=4000, help=f"a multiple of {SNAPSHOTS}")
parser.add_argument("--sequences", type=int, default=100_000)
parser.add_argument("--test-sequences", type=int, default=200)
options = parser.parse_args()
if options.steps < 1 or options.steps % SNAPSHOTS:
    parser.error(f"--steps must be a multiple of {SNAPSHOTS}. Got {options.steps}.")
predictors = []
for step, network in fit(options.steps, options.sequences):
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), network)
    predictors.append(as_predictor(wide, name=f"step {step}", linear=False))
print(measure_coherence(predictors, WORLD, [4], n_sequences=options.test_sequences))
