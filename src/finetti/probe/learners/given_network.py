"""Networks of the user's own, whatever library they are written with."""

from abc import abstractmethod
from collections.abc import Collection, Mapping
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
# Appendix C, edelman2022, and the clip of minGPT; a clip of None or 0 is none.
OPTIMIZER_DEFAULTS = {"learning_rate": 1e-3, "weight_decay": 1e-4, "clip_norm": 1.0}
LOGITS = "logits (m, 2) of labels 0 and 1, or one (m, 1) or (m,) of label 1"


@dataclass(frozen=True, kw_only=True)
class GivenNetwork(NetworkLearner):
    """A network from a recipe; it is trained as the paper trains its own, unless it says otherwise.

    Args:
        recipe: of what it is built.
        inputs: the bits arrive as int32 ("integers", for embeddings) or float32 ("floats").
        own_optimizer: an Optax gradient transformation or a function that returns one; without it
            AdamW.
        optimizer_options: those of `OPTIMIZER_DEFAULTS` that the optimizer takes.
    """

    recipe: Recipe
    inputs: Inputs = "integers"
    own_optimizer: Any = None
    optimizer_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_inputs(self.inputs, self.recipe.reference)
        for name in ("iterations", "check_every"):
            as_whole(getattr(self, name), name, self.recipe.reference)

    def settings(self) -> dict[str, Any]:
        """Of the training, of the optimizer, and of the factory; as options they give it again."""
        names = ("iterations", "check_every", "inputs")
        own = {name: getattr(self, name) for name in names}
        return {**own, **self.optimizer_options, **self.recipe.all_options()}

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
                f"The learner {self.recipe.reference} must return {LOGITS}, real numbers. For bits "
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
            return default_optimizer(**self.optimizer_options)
        if not isinstance(own, optax.GradientTransformation):
            known = {**self.optimizer_options, "iterations": self.iterations}
            own = own(**{name: known[name] for name in known if name in parameters(own)[0]})
        if not isinstance(own, optax.GradientTransformation):
            raise InputError(
                f"The `optimizer` of {self.recipe.reference} must be an Optax gradient "
                "transformation, or a function that returns one. "
                f"Got {type(own).__name__} instead."
            )
        return own


def optimizer_options(
    own: Any, options: Mapping[str, Any], elsewhere: Collection[str], reference: str
) -> dict[str, Any]:
    """Those that the optimizer takes, defaults included.

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


def check_inputs(inputs: str, reference: str) -> None:
    """Refuse other words."""
    if inputs not in ("integers", "floats"):
        raise bad_argument("inputs", reference, '"integers" or "floats"', repr(inputs))


def has_decay(path: str, n_axes: int) -> bool:
    """Whether weight decay is for an array of that name: weights, no biases and no embeddings.

    >>> has_decay("layers.0.kernel", 2), has_decay("token_embedding.weight", 2)
    (True, False)
    """
    return n_axes >= 2 and not any(word in path.lower() for word in ("embed", "position"))


def _is_real(logits: Any) -> bool:
    return jnp.issubdtype(logits.dtype, jnp.floating)


def default_optimizer(
    learning_rate: float, weight_decay: float, clip_norm: float | None
) -> optax.GradientTransformation:
    """AdamW with decay on weights only, after the norm of the gradient was clipped."""

    def decayed(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: has_decay(jax.tree_util.keystr(path), leaf.ndim), params
        )

    return adamw(learning_rate, decay=weight_decay, decayed=decayed, clip=clip_norm or None)


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
