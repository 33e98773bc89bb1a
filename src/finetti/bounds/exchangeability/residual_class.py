"""The class of networks that paper E bounds: sizes, and two norms of every matrix."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from finetti.attention.networks.softmax_constants import bandwidth
from finetti.bounds import description as fields
from finetti.bounds.description import BoundSettings
from finetti.core.arguments import as_norm
from finetti.core.errors import bad_argument
from finetti.core.linalg.norms import frobenius, spectral
from finetti.core.numerics.extremes import smallest_of


def matrix_norms(weights: Any) -> tuple[float, float]:
    """ω and R of a matrix that acts on tokens, x ↦ xW: its spectral and its Frobenius norm.

    ‖xW‖ ≤ ω‖x‖, and ω ≤ R.

    >>> matrix_norms([[3.0, 0.0], [0.0, 4.0]])
    (4.0, 5.0)
    """
    matrix = np.asarray(weights, dtype=np.float64)
    size = float(frobenius(matrix))
    return smallest_of(float(spectral(matrix)), size), size


class FullHeadNorms(fields.Description):
    """Bounds on the norms of a head's matrices                            (C.3)–(C.4), zhang2022

    A ``norm`` is ω, the largest singular value: ‖xW‖ ≤ ω‖x‖ for a token x. A ``mixed_norm`` is R,
    the Frobenius norm. They are the paper's norms at r = s = 2.
    """

    query_norm: float = fields.norm(1.0)
    key_norm: float = fields.norm(1.0)
    value_norm: float = fields.norm(1.0)
    query_mixed_norm: float = fields.norm(1.0, like="query_norm")
    key_mixed_norm: float = fields.norm(1.0, like="key_norm")
    value_mixed_norm: float = fields.norm(1.0, like="value_norm")


def _outer(name: str, default: Any, **metadata: Any) -> Any:
    """A norm of A^σ; None where the setting ``outer`` is false."""

    def check(value: Any, name: str, owner: str) -> float | None:
        return None if value is None else as_norm(value, name, owner)

    def read(settings: BoundSettings, name: str, bound: Any) -> float | None:
        norm = settings.value(name, settings.value("outer_norm"))
        return norm if settings.value("outer", True) else None

    return fields.setting(default, check, read, norm=True, names=(name, "outer"), **metadata)


class FullLayerNorms(fields.Description):
    """Bounds on the norms of a layer X ↦ MHA(X̄) + X̄, X̄ = ReLU(XA^x)A^σ + X   (C.1), zhang2022

    Args:
        heads: one `FullHeadNorms` per head.
        inner_norm, inner_mixed_norm: α^x and R^x of A^x.
        outer_norm, outer_mixed_norm: α^σ and R^σ of A^σ; both None for one layer, ReLU(XA^x).
        feed_forward_skip: whether X is added.
        attention_skip: whether X̄ is added.
    """

    heads: tuple[FullHeadNorms, ...] = fields.parts(FullHeadNorms, "paper E", (FullHeadNorms(),))
    inner_norm: float = fields.norm(1.0)
    outer_norm: float | None = _outer("outer_norm", 1.0)
    inner_mixed_norm: float = fields.norm(1.0, like="inner_norm")
    outer_mixed_norm: float | None = _outer(
        "outer_mixed_norm", fields.UNSET, like=("outer_norm", 1.0)
    )
    feed_forward_skip: bool = fields.flag(True, "skips")
    attention_skip: bool = fields.flag(True, "skips")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.outer_norm is None) != (self.outer_mixed_norm is None):
            raise bad_argument(
                "outer_mixed_norm", "FullLayerNorms", "None exactly if outer_norm is", "one of them"
            )

    @classmethod
    def from_arrays(
        cls,
        *,
        inner: Any,
        query: Any,
        key: Any,
        value: Any,
        outer: Any = None,
        feed_forward_skip: bool = True,
        attention_skip: bool = True,
    ) -> "FullLayerNorms":
        """The norms of given weights.

        Args:
            inner: A^x, shape (d, d_σ).
            query, key: W_q and W_k, shape (H, d, d_p).
            value: W_v, or W_vW_o where there are output weights, shape (H, d, d).
            outer: A^σ, shape (d_σ, d), or None.
            feed_forward_skip, attention_skip: as in the class.
        """
        heads = []
        for matrices in zip(query, key, value, strict=True):
            norms, sizes = zip(*map(matrix_norms, matrices), strict=True)
            heads.append(FullHeadNorms(*norms, *sizes))
        inner_norm, inner_size = matrix_norms(inner)
        outer_norm, outer_size = (None, None) if outer is None else matrix_norms(outer)
        norms = inner_norm, outer_norm, inner_size, outer_size
        return cls(tuple(heads), *norms, feed_forward_skip, attention_skip)

    @property
    def skips(self) -> bool:
        """Whether anything is added to what a part of the layer gives."""
        return self.feed_forward_skip or self.attention_skip


class FullTransformer(fields.Description):
    """T layers of a feed-forward part and H added heads, with skips           (C.1), zhang2022

    Args:
        dimension: d of a token.
        hidden_dimension: d_σ.
        head_dimension: d_p of queries and keys.
        layers: one `FullLayerNorms` per layer.
        bandwidth: σ² of softmax(−‖q − k‖²/(2σ²)); None for 2√d_p (C.1).

    >>> network = FullTransformer.uniform(dimension=8, hidden_dimension=16, n_layers=2, n_heads=4)
    >>> network.n_parameters  # 2·(2·8·16 + 4·(2·8·2 + 8·8))
    1280
    """

    dimension: int = fields.size("width")
    hidden_dimension: int = fields.width_or_own()
    head_dimension: int = fields.size("head_width")
    layers: tuple[FullLayerNorms, ...] = fields.parts(FullLayerNorms, "paper E")
    bandwidth: float | None = fields.number(None)

    @classmethod
    def uniform(
        cls,
        dimension: int,
        hidden_dimension: int | None = None,
        n_layers: int = 1,
        n_heads: int = 1,
        head_dimension: int | None = None,
        norm: float = 1.0,
        mixed_norm: float | None = None,
        **options: Any,
    ) -> "FullTransformer":
        """All operator norms alike, all mixed norms alike; d_p = d/H and d_σ = d by default."""
        mixed = norm if mixed_norm is None else mixed_norm
        head = FullHeadNorms(norm, norm, norm, mixed, mixed, mixed)
        layer = FullLayerNorms((head,) * n_heads, norm, norm, mixed, mixed)
        return cls(
            dimension,
            dimension if hidden_dimension is None else hidden_dimension,
            max(1, dimension // n_heads) if head_dimension is None else head_dimension,
            (layer,) * n_layers,
            **options,
        )

    @classmethod
    def from_arrays(
        cls, layers: Sequence[Mapping[str, Any]], bandwidth: float | None = None
    ) -> "FullTransformer":
        """The smallest class with given weights.

        Args:
            layers: what `FullLayerNorms.from_arrays` takes, by name, for each layer.
            bandwidth: as in the class.

        >>> identity = np.eye(4)
        >>> layer = dict(inner=identity, query=[identity], key=[identity], value=[3 * identity])
        >>> FullTransformer.from_arrays([layer]).layers[0].heads[0].value_mixed_norm
        6.0
        """
        owner = "FullTransformer.from_arrays"
        if not layers:
            raise bad_argument("layers", owner, "at least one layer", "none")
        width, sizes = np.shape(layers[0]["inner"])[0], []
        for layer in layers:
            inner, query, value = (np.shape(layer[name]) for name in ("inner", "query", "value"))
            if {inner[0], query[-2], *value[-2:]} != {width}:
                got = f"inner {inner}, query {query}, value {value}"
                raise bad_argument("layers", owner, f"layers that keep the dimension {width}", got)
            sizes.append((inner[1], query[-1]))
        hidden, head = np.max(sizes, axis=0).tolist()
        norms = tuple(FullLayerNorms.from_arrays(**layer) for layer in layers)
        return cls(width, hidden, head, norms, bandwidth)

    @property
    def n_layers(self) -> int:
        """T."""
        return len(self.layers)

    @property
    def n_heads(self) -> int:
        """H, of the layer that has most."""
        return max(len(layer.heads) for layer in self.layers)

    @property
    def skips(self) -> bool:
        """Whether any layer has a skip connection."""
        return any(layer.skips for layer in self.layers)

    @property
    def largest_dimension(self) -> int:
        """D = max{d, d_σ, d_p}; without d_σ if no layer has A^σ."""
        sizes = [self.dimension, self.head_dimension]
        if any(layer.outer_norm is not None for layer in self.layers):
            sizes.append(self.hidden_dimension)
        return max(sizes)

    @property
    def n_parameters(self) -> int:
        """How many numbers the matrices have: Σ_t (2dd_σ + Σ_i (2dd_p + d²)).

        The paper prints (4 + H)D²T, which is at least this only if d_pH ≤ D (erratum 9).
        """
        d, total = self.dimension, 0
        for layer in self.layers:
            single = layer.outer_norm is None
            total += d * d if single else 2 * d * self.hidden_dimension
            total += len(layer.heads) * (2 * d * self.head_dimension + d * d)
        return total

    @property
    def score_bandwidth(self) -> float:
        """σ², 2√d_p unless it is given; 1/σ² is the constant of Lemma F.1."""
        return bandwidth(self.head_dimension, "C.1") if self.bandwidth is None else self.bandwidth
