"""The deep network of paper E: feed-forward and attention layers with skip connections."""

import dataclasses

import equinox as eqx
import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.attention.modules.smoother import KernelSmoother
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.softmax_constants import bandwidth
from finetti.attention.networks.weight_arrays import as_sequence, as_weights, draw, promote
from finetti.core.errors import bad_argument
from finetti.kernels.rbf import RBF


def rbf_attention(head_dimension: int, rule: str = "C.1", r: float = 2.0) -> KernelSmoother:
    """Softmax over −‖q − k‖²/(2σ²) with σ² = 2d_p^{1/s} (C.1) or d_p (5.4), zhang2022.

    On keys of equal length it is softmax(q·k/σ²). The bandwidth is a leaf of the kernel, which the
    paper keeps fixed.

    >>> round(float(rbf_attention(16, rule="5.4").kernel.lengthscale), 6)
    4.0
    """
    return KernelSmoother(RBF(bandwidth(head_dimension, rule, r) ** 0.5))


class FeedForward(eqx.Module):
    """X̄ = ReLU(XA^x)A^σ + X                                            (C.1), zhang2022

    Args:
        inner: A^x, shape (d, d_σ).
        outer: A^σ, shape (d_σ, d), or None for one layer, nn(x; A) = ReLU(Ax) of (4.7).
        skip: whether X is added.
    """

    inner: Float[Array, "d d_σ"]
    outer: Float[Array, "d_σ d"] | None
    skip: bool = eqx.field(static=True)

    def __init__(self, inner: ArrayLike, outer: ArrayLike | None = None, skip: bool = True):
        owner = "FeedForward"
        self.inner = as_weights(inner, "inner", owner, "(d, d_σ)", (None, None))
        width = self.inner.shape[1]
        if outer is not None:
            outer = as_weights(outer, "outer", owner, "(d_σ, d)", (width, None))
            width = outer.shape[1]
        if skip and width != self.inner.shape[0]:
            requirement = f"False, because dimension {self.inner.shape[0]} goes to {width}"
            raise bad_argument("skip", owner, requirement, skip)
        self.outer, self.skip = outer, bool(skip)

    @property
    def out_dimension(self) -> int:
        """The dimension of X̄."""
        return (self.inner if self.outer is None else self.outer).shape[1]

    def __call__(self, tokens: ArrayLike) -> Float[Array, "*batch T d"]:
        """X̄."""
        tokens = as_sequence(tokens, "tokens", "FeedForward", self.inner.shape[0])
        tokens, inner = promote(tokens, self.inner)
        out = jax.nn.relu(tokens @ inner)
        if self.outer is not None:
            tokens, out, outer = promote(tokens, out, self.outer)
            out = out @ outer
        return out + tokens if self.skip else out


class ResidualLayer(eqx.Module):
    """X ↦ MHA(X̄; W) + X̄ with X̄ = FFN(X; A)                               (C.1), zhang2022

    Args:
        feed_forward: A.
        heads: W: a `MultiHead` whose heads are added.
        skip: whether X̄ is added.
    """

    feed_forward: FeedForward
    heads: MultiHead
    skip: bool = eqx.field(static=True)

    def __init__(self, feed_forward: FeedForward, heads: MultiHead, skip: bool = True):
        given, wanted = feed_forward.out_dimension, heads.key_weights.shape[1]
        if given != wanted or heads.query_weights.shape[1] != wanted:
            requirement = f"for tokens of dimension {given}, as the feed-forward part gives them"
            raise bad_argument("heads", "ResidualLayer", requirement, wanted)
        if skip and self._out_dimension(heads) != given:
            requirement = f"False, because the heads go from dimension {given} to another"
            raise bad_argument("skip", "ResidualLayer", requirement, skip)
        self.feed_forward, self.heads, self.skip = feed_forward, heads, bool(skip)

    @staticmethod
    def _out_dimension(heads: MultiHead) -> int:
        last = heads.value_weights if heads.output_weights is None else heads.output_weights
        return last.shape[2]

    def __call__(
        self, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch T d"]:
        """X_{t+1}."""
        tokens = self.feed_forward(tokens)
        out = self.heads(tokens, tokens, mask)
        tokens, out = promote(tokens, out)
        return out + tokens if self.skip else out


class ResidualTransformer(eqx.Module):
    """X_{t+1} = MHA(X̄_t; W_t) + X̄_t, X̄_t = ReLU(X_tA_t^x)A_t^σ + X_t, t < T   (C.1), zhang2022

    Theorem 5.3 is about one layer of one head without skips and with ``outer=None``. The
    aggregation agg_θ of the paper is a `TokenReadout` of the result.

    Args:
        layers: one `ResidualLayer` per layer.

    >>> import jax
    >>> network = ResidualTransformer.init(
    ...     jax.random.key(0), n_layers=2, n_heads=2, dimension=8, hidden_dimension=16
    ... )
    >>> network(jax.random.normal(jax.random.key(1), (10, 8))).shape
    (10, 8)
    """

    layers: tuple[ResidualLayer, ...]

    def __init__(self, layers: tuple[ResidualLayer, ...] | list[ResidualLayer]):
        self.layers = tuple(layers)
        if not self.layers:
            raise bad_argument("layers", "ResidualTransformer", "at least one layer", "none")

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        n_layers: int,
        n_heads: int,
        dimension: int,
        hidden_dimension: int,
        head_dimension: int | None = None,
        rule: str = "C.1",
    ) -> "ResidualTransformer":
        """Independent N(0, 1/fan-in) weights; RBF-form softmax with the bandwidth of ``rule``."""
        layers = []
        for layer_key in jax.random.split(key, n_layers):
            inner, outer, heads_key = jax.random.split(layer_key, 3)
            feed_forward = FeedForward(
                draw(inner, dimension, hidden_dimension, fan_in=dimension),
                draw(outer, hidden_dimension, dimension, fan_in=hidden_dimension),
            )
            heads = MultiHead.init(heads_key, n_heads, dimension, head_dimension)
            attention = rbf_attention(heads.query_weights.shape[2], rule)
            heads = dataclasses.replace(heads, attention=attention)
            layers.append(ResidualLayer(feed_forward, heads.absorbed()))
        return cls(layers)

    def __call__(
        self, tokens: ArrayLike, mask: ArrayLike | None = None
    ) -> Float[Array, "*batch T d"]:
        """X_T."""
        dimension = self.layers[0].feed_forward.inner.shape[0]
        tokens = as_sequence(tokens, "tokens", "ResidualTransformer", dimension, mask)
        for layer in self.layers:
            tokens = layer(tokens, mask)
        return tokens
