"""The delta rule: online gradient descent over the context."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.fast_weights.chunked_scan import CHUNK_LENGTH, UpdateRule
from finetti.attention.fast_weights.state_attention import FastWeights
from finetti.attention.modules.attention_module import per_query_cost
from finetti.core.arguments import as_whole
from finetti.core.arrays import as_array, is_concrete
from finetti.core.errors import InputError, bad_argument

# A decay below e^−200 forgets all; sums of its logarithm keep their digits.
MIN_LOG_DECAY = -200.0


class DeltaRule(FastWeights):
    """Online gradient descent on ½‖v − Sk‖², one normalized step for each key in turn.

    S ← αS, then S ← S − β(Sk_i − v_i)k_iᵀ with β = step/‖k_i‖²; the answer is S q.

    With step 1 the last pair is met exactly, S k_i = v_i; between 0 and 2 a step never moves away
    from its pair. The order of the keys matters. A key of zeros changes nothing but the decay; a
    masked one not even that. A common factor of queries and keys cancels; ‖v‖/‖k‖ must be a number
    in the precision of the data (below 10³⁸ in float32).

    Args:
        step: in (0, 2); kept as ``logit_step``, the logit of step/2, which can be trained.
        decay: α in (0, 1]. 1 forgets nothing and is not trained; less is kept as ``logit_decay``.
        chunk_length: keys that one step of the computation takes; it does not change the answer.

    >>> import jax.numpy as jnp
    >>> keys, values = jnp.array([[1.0], [1.0]]), jnp.array([[2.0], [4.0]])
    >>> round(float(DeltaRule(step=0.5)(jnp.ones(1), keys, values)[0]), 4)   # 0 → 1 → 2.5
    2.5

    Reference: Widrow and Hoff (1960); Schlag et al., arXiv 2102.11174.
    """

    per_query_cost = per_query_cost("makes the delta rule write one state per query", "one state")
    logit_step: Float[Array, ""]
    logit_decay: Float[Array, ""] | None
    chunk_length: int = eqx.field(static=True)

    def __init__(
        self, step: ArrayLike = 1.0, decay: ArrayLike = 1.0, *, chunk_length: int = CHUNK_LENGTH
    ):
        self.logit_step = _logit(step, 2.0, "step")
        keeps_all = _is_number(decay) and float(np.asarray(decay)) == 1.0
        self.logit_decay = None if keeps_all else _logit(decay, 1.0, "decay")
        self.chunk_length = as_whole(chunk_length, "chunk_length", "DeltaRule")

    def __repr__(self) -> str:
        def written(value: Array) -> str:
            return f"{np.asarray(value):.4g}" if is_concrete(value) else str(value)

        return f"DeltaRule(step={written(self.step)}, decay={written(self.decay)})"

    def __pdoc__(self, **_: Any) -> wadler_lindig.AbstractDoc:
        return wadler_lindig.TextDoc(repr(self))

    @property
    def step(self) -> Float[Array, ""]:
        """The share of each error that is taken back, in (0, 2)."""
        return 2.0 * jax.nn.sigmoid(self.logit_step)

    @property
    def decay(self) -> Float[Array, ""]:
        """α."""
        if self.logit_decay is None:
            return jnp.ones_like(self.logit_step)
        return jax.nn.sigmoid(self.logit_decay)

    def rule(self, dtype: Any) -> UpdateRule:
        """S ← αS − step·(αSk − v)kᵀ on unit keys."""
        step = 2.0 * jax.nn.sigmoid(self.logit_step.astype(dtype))
        if self.logit_decay is None:
            return UpdateRule(step)
        return UpdateRule(step, jax.nn.log_sigmoid(self.logit_decay.astype(dtype)))

    def features(self, tokens: Float[Array, "N d_k"]) -> Float[Array, "N d_k"]:
        """The query itself."""
        return tokens

    def pairs(
        self, keys: Float[Array, "L d_k"], values: Float[Array, "L d_v"]
    ) -> tuple[Float[Array, "L d_k"], Float[Array, "L d_v"]]:
        """k/‖k‖ and v/‖k‖, in whose terms β is the step; zeros for a key of zeros."""
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(keys), axis=1, keepdims=True))
        present = largest > 0
        unit = jnp.where(present, largest, 1)  # squares of small numbers would vanish
        squares = jnp.sum((keys / unit) ** 2, axis=1, keepdims=True)
        norms = unit * jnp.sqrt(jnp.where(present, squares, 1))
        return keys / norms, jnp.where(present, values / norms, 0)

    def on_scaled_tokens(self, scale: Float[Array, ""]) -> "DeltaRule":
        """Itself: a common factor of queries and keys cancels."""
        return self


def delta_rule_gates(
    key_shape: tuple[int, ...],
    step: ArrayLike,
    decay: ArrayLike | None,
    log_decay: ArrayLike | None,
) -> UpdateRule:
    """The gates of `delta_rule_attention`, checked: numbers, or one per key of (B, S, K, H)."""
    owner = "delta_rule_attention"
    if decay is not None and log_decay is not None:
        raise InputError(f"{owner} takes `decay` or `log_decay`, not both.")
    rate = _gate(owner, "step", step, key_shape, (0.0, 2.0))
    if log_decay is not None:
        logs = _gate(owner, "log_decay", log_decay, key_shape, (-np.inf, 0.0), True)
    elif decay is None or (_is_number(decay) and float(np.asarray(decay)) == 1.0):
        return UpdateRule(rate)
    else:
        given = _gate(owner, "decay", decay, key_shape, (0.0, 1.0), True)
        logs = jnp.log(jnp.maximum(given, jnp.finfo(given.dtype).tiny))
    return UpdateRule(rate, jnp.maximum(logs, MIN_LOG_DECAY))


def _gate(
    owner: str,
    name: str,
    gate: ArrayLike,
    key_shape: tuple[int, ...],
    interval: tuple[float, float],
    may_differ_by_channel: bool = False,
) -> Array:
    """A number, or an array (B, S, K) or, where it has as many axes as the key, (B, S, K, H)."""
    array = as_array(gate)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(float)
    *batch, length, heads, width = key_shape
    full = (*batch, length, heads)
    if may_differ_by_channel and array.ndim == len(key_shape):
        full = (*full, width)
    sizes = (1,) * (len(full) - array.ndim) + array.shape
    if len(sizes) > len(full) or any(
        size not in (1, wanted) for size, wanted in zip(sizes, full, strict=True)
    ):
        requirement = f"a number or broadcastable to {full}"
        raise bad_argument(name, owner, requirement, f"shape {array.shape}")
    low, high = interval
    if is_concrete(array):
        numbers = np.asarray(array)
        if not ((numbers >= low) & (numbers <= high)).all():
            raise bad_argument(name, owner, f"between {low:g} and {high:g}", numbers.tolist())
    if array.ndim == 0:
        return array
    array = jnp.broadcast_to(array, full)
    return array if batch else array[None]


def _is_number(value: ArrayLike) -> bool:
    return is_concrete(value) and np.ndim(value) == 0


def _logit(value: ArrayLike, most: float, argument: str) -> Float[Array, ""]:
    """log(x/(most − x)) of a number between 0 and ``most``."""
    if is_concrete(value):
        number = np.asarray(value)
        if number.ndim or not (0 < number < most):
            interval = "a number in (0, 2)" if argument == "step" else "a number in (0, 1]"
            raise bad_argument(argument, "DeltaRule", interval, value)
    number = jnp.asarray(value, dtype=float)
    return jnp.log(number) - jnp.log(most - number)
