"""Dropout masks by a counter hash: cheap enough to be drawn again instead of kept.

`jax.random` takes twenty rounds of Threefry for a word and keeps all words in memory. For dropout a
hash of (key, place) with two multiplications is enough, and as it is elementwise, XLA computes it
inside whatever uses the mask. Integers only, so that every processor draws the same masks.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, UInt32

from finetti.core.errors import bad_argument


def mask_words(key: Key[Array, ""] | UInt32[Array, "2"], stream: int) -> UInt32[Array, "2"]:
    """What a mask is drawn from: the two words of a key and the number of a stream, well mixed.

    Masks of one key and different streams are independent of each other, as are those of different
    keys, even if these differ in one bit.
    """
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    if data.shape != (2,) or data.dtype != jnp.uint32:
        raise bad_argument("key", "mask_words", "a Threefry key or two uint32 words", data)
    first, second = data[0], data[1]
    for constant in (stream, 0x243F6A88, 0x85A308D3):  # the latter two: digits of π
        first = _mix(first + jnp.uint32(constant & 0xFFFFFFFF)) + second
        second = _mix(second ^ first)
    return jnp.stack([first, second])


def keep(
    words: UInt32[Array, "2"],
    shape: Sequence[int],
    rate: float,
    *,
    strides: Sequence[int] | None = None,
    first: UInt32[Array, ""] | int = 0,
) -> Bool[Array, "..."]:
    """Which entries stay: all but a fraction ``rate``, independently.

    Args:
        words: from `mask_words`.
        shape: of the mask.
        rate: probability that an entry is dropped, exact to 2⁻³².
        strides, first: an entry's number is first + Σ index·stride, in C order if not given; so a
            part of a larger mask, or its transpose, can be drawn by itself.
    """
    if strides is None:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if sum(stride * (size - 1) for stride, size in zip(strides, shape, strict=True)) >= 2**32:
        raise bad_argument("shape", "keep", "of at most 2³² entries", tuple(shape))
    # One short range per axis, and the key before all else: a counter of full size would not depend
    # on the step, and XLA would carry it through a training loop in memory.
    x = (words[0] + jnp.asarray(first, jnp.uint32)).reshape((1,) * len(shape))
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        others = [other for other in range(len(shape)) if other != axis]
        steps = jnp.arange(size, dtype=jnp.uint32) * jnp.uint32(stride)
        x = x + jnp.expand_dims(steps, others)
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = ((x ^ (x >> 15)) + words[1]) * jnp.uint32(0x846CA68B)
    x = x ^ (x >> 16)
    return x >= jnp.uint32(round(rate * 2**32))


def dropout_mask(
    key: Key[Array, ""] | UInt32[Array, "2"],
    stream: int,
    shape: Sequence[int],
    rate: float,
    dtype: Any = jnp.float32,
    *,
    strides: Sequence[int] | None = None,
    first: UInt32[Array, ""] | int = 0,
) -> Float[Array, "..."]:
    """What dropout multiplies by: 0 with probability ``rate``, else 1/(1 − rate).

    >>> import jax
    >>> mask = dropout_mask(jax.random.key(0), 0, (100, 1000), 0.1)
    >>> print(f"{float((mask == 0).mean()):.3f} {float(mask.max()):.4f}")
    0.101 1.1111

    Entry n depends on the key, the stream and n only: a longer array begins with a shorter one.
    """
    if not 0 <= rate < 1:
        raise bad_argument("rate", "dropout_mask", "at least 0 and below 1", rate)
    kept = keep(mask_words(key, stream), shape, rate, strides=strides, first=first)
    return jnp.where(kept, 1 / (1 - rate), 0).astype(dtype)


def _mix(x: UInt32[Array, ""]) -> UInt32[Array, ""]:
    """A bijection of 32 bits with little bias (Wellons' `lowbias32`)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
