"""How blocks are put together, which names and shapes cannot tell: by table and config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finetti.audit.layouts.layout_table import Layout

# As config.json names them; each of ours is no larger than its argument.
ACTIVATIONS = {
    **{name: name for name in ("gelu", "silu", "relu", "tanh", "gelu_tanh")},
    "gelu_python": "gelu",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
    # x/(1 + e^−ax) has the slope of silu at ax.
    **dict.fromkeys(("swish", "quick_gelu"), "silu"),
}
TABLE = "a table of your own (--map; layouts= in Python)"
_STRETCHED = ("yarn", "longrope")  # rotations that also multiply the scores


@dataclass(frozen=True)
class BlockDesign:
    """How blocks are put together.

    ``order`` is that of norms and residuals, ``normalization`` what norms are called (empty: not
    known), ``epsilon`` stands under the root of a norm. What was ``assumed`` since nothing beside
    the weights says it, and why there is no chain (``refused``).
    """

    order: str = ""
    activation: str = ""
    epsilon: float | None = None
    rotary: bool = False
    assumed: tuple[str, ...] = ()
    refused: str = ""
    normalization: str = ""


def read_design(
    layout: Layout, config: Mapping[str, Any], unread: Sequence[str] = ()
) -> BlockDesign:
    """By the table of names, and before it by ``config.json``; ``unread`` lie inside the layers.

    >>> from finetti.audit.layouts.layout_table import read_layouts
    >>> found = read_design(read_layouts()["gpt2"], {"activation_function": "gelu_new"})
    >>> found.order, found.activation, found.epsilon, len(found.assumed)
    ('pre', 'gelu_tanh', 1e-05, 1)
    """
    assumed, problems = [], []

    def said(what: str, default: Any, *names: str) -> Any:
        for name in names:
            if config.get(name) is not None:
                return config[name]
        if default and not layout.own:
            assumed.append(f"{what} {default}, as in the family {layout.name}")
        elif not default:
            key = what.split()[0]
            problems.append(f"nothing says the {what}: give `{key}` in {TABLE}")
        return default

    word = said(
        "activation", layout.activation, "hidden_act", "activation_function", "hidden_activation"
    )
    names = ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps")
    epsilon = said("epsilon of the norms", layout.epsilon, *names)
    order = layout.order
    if not order:
        problems.append(f"nothing says whether norms come before or after: give `order` in {TABLE}")
    elif not layout.model_types and not layout.own:  # of a library, which has both
        assumed.append(f"{order}-norm blocks, as {layout.name} makes them by default")
    activation = ACTIVATIONS.get(word, "") if isinstance(word, str) else ""
    if word and not activation:
        problems.append(f"the slope of the activation {str(word)[:40]!r} is not known")
    if isinstance(epsilon, bool) or not isinstance(epsilon, float) or not 0 < epsilon < 1:
        if epsilon is not None:
            problems.append(
                f"the epsilon {str(epsilon)[:40]!r} of its norms is not between 0 and 1"
            )
        epsilon = None
    problems += [*_unknown_family(layout, config), *_unlike(config)]
    if unread:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        problems.append(
            f"{unread[0][:80]}{more} inside its layers were not read, and may change what they "
            "compute: give a `layouts` file (--map) with them, or under `ignored` what is unused"
        )
    return BlockDesign(
        order,
        activation,
        epsilon,
        layout.rotary,
        tuple(assumed),
        "; ".join(problems),
        layout.normalization or ("RMSNorm" if config.get("rms_norm_eps") is not None else ""),
    )


def _unknown_family(layout: Layout, config: Mapping[str, Any]) -> list[str]:
    """Another family may use the same names for other blocks: Gemma's norms multiply by 1 + w."""
    kind = config.get("model_type")
    # Who writes a map and names no families means the checkpoint at hand.
    if kind is None or kind in layout.model_types or (layout.own and not layout.model_types):
        return []
    return [
        f"the layout {layout.name} was not written for the model_type {str(kind)[:40]!r}, whose "
        "blocks may differ: if they do not, give a `layouts` file (--map) with it in `model_types`"
    ]


def _unlike(config: Mapping[str, Any]) -> list[str]:
    """Return what config.json says of attention that the chain does not have."""
    found = []
    positions = config.get("position_embedding_type", "absolute")
    if positions not in ("absolute", None):
        found.append(f"positions of the type {str(positions)[:40]!r} are part of its scores")
    scaling = config.get("rope_scaling")
    if isinstance(scaling, Mapping):
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind in _STRETCHED:
            found.append(f"rotary positions of the type {kind!r} multiply the scores")
    if config.get("scale_attn_weights") is False or config.get("scale_attn_by_inverse_layer_idx"):
        found.append("its scores are not divided by √d_k")
    return found
