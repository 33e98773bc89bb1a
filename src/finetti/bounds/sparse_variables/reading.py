"""How the descriptions of paper S are read from settings."""

from typing import Any

from finetti.bounds.base import Bound, same_quantity
from finetti.bounds.settings import BoundSettings
from finetti.core.errors import UnsupportedError

_DEFAULT_READOUT_NORM = 1.0


def check_sizes(
    bound: type[Bound], settings: BoundSettings, *, one_layer: bool, one_head: bool
) -> None:
    """Refuse layers and heads that the theorem does not have; name an upper bound that does."""
    deep, wide = settings.n_layers > 1, settings.n_heads > 1
    failed = []
    if one_layer and deep:
        failed.append(f"a single layer, and here are {settings.n_layers}")
    if one_head and wide:
        failed.append(f"a single head per layer, and here are {settings.n_heads}")
    if failed:
        nearest = ("S-thm-A.17", "S-thm-A.17-gap") if deep else ("S-lemma-A.12", "S-lemma-A.12-gap")
        if deep and wide:
            nearest = ("E-lemma-C.8", "E-thm-C.5")
        raise UnsupportedError(
            f"{bound.name} assumes {'; '.join(failed)}. Nearest bound: "
            f"{same_quantity(bound, *nearest)}."
        )


def read_head_norms(settings: BoundSettings) -> dict[str, float]:
    """Norms of one head. A column is never longer than the spectral norm, hence that default."""
    value_norm = settings.norm("value_norm")
    return {
        "value_norm": value_norm,
        "value_column_norm": settings.norm("value_column_norm", value_norm),
        "score_row_norm": settings.norm("score_row_norm", settings.norm("score_norm")),
        "out_lipschitz": settings.norm("out_lipschitz", settings.norm("activation_lipschitz")),
    }


def read_layer_norms(settings: BoundSettings) -> dict[str, float]:
    """Norms of one layer of a deep network, with the same defaults."""
    spectral = {name: settings.norm(name) for name in ("output_norm", "value_norm", "score_norm")}
    return {
        **spectral,
        "output_column_norm": settings.norm("output_column_norm", spectral["output_norm"]),
        "value_column_norm": settings.norm("value_column_norm", spectral["value_norm"]),
        "score_row_norm": settings.norm("score_row_norm", spectral["score_norm"]),
    }


def common_fields(settings: BoundSettings) -> dict[str, Any]:
    """Sizes, positions and the constant of softmax."""
    position_norm = settings.norm("position_norm", 0.0)
    constant = settings.value("norm_lipschitz")
    return {
        "width": settings.width,
        "head_dimension": settings.head_width,
        "positions": settings.value("positions", "fixed" if position_norm else "none"),
        "position_norm": position_norm,
        "norm_lipschitz": constant,
    }


def attention_fields(settings: BoundSettings, scalar: bool) -> dict[str, Any]:
    """The fields of `AttentionClass`."""
    readout = settings.value("readout_norm", _DEFAULT_READOUT_NORM if scalar else None)
    return {
        **common_fields(settings),
        "query_norm": settings.value("query_norm"),
        "class_token": bool(settings.value("class_token", False)),
        "readout_norm": readout,
        "readout_trained": bool(settings.value("readout_trained", True)),
    }
