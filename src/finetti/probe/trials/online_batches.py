"""Fresh batches of a hidden task inside a compiled program, for online learning."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from finetti.probe.tasks.hidden_rule import HiddenRule, HiddenTask


def task_arrays(task: HiddenTask) -> tuple[Any, Any]:
    """The hidden positions and the truth table: what a batch's labels are made from."""
    return np.array(task.indices, np.int32), task.rule.function.table().astype(np.int32)


def batch_stream(rule: HiddenRule, batch_size: int) -> Callable[[Any, Any, Any], Any]:
    """A function of (task arrays, key, step) that draws (bits, labels, weights) of a new batch.

    The distribution is that of ``HiddenTask.sample``; the draws are JAX's, so that many steps are
    one program.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> task = HiddenTask(make_rule("and", 2, 40), (3, 35))
    >>> stream = batch_stream(task.rule, 64)
    >>> bits, labels, weights = stream(task_arrays(task), jax.random.key(0), 0)
    >>> bits.shape, bool((labels == (bits[:, 3] & bits[:, 35])).all())
    ((64, 40), True)
    """
    length, n_words = rule.context_length, -(-rule.context_length // 32)

    def stream(data: Any, key: Any, step: Any) -> tuple[Any, Any, Any]:
        indices, table = data
        key, flips = jax.random.split(key)
        if rule.bit_probability == 0.5:  # 32 bits of every number that is drawn
            words = jax.random.bits(key, (batch_size, n_words, 1), jnp.uint32)
            places = jnp.arange(32, dtype=jnp.uint32)[None, None]
            bits = ((words >> places) & jnp.uint32(1)).reshape(batch_size, -1)[:, :length]
        else:
            bits = jax.random.bernoulli(key, rule.bit_probability, (batch_size, length))
        bits = bits.astype(jnp.uint8)
        hidden = jnp.asarray(bits[:, indices], jnp.int32)
        powers = 2 ** jnp.arange(rule.sparsity - 1, -1, -1, dtype=jnp.int32)  # as in `table()`
        labels = jnp.asarray(table)[hidden @ powers]
        if rule.label_noise:
            flipped = jax.random.bernoulli(flips, rule.label_noise, (batch_size,))
            labels = labels ^ flipped.astype(jnp.int32)
        return bits, labels, jnp.ones(batch_size, jnp.float32)

    return stream
