"""[CLS] attention over binary tokens whose embeddings are dropped out, then normalized.

Under dropout on embeddings no two samples share a token. What is left to use: LayerNorm needs one
number per token beside the token itself, and a sample's tokens fit into the cache. So samples are
taken in blocks, masks are drawn again for the gradient instead of kept, and of all the (m, T, d)
arrays none ever exists as a whole: an iteration costs its five thin products."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from finetti.core.errors import bad_argument
from finetti.probe.cls_attention.dropout_masks import keep

# Bytes of a block's tokens: a share of a core's own cache.
BLOCK_BYTES = 400_000
EPSILON = 1e-5


def dropped_attention(
    base: Float[Array, "n d"],
    step: Float[Array, " d"],
    absorbed: Float[Array, "m H d"],
    bits: Float[Array, "m n"],
    words: UInt32[Array, "2 2"],
    rates: tuple[float, float],
) -> tuple[Float[Array, "m H d"], Float[Array, "m H"]]:
    """What a head reads from normalized tokens, Σ_t p̃_t x̂_t, and what its weights sum to, Σ_t p̃_t.

    x_t = D_t ∘ (base_t + bit_t·step), x̂ = (x − mean)/√(variance + ε) over d,
    p = softmax_t(absorbed·x̂_t), p̃ = D'∘p

    Args:
        base: the embedded token where the bit is 0.
        step: what a bit adds to it.
        absorbed: queries in the space of tokens, for each sample.
        bits: zeros and ones.
        words: of `dropout_masks.mask_words`: for D, as (m, n, d), and for D', as (m, n, H).
        rates: of both dropouts.

    With r_t = 1/√(variance + ε) the scores are r_t·x_t·(absorbed − its mean), and Σ_t p̃_t x̂_t is
    Σ_t (p̃_t r_t) x_t minus its mean: tokens need not be centered.
    """
    if base.size * len(bits) > 2**32:
        requirement = f"of at most {2**32 // base.size} samples, whose masks do not repeat"
        raise bad_argument("bits", "dropped_attention", requirement, f"{len(bits)} samples")
    centered = absorbed - jnp.mean(absorbed, axis=2, keepdims=True)
    found: Any = _attend(rates, base, step, centered, bits, words)
    read, total = found
    return read - jnp.mean(read, axis=2, keepdims=True), total


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    rates: tuple[float, float], base: Array, step: Array, absorbed: Array, bits: Array, words: Array
) -> tuple[Array, Array]:
    return _forward(rates, base, step, absorbed, bits, words)[0]


def _forward(
    rates: tuple[float, float], base: Array, step: Array, absorbed: Array, bits: Array, words: Array
) -> Any:
    def block(first: Array, bits: Array, absorbed: Array) -> Any:
        _, x = _tokens(first, bits, base, step, words[0], rates[0])
        _, r = _moments(x)
        scores = jnp.einsum("itd,ihd->ith", x, absorbed) * r[..., None]
        top = jnp.max(scores, axis=1, keepdims=True)
        e = jnp.exp(scores - top)
        den = jnp.sum(e, axis=1)  # (i, H)
        e = e * _multiplier(first, e, words[1], rates[1])
        read = jnp.einsum("iht,itd->ihd", (e * r[..., None]).swapaxes(1, 2), x)
        return read / den[..., None], jnp.sum(e, axis=1) / den, top[:, 0] + jnp.log(den)

    size = _block_size(len(bits), base)
    _, found = _over_blocks(lambda _, *rows: ((), block(*rows)), (), size, bits, absorbed)
    read, total, log_den = found
    return (read, total), (base, step, absorbed, bits, words, read, total, log_den)


def _backward(rates: tuple[float, float], residuals: Any, cotangents: tuple[Array, Array]) -> Any:
    base, step, absorbed, bits, words, read, total, log_den = residuals
    d_read, d_total = cotangents
    n_heads, dimension = absorbed.shape[1:]
    # Σ_t p_t·∂p_t, which the softmax subtracts, is known from the answers alone.
    mean = jnp.sum(read * d_read, axis=2) + total * d_total
    vectors = jnp.concatenate([absorbed, d_read], axis=1)  # (m, 2H, d)

    def block(
        sums: tuple[Array, Array],
        first: Array,
        bits: Array,
        vectors: Array,
        log_den: Array,
        d_total: Array,
        mean: Array,
    ) -> Any:
        kept, x = _tokens(first, bits, base, step, words[0], rates[0])
        average, r = _moments(x)
        products = jnp.einsum("itd,ihd->ith", x, vectors)
        raw, seen = products[..., :n_heads], products[..., n_heads:]  # x·absorbed, x·d_read
        r_ = r[..., None]
        p = jnp.exp(raw * r_ - log_den[:, None])
        multiplier = _multiplier(first, p, words[1], rates[1])
        dropped = p * multiplier
        d_scores = p * (multiplier * (seen * r_ + d_total[:, None]) - mean[:, None])
        d_r = jnp.sum(d_scores * raw + dropped * seen, axis=2)
        weights = jnp.concatenate([d_scores * r_, dropped * r_], axis=2)  # (i, t, 2H)
        d_absorbed = jnp.einsum("iht,itd->ihd", weights[..., :n_heads].swapaxes(1, 2), x)
        d_x = jnp.einsum("ith,ihd->itd", weights, vectors)
        d_x = d_x - (r**3 * d_r / dimension)[..., None] * (x - average[..., None])
        d_token = jnp.where(kept, d_x * (1 / (1 - rates[0])), 0)
        d_base, d_step = sums
        d_step = d_step + jnp.einsum("it,itd->d", bits, d_token)
        return (d_base + jnp.sum(d_token, axis=0), d_step), d_absorbed

    size = _block_size(len(bits), base)
    start = jnp.zeros_like(base), jnp.zeros_like(step)
    rows = bits, vectors, log_den, d_total, mean
    (d_base, d_step), d_absorbed = _over_blocks(block, start, size, *rows)
    return d_base, d_step, d_absorbed, jnp.zeros_like(bits), None


_attend.defvjp(_forward, _backward)


def _tokens(
    first: Array, bits: Array, base: Array, step: Array, words: Array, rate: float
) -> tuple[Array, Array]:
    """Which entries of a block's tokens stay, and the tokens, (i, n, d)."""
    shape = (*bits.shape, base.shape[1])
    kept = keep(words, shape, rate, first=first * jnp.uint32(base.size))
    tokens = base[None] + bits[..., None] * step[None, None]
    return kept, jnp.where(kept, tokens * (1 / (1 - rate)), 0)


