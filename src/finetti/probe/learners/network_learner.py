"""Networks of the user's own as learners: their logits, and how they are trained."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from finetti.core.arguments import as_norm, as_positive, as_whole
from finetti.core.errors import InputError, bad_argument
from finetti.models.answers import check_shape
from finetti.models.factory import parameters
from finetti.probe.learners.learner import LOGITS, NetworkLearner, TrainedLearner
from finetti.training.optimizers import adamw

Inputs = Literal["integers", "floats"]
# Appendix C, edelman2022, and the clip of minGPT; a clip of None or 0 is none.
OPTIMIZER_DEFAULTS = {"learning_rate": 1e-3, "weight_decay": 1e-4, "clip_norm": 1.0}


@dataclass(frozen=True, kw_only=True)
class UserLearner(TrainedLearner):
    """A user's network of any library.

    Args:
        model: the network.
        inputs: the bits arrive as integers, for embeddings, or as float32 ("floats").
        optimizer_options: those of `OPTIMIZER_DEFAULTS` that the optimizer takes.
    """

    model: Any
    inputs: Inputs = "integers"
    optimizer_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self.model.name
        if self.inputs not in ("integers", "floats"):
            raise bad_argument("inputs", name, '"integers" or "floats"', repr(self.inputs))
        as_whole(self.iterations, "iterations", name)
        as_whole(self.check_every, "check_every", name)

    def settings(self) -> dict[str, Any]:
        """Return the settings of training, optimizer and factory; as options they give it again."""
        names = ("iterations", "check_every", "inputs")
        own = {name: getattr(self, name) for name in names}
        return {**own, **self.optimizer_options, **self.model.settings}


@final
@dataclass(frozen=True, kw_only=True)
class UserNetwork(UserLearner, NetworkLearner):
    """A user's network in JAX, trained as the paper trains its own unless it says otherwise.

    Args:
        own_optimizer: an Optax gradient transformation or a function that returns one; without it
            AdamW.
    """

    own_optimizer: Any = None

    def init(self, key: Any, context_length: int) -> Any:
        """Draw the parameters."""
        return self.model.init(key, jax.ShapeDtypeStruct((1, context_length), self._dtype))

    def apply(self, params: Any, bits: Any, key: Any) -> Float[Array, "m 2"]:
        """The logits (m, 2); a single one is that of label 1."""
        bits = jnp.asarray(bits, self._dtype)
        logits = self.model.apply(params, bits, key=key)
        rows = len(bits)
        check_shape(self.model.label, logits, ((rows, 2), (rows, 1), (rows,)), LOGITS, bits)
        if logits.shape == (rows, 2):
            return logits
        one = logits.reshape(rows)
        return jnp.stack([jnp.zeros_like(one), one], axis=1)

    def optimizer(self) -> optax.GradientTransformation:
        """Return the network's own optimizer, or AdamW as in the paper."""
        own = self.own_optimizer
        if own is None:
            return default_optimizer(**self.optimizer_options)
        if not isinstance(own, optax.GradientTransformation):
            known = {**self.optimizer_options, "iterations": self.iterations}
            own = own(**{name: known[name] for name in known if name in parameters(own)[0]})
        if not isinstance(own, optax.GradientTransformation):
            raise InputError(
                f"The `optimizer` of {self.model.name} must be an Optax gradient transformation, "
                f"or a function that returns one. Got {type(own).__name__} instead."
            )
        return own

    @property
    def _dtype(self) -> Any:
        return jnp.int32 if self.inputs == "integers" else jnp.float32


def optimizer_options(
    own: Any, options: Mapping[str, Any], elsewhere: Collection[str], reference: str
) -> dict[str, Any]:
    """Return the options that the optimizer takes, defaults included.

    Refuses what would have no effect, ``elsewhere`` included.
    """
    given = {name: options[name] for name in OPTIMIZER_DEFAULTS if name in options}
    defaults = OPTIMIZER_DEFAULTS
    if own is not None:
        takes = {} if isinstance(own, optax.GradientTransformation) else parameters(own)[0]
        defaults = {name: takes[name] for name in OPTIMIZER_DEFAULTS if name in takes}
        without = [name for name in given if name not in {*defaults, *elsewhere}]
        if without:
            raise InputError(
                f"The option {without[0]!r} has no effect: {reference} has an optimizer of its "
                f"own. Leave it out, or let `optimizer` take an argument {without[0]!r}."
            )
    found = {name: given.get(name, default) for name, default in defaults.items()}
    for name, value in found.items():
        if not (name == "clip_norm" and value is None):
            check = as_positive if name == "learning_rate" else as_norm
            check(value, name, reference)
    return found


def has_decay(path: str, n_axes: int) -> bool:
    """Whether weight decay is for an array of that name: weights, no biases and no embeddings.

    >>> has_decay("layers.0.kernel", 2), has_decay("token_embedding.weight", 2)
    (True, False)
    """
    return n_axes >= 2 and not any(word in path.lower() for word in ("embed", "position"))


def default_optimizer(
    learning_rate: float, weight_decay: float, clip_norm: float | None
) -> optax.GradientTransformation:
    """AdamW with decay on weights only, after the norm of the gradient was clipped."""

    def decayed(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: has_decay(jax.tree_util.keystr(path), leaf.ndim), params
        )

    return adamw(learning_rate, decay=weight_decay, decayed=decayed, clip=clip_norm or None)
