"""`cme_solve`: the answer of CME attention together with how the solve went."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from finetti.attention.cme.conditional_mean import ConditionalMean, check_variance
from finetti.attention.cme.dense_system import (
    Cholesky,
    build,
    cross,
    solve_variance,
    solve_weights,
)
from finetti.attention.cme.routes import Ridge
from finetti.attention.context_batch import ContextArrays, Contexts, arrange, over_contexts
from finetti.core.linalg.positive_definite import Status, condition_number, solve_status
from finetti.core.numerics.float64 import float64_inside
from finetti.display.card import Card
from finetti.display.displayable import Displayable
from finetti.kernels.kernel import Kernel


class CMESolution(Displayable, eqx.Module):
    """Value, error bar and health of a CME attention call.

    ``status`` and ``condition_number`` are one per context (one per query with per-query masks);
    the condition number is ‖A‖₁‖A⁻¹‖₁ of the matrix that was factored.
    """

    mean: Float[Array, "... d_v"]
    variance: Float[Array, "..."]
    status: Int[Array, "..."]
    condition_number: Float[Array, "..."]
    ridge: Float[Array, "..."]

    @property
    def ok(self) -> bool:
        """Whether every context was solved without remark."""
        return bool(jnp.all(self.status == Status.SOLVED))

    @property
    def advice(self) -> str:
        """What happened in the contexts, the most severe first, and what to do about it."""
        return " ".join(self._sentences())

    def __card__(self) -> Card:
        return Card(
            title="CME attention, solved",
            fields=(
                ("mean", f"array of shape {self.mean.shape}"),
                ("largest standard deviation", float(jnp.sqrt(jnp.max(self.variance)))),
                ("largest condition number", float(jnp.max(self.condition_number))),
                ("largest ridge", float(jnp.max(self.ridge))),
            ),
            notes=(self.advice,),
        )

    def _sentences(self) -> Iterator[str]:
        codes, counts = np.unique(np.asarray(self.status), return_counts=True)
        for code, count in sorted(zip(codes, counts, strict=True), reverse=True):
            where = "" if counts.sum() == 1 else f"{count} of {counts.sum()} contexts: "
            yield f"{where}{Status(int(code)).advice}"


def cme_solve(
    query: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    ridge: ArrayLike | None = None,
    ridge_per_token: ArrayLike | None = None,
) -> CMESolution:
    """CME attention (4.5), zhang2022, with mean, variance, status and condition number.

    By one float64 factorization for each context.

    Args:
        query, keys, values, mask: as in `ConditionalMean`.
        kernel, ridge, ridge_per_token: as in `ConditionalMean`.

    >>> import jax.numpy as jnp
    >>> solution = cme_solve(jnp.zeros(1), jnp.zeros((3, 1)), jnp.ones((3, 1)), ridge=1e-6)
    >>> print(f"{solution.mean[0]:.4f}", solution.advice)
    1.0000 Solved.
    """
    module = ConditionalMean(kernel, ridge, ridge_per_token)
    solution = arrange("cme_solve", query, keys, values, mask).run(_diagnosed, module)
    check_variance(solution.variance)
    return solution


def _diagnosed(contexts: Contexts, module: ConditionalMean) -> CMESolution:
    def factor(module: ConditionalMean, arrays: ContextArrays) -> CMESolution:
        ridge = Ridge(module.ridge, module.per_token)

        def read(*given: Any) -> CMESolution:
            context = ContextArrays(*given)
            level = ridge.for_context(context)
            system = build(module.kernel, context.keys, context.mask, level)
            right = cross(system, context.query)
            weights, scaled, (factor, shift) = solve_weights(system, right)
            condition = condition_number(system.matrix, factor)
            return CMESolution(
                mean=weights.T @ context.values,
                variance=solve_variance(module.kernel, context.query, right, scaled),
                status=solve_status(condition, shift, system.floored),
                condition_number=condition,
                ridge=system.ridge,
            )

        return over_contexts(read, arrays, Cholesky.max_entries)

    layout = contexts.layout
    found = float64_inside(factor)(module, contexts.arrays)
    per_context = layout.lead if layout.per_query else layout.batch
    return CMESolution(
        mean=contexts.restore_values(found.mean),
        variance=contexts.restore_variance(found.variance),
        status=found.status.reshape(per_context),
        condition_number=found.condition_number.reshape(per_context),
        ridge=found.ridge.reshape(per_context),
    )
