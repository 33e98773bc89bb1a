"""How a CME attention call will be computed, and why."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import DTypeLike

from finetti.attention.cme.gram_product import BLOCK_ENTRIES
from finetti.attention.cme.iterative import RANK
from finetti.core.errors import InputError
from finetti.kernels.base import Kernel
from finetti.show.card import Card
from finetti.show.shown import Shown

Route = Literal["auto", "cholesky", "mixed", "primal", "conjugate_gradients"]
Wants = Literal["mean", "posterior", "weights"]
ROUTES = ("auto", "cholesky", "mixed", "primal", "conjugate_gradients")

# Below this length float64 costs next to nothing.
MIXED = 256
# Above this length a factor takes gigabytes.
LONG = 16384


@dataclass(frozen=True)
class Plan(Shown):
    """One route: what is computed, at what cost, and the reason for the choice.

    ``flops`` counts the leading terms per context (conjugate gradients: per iteration),
    ``memory`` the bytes of the largest arrays that exist at once.
    """

    route: str
    is_causal: bool
    per_query: bool
    reason: str
    flops: float
    memory: float

    def __card__(self) -> Card:
        masks = "one solve per query" if self.per_query else "shared by all queries"
        return Card(
            title="Plan of CME attention",
            fields=(
                ("route", self.route + (", causal" if self.is_causal else "")),
                ("masks", masks),
                ("flops", self.flops),
                ("memory (bytes)", self.memory),
            ),
            notes=(self.reason,),
        )


def make_plan(
    kernel: Kernel,
    route: str,
    length: int,
    queries: int,
    d_k: int,
    d_v: int,
    *,
    per_query: bool = False,
    is_causal: bool = False,
    wants: Wants = "mean",
    dtype: DTypeLike = jnp.float32,
) -> Plan:
    """The plan for one shape; refuses a route that cannot answer the call."""
    features = kernel.feature_dimension(d_k)
    double = jnp.finfo(dtype).bits > 32
    asked = _Asked(kernel, features, kernel_grows(kernel, d_k), per_query, is_causal, wants, double)
    refusal = _refusal(route, asked)
    if refusal and route != "auto":
        raise InputError(f"The route {route!r} of ConditionalMean {refusal} Use route='auto'.")
    if route == "auto":
        route, reason = _choose(length, asked)
    else:
        reason = "Asked for by `route`."
    solves = queries if per_query else 1
    if route == "primal" and features is not None:
        flops = solves * (2.0 * length * features**2 + features**3 / 3)
        memory = 8.0 * ((length + queries) * features + features**2)
    elif route == "conjugate_gradients":
        flops = 2.0 * length**2 * (d_k + d_v)
        memory = 4.0 * (2.0 * RANK * length + 8.0 * length * d_v)
    elif route == "mixed":
        flops = solves * (length**3 / 3 + 2.0 * length**2 * d_v)
        memory = 6.0 * length**2 + 16.0 * min(length * length, BLOCK_ENTRIES)
    else:
        right = queries if is_causal or wants != "mean" else min(queries, d_v)
        flops = solves * (length**3 / 3 + 2.0 * length**2 * right)
        memory = 8.0 * (2.0 * length**2 + length * queries)
    return Plan(route, is_causal, per_query, reason, flops, memory)


class _Asked(NamedTuple):
    """What decides which routes can answer."""

    kernel: Kernel
    features: int | None
    grows: bool
    per_query: bool
    is_causal: bool
    wants: Wants
    double: bool


def _choose(length: int, asked: _Asked) -> tuple[str, str]:
    if asked.features is not None and asked.features < length and not _refusal("primal", asked):
        return "primal", (
            f"The kernel has {asked.features} features, fewer than the {length} keys: linear in "
            "the length."
        )
    if length > LONG and not _refusal("conjugate_gradients", asked):
        return "conjugate_gradients", (
            f"More than {LONG} keys: products with the kernel instead of a factorization."
        )
    if length >= MIXED and not _refusal("mixed", asked):
        return "mixed", (
            f"One float32 factorization ({length} keys), checked; float64 where that is too coarse."
        )
    why = f"{length} keys" if length <= LONG else "conjugate gradients cannot answer this call"
    return "cholesky", f"One float64 factorization ({why})."


def _refusal(route: str, asked: _Asked) -> str:
    """Why ``route`` cannot answer, or nothing."""
    name = type(asked.kernel).__name__
    if route == "primal" and asked.features is None:
        return f"needs a kernel with a finite feature map, and {name} has none."
    if route == "primal" and asked.is_causal and asked.wants == "weights":
        return "keeps no causal weights: its chunks remember sums over the keys only."
    if route == "mixed" and asked.double:
        return "works in float32, and the data are float64."
    if route not in ("mixed", "conjugate_gradients"):
        return ""
    if asked.is_causal:
        return "cannot be causal: every prefix would be a system of its own."
    if asked.per_query:
        return "cannot take a mask per query: every query would be a system of its own."
    if asked.wants != "mean":
        return "gives the mean only: weights and variances need a solve per query."
    if asked.grows:
        return f"needs a kernel of bounded growth, and {name} grows exponentially."
    return ""


def kernel_grows(kernel: Kernel, d_k: int) -> bool:
    """Whether the kernel has an exponential part, so that it must be evaluated in log space."""
    token = jax.ShapeDtypeStruct((1, d_k), jnp.float32)
    return jax.eval_shape(kernel.growth, token, token) is not None


def shapes_of(
    query: tuple[int, ...], keys: tuple[int, ...], values: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """(L, Q, d_k, d_v) of three shapes."""
    return keys[-2], math.prod(query[len(keys) - 2 : -1]), keys[-1], values[-1]
