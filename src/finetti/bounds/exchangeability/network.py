"""The class of networks that paper E bounds: sizes, and two norms of every matrix."""

from dataclasses import dataclass, replace
from typing import Any

from finetti.attention.lipschitz.exchangeability import rbf_constant
from finetti.attention.networks.softmax_constants import bandwidth
from finetti.bounds.base import norm_field
from finetti.bounds.covering.function_class import NormalizationKind, PositionKind, check_word
from finetti.bounds.settings import BoundSettings
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_norm, as_positive, as_real, as_whole


def _check_norms(norms: Any) -> None:
    for name, field in norms.__dataclass_fields__.items():
        if field.metadata and getattr(norms, name) is not None:
            checked = as_norm(getattr(norms, name), name, type(norms).__name__)
            object.__setattr__(norms, name, checked)


@dataclass(frozen=True)
class FullHeadNorms:
    """Bounds on the norms of a head's matrices                            (C.3)–(C.4), zhang2022

    A ``norm`` is the operator norm ω, ‖xW‖_r ≤ ω‖x‖_r for a token x; a ``mixed_norm`` is R, the
    ‖·‖_{r,s} of W^⊤: r-norms of its columns, then their s-norm. For r = 2 these are the largest
    singular value and the Frobenius norm.
    """

    query_norm: float = norm_field(1.0)
    key_norm: float = norm_field(1.0)
    value_norm: float = norm_field(1.0)
    query_mixed_norm: float = norm_field(1.0)
    key_mixed_norm: float = norm_field(1.0)
    value_mixed_norm: float = norm_field(1.0)

    def __post_init__(self) -> None:
        _check_norms(self)

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "FullHeadNorms":
        """Norms by name; a mixed norm that is not given is the operator norm."""
        norms = _by_name(settings, "query", "key", "value")
        settings.check_used("A head of paper E")
        return cls(**norms)


@dataclass(frozen=True)
class FullLayerNorms:
    """Bounds on the norms of a layer X ↦ MHA(X̄) + X̄, X̄ = ReLU(XA^x)A^σ + X   (C.1), zhang2022

    Args:
        heads: one `FullHeadNorms` per head.
        inner_norm, inner_mixed_norm: α^x and R^x of A^x.
        outer_norm, outer_mixed_norm: α^σ and R^σ of A^σ; both None for one layer, ReLU(XA^x).
        feed_forward_skip: whether X is added.
        attention_skip: whether X̄ is added.
    """

    heads: tuple[FullHeadNorms, ...] = (FullHeadNorms(),)
    inner_norm: float = norm_field(1.0)
    outer_norm: float | None = norm_field(1.0)
    inner_mixed_norm: float = norm_field(1.0)
    outer_mixed_norm: float | None = norm_field(1.0)
    feed_forward_skip: bool = True
    attention_skip: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(self.heads))
        if not self.heads:
            raise bad_argument("heads", "FullLayerNorms", "at least one head", "none")
        if (self.outer_norm is None) != (self.outer_mixed_norm is None):
            raise bad_argument(
                "outer_mixed_norm", "FullLayerNorms", "None exactly if outer_norm is", "one of them"
            )
        _check_norms(self)

    @property
    def skips(self) -> bool:
        """Whether anything is added to what a part of the layer gives."""
        return self.feed_forward_skip or self.attention_skip

    @classmethod
    def from_settings(cls, settings: BoundSettings) -> "FullLayerNorms":
        """Norms by name, ``heads`` perhaps as a list, ``skips`` and ``outer`` true or false."""
        heads = tuple(
            FullHeadNorms.from_settings(head) for head in settings.each("heads", settings.n_heads)
        )
        skips = bool(settings.value("skips", True))
        norms = _by_name(settings, "inner", "outer")
        layer = cls(heads, **norms, feed_forward_skip=skips, attention_skip=skips)
        if not settings.value("outer", True):
            layer = replace(layer, outer_norm=None, outer_mixed_norm=None)
        settings.check_used("A layer of paper E")
        return layer


@dataclass(frozen=True)
class FullTransformer:
    """T layers of a feed-forward part and H added heads, with skips           (C.1), zhang2022

    Args:
        dimension: d of a token.
        hidden_dimension: d_σ.
        head_dimension: d_p of queries and keys.
        layers: one `FullLayerNorms` per layer.
        exponent: r of the norms; 1/r + 1/s = 1.
        bandwidth: σ² of softmax(−‖q − k‖²/(2σ²)); None for 2d_p^{1/s} (C.1).
        positions: positional encodings: "none", "fixed" (part of the tokens) or "trained".
        normalization: between the layers: "none", "ball" or "layer_norm".

    >>> network = FullTransformer.uniform(dimension=8, hidden_dimension=16, n_layers=2, n_heads=4)
    >>> network.n_parameters  # 2·(2·8·16 + 4·(2·8·2 + 8·8))
    1280
    """

    dimension: int
    hidden_dimension: int
    head_dimension: int
    layers: tuple[FullLayerNorms, ...]
    exponent: float = 2.0
    bandwidth: float | None = None
    positions: PositionKind = "fixed"
    normalization: NormalizationKind = "none"

    def __post_init__(self) -> None:
        owner = "FullTransformer"
        object.__setattr__(self, "layers", tuple(self.layers))
        for name in ("dimension", "hidden_dimension", "head_dimension"):
            object.__setattr__(self, name, as_whole(getattr(self, name), name, owner))
        if not self.layers:
            raise bad_argument("layers", owner, "at least one layer", "none")
        if not as_real(self.exponent, "exponent", owner, "an exponent in [1, ∞]") >= 1:
            raise bad_argument("exponent", owner, "an exponent in [1, ∞]", self.exponent)
        if self.bandwidth is not None:
            as_positive(self.bandwidth, "bandwidth", owner)
        check_word(self.positions, ("none", "fixed", "trained"), "positions", owner)
        check_word(self.normalization, ("none", "ball", "layer_norm"), "normalization", owner)

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
    def from_settings(cls, settings: BoundSettings) -> "FullTransformer":
        """Sizes and norms by name; ``layers`` and ``heads`` may be lists of such mappings."""
        layers = tuple(
            FullLayerNorms.from_settings(layer)
            for layer in settings.each("layers", settings.n_layers)
        )
        return cls(
            settings.width,
            settings.value("hidden_dimension", settings.width),
            settings.head_width,
            layers,
            exponent=settings.value("exponent", 2.0),
            bandwidth=settings.value("bandwidth"),
            positions=settings.value("positions", "fixed"),
            normalization=settings.value("normalization", "none"),
        )

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

    def rbf_constant(self, sharp: bool) -> float:
        """c of Lemma F.1 for this σ² and r; at least 1, the paper's bound of it, unless sharp."""
        width = self.bandwidth
        if width is None:
            width = bandwidth(self.head_dimension, "C.1", self.exponent)
        constant = rbf_constant(width, self.head_dimension, self.exponent)
        return constant if sharp else max(1.0, constant)


def _by_name(settings: BoundSettings, *matrices: str) -> dict[str, float]:
    norms = {}
    for matrix in matrices:
        norms[f"{matrix}_norm"] = settings.norm(f"{matrix}_norm")
        mixed = f"{matrix}_mixed_norm"
        norms[mixed] = settings.norm(mixed, norms[f"{matrix}_norm"])
    return norms
