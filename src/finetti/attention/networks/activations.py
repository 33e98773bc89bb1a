"""Activations σ with σ(0) = 0 and their Lipschitz constants L_σ."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from finetti.core.arguments import check_positive
from finetti.core.errors import bad_argument


@dataclass(frozen=True)
class Activation:
    """σ, applied to every coordinate, with |σ(a) − σ(b)| ≤ L_σ|a − b| and σ(0) = 0.

    Args:
        name: what it is called.
        function: σ.
        lipschitz: L_σ; the smallest one gives the best bounds.

    >>> Activation("halved", lambda x: x / 2, lipschitz=0.5).name
    'halved'

    Reference: Assumption 4.1, edelman2022.
    """

    name: str
    function: Callable[[Any], Any]
    lipschitz: float

    def __post_init__(self) -> None:
        check_positive(self.lipschitz, "lipschitz", "Activation")
        with jax.ensure_compile_time_eval():
            at_zero = float(self.function(jnp.zeros(())))
        if at_zero != 0:
            advice = "Subtract its value at 0."
            raise bad_argument("function", "Activation", "0 at 0", at_zero, advice)

    def __call__(self, x: Any) -> Any:
        """σ(x)."""
        return self.function(x)


def _identity(x: Any) -> Any:
    return x


def _gelu(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS = {
    each.name: each
    for each in (
        Activation("identity", _identity, 1.0),
        Activation("relu", jax.nn.relu, 1.0),
        Activation("tanh", jnp.tanh, 1.0),
        # The derivative Φ(x) + xφ(x) is largest at x = √2.
        Activation("gelu", _gelu, 1.1289041452),
    )
}


def as_activation(value: "str | Activation", owner: str) -> Activation:
    """An activation by name, or the one given."""
    if isinstance(value, Activation):
        return value
    if value not in ACTIVATIONS:
        known = ", ".join(repr(name) for name in ACTIVATIONS)
        raise bad_argument("activation", owner, f"{known} or an Activation", repr(value))
    return ACTIVATIONS[value]
