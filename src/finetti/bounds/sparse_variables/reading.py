"""How the descriptions of paper S are read from settings."""

from typing import Any

from finetti.bounds.base import Bound
from finetti.bounds.settings import Settings
from finetti.core.errors import UnsupportedError

_READOUT = 1.0


def refuse_layers(bound: type[Bound], settings: Settings) -> None:
    """Refuse a deep network where the theorem is about one layer."""
    if settings.n_layers != 1:
        raise UnsupportedError(
            f"{bound.name} assumes a single layer, and here are {settings.n_layers}. Nearest "
            "bound: S-thm-A.17, or S-thm-A.17-gap."
        )


def refuse_heads(bound: type[Bound], settings: Settings, nearest: str) -> None:
    """Refuse several heads per layer where the theorem is about one."""
    if settings.n_heads != 1:
        raise UnsupportedError(
            f"{bound.name} assumes a single head per layer, and here are {settings.n_heads}. "
            f"Nearest bound: {nearest}."
        )


def head_norms(settings: Settings) -> dict[str, float]:
    """Norms of one head. A column is never longer than the spectral norm, hence that default."""
    value_norm = settings.norm("value_norm")
    return {
        "value_norm": value_norm,
        "value_column_norm": settings.norm("value_column_norm", value_norm),
        "score_row_norm": settings.norm("score_row_norm", settings.norm("score_norm")),
        "out_lipschitz": settings.norm("out_lipschitz", settings.norm("activation_lipschitz")),
    }


def layer_norms(settings: Settings) -> dict[str, float]:
    """Norms of one layer of a deep network, with the same defaults."""
    spectral = {name: settings.norm(name) for name in ("output_norm", "value_norm", "score_norm")}
    return {
        **spectral,
        "output_column_norm": settings.norm("output_column_norm", spectral["output_norm"]),
        "value_column_norm": settings.norm("value_column_norm", spectral["value_norm"]),
        "score_row_norm": settings.norm("score_row_norm", spectral["score_norm"]),
    }


def common_fields(settings: Settings) -> dict[str, Any]:
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


def attention_fields(settings: Settings, scalar: bool) -> dict[str, Any]:
    """The fields of `AttentionClass`."""
    readout = settings.value("readout_norm", _READOUT if scalar else None)
    return {
        **common_fields(settings),
        "query_norm": settings.value("query_norm"),
        "class_token": bool(settings.value("class_token", False)),
        "readout_norm": readout,
        "readout_trained": bool(settings.value("readout_trained", True)),
    }
