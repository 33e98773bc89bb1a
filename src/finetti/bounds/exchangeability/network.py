"""The class of networks that paper E bounds: sizes, and two norms of every matrix."""

from typing import Any

from finetti.attention.lipschitz.exchangeability import rbf_constant
from finetti.attention.networks.softmax_constants import bandwidth
from finetti.bounds import description as fields
from finetti.bounds.bound import NetworkShape, NormalizationKind, PositionKind
from finetti.bounds.description import BoundSettings, one_of, real
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_norm, as_whole, largest_of


class FullHeadNorms(fields.Description):
    """Bounds on the norms of a head's matrices                            (C.3)–(C.4), zhang2022

    A ``norm`` is the operator norm ω, ‖xW‖_r ≤ ω‖x‖_r for a token x; a ``mixed_norm`` is R, the
    ‖·‖_{r,s} of W^⊤: r-norms of its columns, then their s-norm. For r = 2 these are the largest
    singular value and the Frobenius norm.
    """

    query_norm: float = fields.norm(1.0)
    key_norm: float = fields.norm(1.0)
    value_norm: float = fields.norm(1.0)
    query_mixed_norm: float = fields.norm(1.0, like="query_norm")
    key_mixed_norm: float = fields.norm(1.0, like="key_norm")
    value_mixed_norm: float = fields.norm(1.0, like="value_norm")


def _as_parts(value: Any, name: str, owner: str) -> tuple[Any, ...]:
    if not tuple(value):
        raise bad_argument(name, owner, f"at least one {name[:-1]}", "none")
    return tuple(value)


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

    heads: tuple[FullHeadNorms, ...] = fields.parts(
        FullHeadNorms, "paper E", _as_parts, (FullHeadNorms(),)
    )
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
        exponent: r of the norms; 1/r + 1/s = 1.
        bandwidth: σ² of softmax(−‖q − k‖²/(2σ²)); None for 2d_p^{1/s} (C.1).
        positions: positional encodings: "none", "fixed" (part of the tokens) or "trained".
        normalization: between the layers: "none", "ball" or "layer_norm".

    >>> network = FullTransformer.uniform(dimension=8, hidden_dimension=16, n_layers=2, n_heads=4)
    >>> network.n_parameters  # 2·(2·8·16 + 4·(2·8·2 + 8·8))
    1280
    """

    dimension: int = fields.size("width")
    hidden_dimension: int = fields.setting(
        check=as_whole, read=lambda settings, name, _: settings.value(name, settings.width)
    )
    head_dimension: int = fields.size("head_width")
    layers: tuple[FullLayerNorms, ...] = fields.parts(FullLayerNorms, "paper E", _as_parts)
    exponent: float = fields.setting(2.0, real("an exponent in [1, ∞]", lambda r: r >= 1))
    bandwidth: float | None = fields.number(None)
    positions: PositionKind = fields.setting("fixed", one_of("none", "fixed", "trained"))
    normalization: NormalizationKind = fields.choice("none", "ball", "layer_norm")

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

    @property
    def shape(self) -> NetworkShape:
        """Its sizes, positions, normalization and skips."""
        said = self.positions, self.normalization, self.skips
        return NetworkShape(self.n_layers, self.n_heads, *said)

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
        return constant if sharp else largest_of(1.0, constant)
