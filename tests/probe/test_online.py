"""Batches drawn inside a program have the distribution of those drawn outside of it."""

import jax
import numpy as np
import pytest

from finetti.probe.tasks.hidden_rule import make_rule
from finetti.probe.trials.online_batches import batch_stream, task_arrays

BATCH = 4000


@pytest.mark.parametrize(
    ("name", "sparsity", "length", "chances"),
    [
        ("parity", 3, 33, {}),
        ("threshold:2", 3, 20, {"bit_probability": 0.3, "label_noise": 0.2}),
        ("x0 & ~x1", 2, 40, {}),
    ],
)
def test_bits_and_labels_are_those_of_the_task(name, sparsity, length, chances):
    rule = make_rule(name, sparsity, length, **chances)
    task = rule.draw(np.random.default_rng(3))
    stream = jax.jit(batch_stream(rule, BATCH))
    bits, labels, weights = map(np.asarray, stream(task_arrays(task), jax.random.key(0), 0))
    assert bits.shape == (BATCH, length)
    assert (weights == 1).all()
    share = bits.mean(axis=0)
    spread = np.sqrt(rule.bit_probability * (1 - rule.bit_probability) / BATCH)
    assert abs(share - rule.bit_probability).max() < 5 * spread
    pairs = np.corrcoef(bits.T) - np.eye(length)
    assert abs(pairs).max() < 6 / np.sqrt(BATCH)
    flipped = (task.labels(bits) != labels).mean()
    noise = rule.label_noise
    assert abs(flipped - noise) <= 5 * np.sqrt(noise * (1 - noise) / BATCH)


def test_another_key_is_another_batch():
    rule = make_rule("and", 2, 12)
    task = rule.draw(np.random.default_rng(0))
    stream = batch_stream(rule, 50)
    one, same, other = (stream(task_arrays(task), jax.random.key(k), 0)[0] for k in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert 0.4 < np.mean(np.asarray(one) != np.asarray(other)) < 0.6
