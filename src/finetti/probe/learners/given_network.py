"""Networks of the user's own, whatever library they are written with."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from finetti.core.errors import InputError, bad_argument
from finetti.core.numbers import as_norm, as_positive, as_whole
from finetti.probe.learners.base import NetworkLearner
from finetti.probe.learners.recipe import Recipe, parameters
from finetti.training.optimizers import adamw

Inputs = Literal["integers", "floats"]
OPTIMIZER_OPTIONS = ("learning_rate", "weight_decay", "clip_norm")
DEFAULTS = (1e-3, 1e-4, 1.0)  # Appendix C, edelman2022, and minGPT's clip
LOGITS = "logits (m, 2) of labels 0 and 1, or one (m, 1) or (m,) of label 1"


@dataclass(frozen=True, kw_only=True)
class GivenNetwork(NetworkLearner):
    """A network from a recipe; it is trained as the paper trains its own, unless it says otherwise.

    Args:
        reference: the name of its class, factory or pair of functions.
        options: of the factory.
        inputs: the bits arrive as int32 ("integers", for embeddings) or float32 ("floats").
        learning_rate: of AdamW.
        weight_decay: decoupled, of arrays with two axes or more, embeddings excepted.
        clip_norm: of the gradient; 0 for none. These three are None where the network brings
            an optimizer that does not take them.
    """

    reference: str
    options: dict[str, Any]
    inputs: Inputs = "integers"
    learning_rate: float | None = None
    weight_decay: float | None = None
    clip_norm: float | None = None
    recipe: Recipe = field(repr=False)
    own_optimizer: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        owner = self.reference
        if self.inputs not in ("integers", "floats"):
            raise bad_argument("inputs", owner, '"integers" or "floats"', repr(self.inputs))
        checks = {"learning_rate": as_positive, "weight_decay": as_norm, "clip_norm": as_norm}
        checks |= {"iterations": as_whole, "check_every": as_whole}
        for name, check in checks.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(value, name, owner))

    @abstractmethod
    def logits(self, params: Any, bits: Array, key: Any) -> Any:
        """What the network says of bits (m, T), of the dtype that it asked for."""

    @final
    def apply(self, params: Any, bits: Any, key: Any) -> Any:
        """The logits (m, 2)."""
        bits = jnp.asarray(bits, jnp.int32 if self.inputs == "integers" else jnp.float32)
        logits = self.logits(params, bits, key)
        rows, shape = len(bits), getattr(logits, "shape", None)
        if shape not in ((rows, 2), (rows, 1), (rows,)) or not _is_real(logits):
            got = f"{logits.dtype.name}{list(shape)}" if shape is not None else repr(logits)
            raise InputError(
                f"The learner {self.reference} must return {LOGITS}, real numbers. For bits "
                f"{list(bits.shape)} it returned {got}."
            )
        if shape == (rows, 2):
            return logits
        one = logits.reshape(rows)
        return jnp.stack([jnp.zeros_like(one), one], axis=1)

    def optimizer(self) -> optax.GradientTransformation:
        """That of the network, or AdamW as in the paper."""
        own = self.own_optimizer
        if own is None:
            return default_optimizer(self.learning_rate, self.weight_decay, self.clip_norm)
        if not isinstance(own, optax.GradientTransformation):
            takes = parameters(own)[0]
            chosen = {name: getattr(self, name) for name in (*OPTIMIZER_OPTIONS, "iterations")}
            own = own(**{k: v for k, v in chosen.items() if k in takes and v is not None})
        if not isinstance(own, optax.GradientTransformation):
            raise InputError(
                f"The `optimizer` of {self.reference} must be an Optax gradient transformation, or "
                f"a function that returns one. Got {type(own).__name__} instead."
            )
        return own


def optimizer_options(reference: str, own: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with those of the optimizer filled in; refuses what would have no effect."""
    if own is None:
        return {**dict(zip(OPTIMIZER_OPTIONS, DEFAULTS, strict=True)), **options}
    takes = {} if isinstance(own, optax.GradientTransformation) else parameters(own)[0]
    for name in OPTIMIZER_OPTIONS:
        if name in options and name not in takes:
            raise InputError(
                f"The option {name!r} has no effect: {reference} has an optimizer of its own. "
                f"Leave it out, or let `optimizer` take an argument {name!r}."
            )
    return dict(options)


def has_decay(path: str, n_axes: int) -> bool:
    """Whether weight decay is for an array of that name: weights, no biases and no embeddings.

    >>> has_decay("layers.0.kernel", 2), has_decay("token_embedding.weight", 2)
    (True, False)
    """
    return n_axes >= 2 and not any(word in path.lower() for word in ("embed", "position"))


def _is_real(logits: Any) -> bool:
    return jnp.issubdtype(logits.dtype, jnp.floating)


def default_optimizer(
    learning_rate: float | None, weight_decay: float | None, clip_norm: float | None
) -> optax.GradientTransformation:
    """AdamW with decay on weights only, after the norm of the gradient was clipped."""

    def decayed(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: has_decay(jax.tree_util.keystr(path), leaf.ndim), params
        )

    rate, decay, clip = (
        default if value is None else value
        for value, default in zip((learning_rate, weight_decay, clip_norm), DEFAULTS, strict=True)
    )
    return adamw(rate, decay=decay, decayed=decayed, clip=clip or None)


def check_params(params: Any, reference: str) -> Any:
    """The parameters, if all are arrays that gradients exist for."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)):
            got = getattr(leaf, "dtype", type(leaf).__name__)
            raise InputError(
                f"The parameters of {reference} must be arrays of real numbers. "
                f"Got {got} at {jax.tree_util.keystr(path) or 'the top'}."
            )
    return params
