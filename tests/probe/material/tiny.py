"""Learners for tests: small, quick, and some of them wrong."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.tree import DecisionTreeClassifier

from finetti.probe import FitLearner, NetworkLearner


@dataclass(frozen=True, kw_only=True)
class Linear(NetworkLearner):
    """Logistic regression by gradients, with dropout on the inputs."""

    iterations: int = 60
    dropout: float = 0.1
    learning_rate: float = 0.3

    def init(self, key, context_length):
        return 0.01 * jax.random.normal(key, (context_length + 1, 2), jnp.float32)

    def apply(self, params, bits, key):
        inputs = bits.astype(jnp.float32)
        if key is not None:
            kept = jax.random.bernoulli(key, 1 - self.dropout, inputs.shape)
            inputs = inputs * kept.astype(jnp.float32)
        return inputs @ params[:-1] + params[-1:]

    def optimizer(self):
        return optax.adam(self.learning_rate)


@dataclass(frozen=True, kw_only=True)
class Looking(Linear):
    """Looks everywhere alike."""

    def attention(self, params, bits):
        return np.full((len(bits), 1, bits.shape[1] + 1), 1 / (bits.shape[1] + 1))


@dataclass(frozen=True, kw_only=True)
class Stuck(Linear):
    """Always 0, whatever it is taught."""

    def apply(self, params, bits, key):
        return 0 * super().apply(params, bits, key) + jnp.array([[1, 0]], jnp.float32)


@dataclass(frozen=True, kw_only=True)
class WrongShape(Linear):
    """One number for each row."""

    def apply(self, params, bits, key):
        return super().apply(params, bits, key)[:, 0]


@dataclass(frozen=True, kw_only=True)
class Raises(Linear):
    """Never runs."""

    def apply(self, params, bits, key):
        raise RuntimeError("no luck")


@dataclass(frozen=True, kw_only=True)
class Diverges(Linear):
    """NaN in training for about every other seed, numbers in all others."""

    def init(self, key, context_length):
        params = super().init(key, context_length)
        return jnp.where(params[0, 0] > 0, jnp.nan, 1.0) * params


@dataclass(frozen=True, kw_only=True)
class Blind(Linear):
    """Finite in training, NaN in validation."""

    def apply(self, params, bits, key):
        logits = super().apply(params, bits, key)
        return logits * jnp.nan if key is None else logits


class _Rule:
    def __init__(self, labels):
        self.labels = labels

    def predict(self, bits):
        return self.labels(bits)


@dataclass(frozen=True, kw_only=True)
class Constant(FitLearner):
    """Always 0."""

    def fit(self, bits, labels, seed):
        return _Rule(lambda rows: np.zeros(len(rows), int))


@dataclass(frozen=True, kw_only=True)
class FitWrong(FitLearner):
    """Answers of a wrong shape."""

    def fit(self, bits, labels, seed):
        return _Rule(lambda rows: np.zeros((len(rows), 1)))


@dataclass(frozen=True, kw_only=True)
class HalfBlindTree(FitLearner):
    """A decision tree that sees the first half of the positions only."""

    def fit(self, bits, labels, seed):
        half = bits.shape[1] // 2
        tree = DecisionTreeClassifier(random_state=0).fit(bits[:, :half], labels)
        return _Rule(lambda rows: tree.predict(rows[:, :half]))
