"""The paper's learner: its settings, its start and its optimizer."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Integer

from finetti.core.arguments import as_norm, as_positive, as_whole
from finetti.core.errors import bad_argument
from finetti.probe.learners.factored_transformer import factored_logits
from finetti.probe.learners.learner import NetworkLearner
from finetti.probe.learners.textbook_transformer import (
    Params,
    Rates,
    cls_attention,
    draw_masks,
    textbook_logits,
)
from finetti.training.optimizers import adamw

DROPOUTS = {
    "paper": Rates(embedding=0.1, attention=0.1, output=0.1),
    "attention": Rates(embedding=0.0, attention=0.1, output=0.1),
    "none": Rates(embedding=0.0, attention=0.0, output=0.0),
}


@dataclass(frozen=True, kw_only=True)
class TransformerLearner(NetworkLearner):
    """minGPT without a causal mask, which answers at [CLS]: pre-LayerNorm, GELU, residuals.

    x = drop(E_b + P), then per layer x += drop(W_C·heads(LN x)), x += drop(MLP(LN x)), and two
    logits W·LN(x_[CLS]). The T bits stand at positions 0 … T−1 and [CLS] at position T. As in
    minGPT, all Linear maps but the last have a bias, GELU is exact and LayerNorm has ε = 10⁻⁵.

    Args:
        width: d.
        n_heads: H, a divisor of the width.
        n_layers: 1 in the paper; deeper networks take the textbook's route.
        dropout: "paper" (0.1 everywhere), "attention" (0.1 on attention weights and outputs, none
            on embeddings), "none"; a rate given by itself wins.
        embedding_dropout, attention_dropout, output_dropout: the rates.
        learning_rate: of AdamW with β = (0.9, 0.999).
        weight_decay: decoupled, on weights of Linear maps only.
        clip_norm: the gradient is scaled down to this global norm; None: never.
        initial_scale: standard deviation of weights, embeddings and positions at the start.
        iterations: full-batch steps.
        check_every: steps between two validations.

    >>> import jax, jax.numpy as jnp
    >>> learner = TransformerLearner(dropout="none")
    >>> params = learner.init(jax.random.key(0), 20)
    >>> learner.apply(params, jnp.zeros((5, 20), "uint8"), None).shape
    (5, 2)
    """

    width: int = 64
    n_heads: int = 16
    n_layers: int = 1
    dropout: Literal["paper", "attention", "none"] = "paper"
    embedding_dropout: float | None = None
    attention_dropout: float | None = None
    output_dropout: float | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    clip_norm: float | None = 1.0
    initial_scale: float = 0.02

    def __post_init__(self) -> None:
        owner = "TransformerLearner"
        for name in ("width", "n_heads", "n_layers", "iterations", "check_every"):
            object.__setattr__(self, name, as_whole(getattr(self, name), name, owner))
        if self.width % self.n_heads:
            raise bad_argument("n_heads", owner, f"a divisor of width = {self.width}", self.n_heads)
        if self.dropout not in DROPOUTS:
            raise bad_argument("dropout", owner, f"one of {list(DROPOUTS)}", repr(self.dropout))
        for name, preset in DROPOUTS[self.dropout]._asdict().items():
            rate = getattr(self, f"{name}_dropout")
            if rate is None:
                object.__setattr__(self, f"{name}_dropout", preset)
            elif not 0 <= rate < 1:
                raise bad_argument(f"{name}_dropout", owner, "at least 0 and below 1", rate)
        as_positive(self.learning_rate, "learning_rate", owner)
        as_positive(self.initial_scale, "initial_scale", owner)
        as_norm(self.weight_decay, "weight_decay", owner)
        if self.clip_norm is not None:
            as_positive(self.clip_norm, "clip_norm", owner)

    def init(self, key: Any, context_length: int) -> Params:
        """Normal weights, embeddings and positions, zero biases; float32."""
        d = self.width
        shapes = {
            "tokens": (3, d),
            "positions": (context_length + 1, d),
            "layers": [
                {
                    "attention_norm": {"gain": (d,), "bias": (d,)},
                    **{name: _linear(d, d) for name in ("query", "key", "value", "output")},
                    "mlp_norm": {"gain": (d,), "bias": (d,)},
                    "expand": _linear(d, 4 * d),
                    "contract": _linear(4 * d, d),
                }
                for _ in range(self.n_layers)
            ],
            "final_norm": {"gain": (d,), "bias": (d,)},
            "head": {"weight": (d, 2)},
        }
        leaves, tree = jax.tree.flatten_with_path(shapes, is_leaf=lambda x: isinstance(x, tuple))
        keys = jax.random.split(key, len(leaves))
        values = []
        for (path, shape), each in zip(leaves, keys, strict=True):
            name = path[-1].key
            if name == "bias":
                values.append(jnp.zeros(shape, jnp.float32))
            elif name == "gain":
                values.append(jnp.ones(shape, jnp.float32))
            else:
                values.append(self.initial_scale * jax.random.normal(each, shape, jnp.float32))
        return jax.tree.unflatten(tree, values)

    @property
    def rates(self) -> Rates:
        """The three rates of dropout."""
        names = (f"{name}_dropout" for name in Rates._fields)
        return Rates(*(getattr(self, name) for name in names))

    def apply(self, params: Params, bits: Array, key: Any = None) -> Float[Array, "m 2"]:
        """Logits of the labels 0 and 1; without a key there is no dropout."""
        if self.n_layers == 1:
            return factored_logits(params, bits, key, self.rates, self.n_heads)
        masks = None
        if key is not None:
            masks = draw_masks(key, self.rates, bits, params, self.n_heads)
        return textbook_logits(params, bits, masks, self.n_heads)

    def attention(
        self, params: Params, bits: Integer[Array | np.ndarray, "m T"]
    ) -> Float[Array, "m H T+1"]:
        """Return the attention of [CLS] in the last layer, without dropout; on itself last."""
        return cls_attention(params, bits, self.n_heads)

    def optimizer(self) -> optax.GradientTransformation:
        """AdamW after the clip; decay on the weights of Linear maps only, as in minGPT."""
        decay = {"decay": self.weight_decay, "decayed": is_linear_weight}
        return adamw(self.learning_rate, **decay, clip=self.clip_norm)

    def settings(self) -> dict[str, Any]:
        """All fields, with the rates of dropout instead of the preset's name."""
        return {name: value for name, value in super().settings().items() if name != "dropout"}


def is_linear_weight(params: Params) -> Any:
    """True for the weights of Linear maps: not for embeddings, gains or biases."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key == "weight", params)


def _linear(inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {"weight": (inputs, outputs), "bias": (outputs,)}