def _multiplier(first: Array, like: Array, words: Array, rate: float) -> Array:
    """What dropout multiplies the weights of a block by, (i, n, H)."""
    if rate == 0:
        return jnp.ones_like(like)
    kept = keep(words, like.shape, rate, first=first * jnp.uint32(like[0].size))
    return jnp.where(kept, 1 / (1 - rate), 0).astype(like.dtype)


def _moments(x: Float[Array, "i n d"]) -> tuple[Array, Array]:
    """The mean of each token and 1/√(variance + ε)."""
    mean = jnp.mean(x, axis=2)
    centered = x - mean[..., None]
    return mean, jax.lax.rsqrt(jnp.mean(centered * centered, axis=2) + EPSILON)


def _block_size(samples: int, base: Array) -> int:
    """The largest divisor of the number of samples whose tokens fit into a block."""
    most = max(1, BLOCK_BYTES // (base.size * base.dtype.itemsize))
    return max(size for size in range(1, min(samples, most) + 1) if samples % size == 0)


def _over_blocks(block: Any, carry: Any, size: int, *rows: Array) -> Any:
    """Scan ``block(carry, first, *rows)`` over blocks of samples; its second answers are rows."""
    samples = len(rows[0])
    firsts = jnp.arange(0, samples, size, dtype=jnp.uint32)
    pieces = [row.reshape(len(firsts), size, *row.shape[1:]) for row in rows]
    carry, found = jax.lax.scan(lambda sums, xs: block(sums, *xs), carry, (firsts, *pieces))
    return carry, jax.tree.map(lambda a: a.reshape(samples, *a.shape[2:]), found)
