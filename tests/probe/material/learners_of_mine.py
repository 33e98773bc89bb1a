"""Learners as a user would write them, one of each form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import KNeighborsClassifier


class Mixer(eqx.Module):
    tokens: eqx.nn.Embedding
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, context_length, *, width=8, dropout=0.5, key):
        keys = jax.random.split(key, 3)
        self.tokens = eqx.nn.Embedding(2, 4, key=keys[0])
        self.hidden = eqx.nn.Linear(4 * context_length, width, key=keys[1])
        self.out = eqx.nn.Linear(width, 2, key=keys[2])
        self.dropout = eqx.nn.Dropout(dropout)

    def __call__(self, bits, *, key):
        hidden = jax.nn.gelu(self.hidden(jax.vmap(self.tokens)(bits).ravel()))
        return self.out(self.dropout(hidden, key=key))


class Dense(linen.Module):
    width: int = 8

    @linen.compact
    def __call__(self, bits, train):
        hidden = linen.gelu(linen.Dense(self.width)(bits))
        hidden = linen.Dropout(0.5, deterministic=not train)(hidden)
        return linen.Dense(2)(hidden)

    def optimizer(self, learning_rate=0.01):
        return optax.adam(learning_rate)


dense = Dense(width=4)


class Graph(nnx.Module):
    def __init__(self, context_length, *, width=8, rngs):
        self.hidden = nnx.Linear(context_length, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, bits):
        return self.out(self.dropout(nnx.relu(self.hidden(bits))))


def init(key, context_length):
    return {"weight": 0.1 * jax.random.normal(key, (context_length,)), "bias": jnp.zeros(())}


def apply(params, bits, key):
    if key is not None:
        bits = bits * jax.random.bernoulli(key, 0.9, bits.shape)
    return bits @ params["weight"] + params["bias"]


pair = (init, apply)


neighbors = KNeighborsClassifier(3)


def perceptron(penalty="l1"):
    return SGDClassifier("perceptron", penalty=penalty)
