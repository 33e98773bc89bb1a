"""Which bits are set in all ways, and to what, when not all 2^T inputs can be run."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.functions.base import all_bits
from finetti.boolean.network.tables import Tables

MAX_SETTING_BITS = 16  # relevant bits whose settings are all run
MIN_MOVING_SHARE = (
    0.05  # a bit moves a head if it does so by this part of what the strongest bit does
)
MAX_MOVING_BITS = 14  # bits that are tried together because they move a head
MAX_SETTINGS_BYTES = 2**27  # of a list of settings


def each_count(n_bits: int, counts: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """One setting per number of ones, 0 to ``n_bits`` or those given: the first bits are 1."""
    counts = np.arange(n_bits + 1) if counts is None else counts
    return (np.arange(n_bits)[None] < counts[:, None]).astype(np.uint8)


def counts_fit(n_bits: int) -> bool:
    """Whether the list of one setting per number of ones is small enough to be made."""
    return (n_bits + 1) * n_bits <= MAX_SETTINGS_BYTES


def choose_settings(
    n_bits: int, limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    """Settings of the relevant bits: all 2^s, or some, with every number of ones among them."""
    if n_bits <= MAX_SETTING_BITS and 2**n_bits <= limit:
        return all_bits(n_bits), f"all 2^{n_bits} settings of the relevant bits"
    counts = np.arange(n_bits + 1)
    if not counts_fit(n_bits):
        counts = np.unique(
            np.linspace(0, n_bits, max(2, MAX_SETTINGS_BYTES // n_bits)).astype(np.int64)
        )
    first = each_count(n_bits, counts)
    n_some = int(np.clip(min(limit, MAX_SETTINGS_BYTES // n_bits), 64, 512))
    some = rng.random((n_some, n_bits)) < rng.random((n_some, 1))  # few ones, many, all between
    settings = np.concatenate([first, first[:, ::-1], rng.permuted(first, axis=1), some])
    which = (
        "every number of ones" if len(counts) == n_bits + 1 else f"{len(counts)} numbers of ones"
    )
    text = f"{len(settings)} of 2^{n_bits} settings of the relevant bits, {which}"
    return settings.astype(np.uint8), text


def influences(tables: Tables) -> NDArray[np.float64]:
    """By how much each bit moves a feature, to first order, from a string of half ones."""
    heads = tables.n_heads
    total = tables.cls[:heads] + (tables.zero + tables.one)[:, :heads].sum(axis=0) / 2
    changes = np.abs(tables.folded(tables.difference))
    weights = changes[:, :heads] * tables.largest
    moved = changes[:, heads:].reshape(len(changes), heads, -1).max(axis=2)
    return (np.maximum(weights, moved) / total).max(axis=1)


def bits_to_try(
    tables: Tables, indices: tuple[int, ...], hints: Iterable[int], limit: int
) -> tuple[int, ...]:
    """The bits of the rule, the hints, and the bits that move a head most, while there is room.

    What a file says of itself is a hint and nothing more; what its numbers do is measured.
    """
    length = len(tables.zero)
    named = list(dict.fromkeys([*indices, *(each for each in hints if 0 <= each < length)]))
    if len(named) <= MAX_MOVING_BITS:
        room = min(MAX_MOVING_BITS, max(0, limit.bit_length() - 1)) - len(named)
    else:
        room = 0 if len(named) <= MAX_SETTING_BITS else MAX_MOVING_BITS
    if room > 0:
        moved = influences(tables)
        least = MIN_MOVING_SHARE * moved.max(initial=0.0)
        moved[named] = 0.0
        strongest = np.argsort(-moved, kind="stable")[:room]
        named += [int(each) for each in strongest if moved[each] > least]
    return tuple(sorted(named))
