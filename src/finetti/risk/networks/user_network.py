"""Users' networks as the minimization of risk trains them: trees that are called with a batch."""

from typing import Any, NamedTuple

import equinox as eqx
import jax

from finetti.core.errors import bad_argument
from finetti.core.numerics.random_keys import random_key
from finetti.latent import Encoded
from finetti.models.answers import check_shape
from finetti.models.equinox_model import EquinoxRows
from finetti.models.factory import Purpose
from finetti.models.model import JaxNetwork, Model, TrainedNetwork, refuse_state
from finetti.models.model_loading import as_model, wrong_form
from finetti.models.torch_model import TorchModel
from finetti.risk.networks.attention_network import AttentionNetwork

SIZES = ("context_length", "token_dimension", "out_dimension")


class DataShapes(NamedTuple):
    """The sizes of sequences and of their answers."""

    context_length: int
    token_dimension: int
    out_dimension: int

    @classmethod
    def of(cls, data: Encoded) -> "DataShapes":
        """Return the sizes of the data."""
        _, length, dimension = data.tokens.shape
        return cls(length, dimension, data.target.shape[1])

    @property
    def example(self) -> tuple[Any, ...]:
        """The shapes of a batch of two inputs (tokens, mask_token)."""
        shapes = (2, *self[:2]), (2, self.token_dimension)
        return jax.ShapeDtypeStruct(shapes[0], "float32"), jax.ShapeDtypeStruct(
            shapes[1], "float32"
        )

    @property
    def purpose(self) -> Purpose:
        """Return the purpose by which models are recognized and refused."""
        forms = (
            "an Equinox, Flax or PyTorch module, a pair (init, apply), or a class or factory of "
            "these, which answers to (tokens, mask_token)"
        )
        return Purpose("network", forms, SIZES, lambda *inputs: self._asdict())


def check_network(model: Model, shapes: DataShapes) -> JaxNetwork:
    """Refuse a model that cannot be trained on such data: traced, without computing anything."""
    if isinstance(model, TorchModel):
        model = model.in_jax()
    if not isinstance(model, JaxNetwork):
        raise wrong_form(model)
    wanted = (2, shapes.out_dimension)
    for found in model.trace(*shapes.example):
        label = f"{model.label}, called with (tokens, mask_token),"
        what = f"answers of shape {wanted}, as the targets have"
        check_shape(label, found, [wanted], what, *shapes.example)
    return model


def as_network(network: Any, data: Encoded, seed: Any = 0) -> Any:
    """A network as a tree that is called with a batch (tokens, mask_token).

    An `AttentionNetwork` is one. Equinox modules are written for one sequence, all others for a
    batch; the weights of what has none are drawn.
    """
    if isinstance(network, AttentionNetwork | TrainedNetwork | EquinoxRows):
        return network
    shapes = DataShapes.of(data)
    model = as_model(network, purpose=shapes.purpose, example=shapes.example)
    if not isinstance(model, JaxNetwork):
        model = check_network(model, shapes)
    return start_network(model, shapes, random_key("finetti.risk weights", seed))


def start_network(model: JaxNetwork, shapes: DataShapes, key: Any) -> Any:
    """A model with weights, called with a batch."""
    refuse_state(model.kept_state(), model.label)
    started = model.start(key, *shapes.example)
    if isinstance(started.unwrapped(), AttentionNetwork):
        return started.unwrapped()  # reads batches by itself
    if not any(map(eqx.is_inexact_array, jax.tree.leaves(started))):
        wanted = "one with arrays of real numbers to train"
        raise bad_argument("network", "minimize_risk", wanted, model.name)
    return started


def unwrapped(network: Any) -> Any:
    """The network as its owner knows it: an Equinox module, or a `TrainedNetwork`."""
    return network if isinstance(network, AttentionNetwork) else network.unwrapped()
