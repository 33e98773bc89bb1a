"""CME attention by one float64 factorization of the keys' Gram matrix."""

import jax.numpy as jnp

from finetti.attention.cme import causal
from finetti.attention.cme import dense_system as linear
from finetti.attention.cme.routes import Answer, Call, Cost, Ridge, Route, Wants, masked_rows
from finetti.attention.context_batch import ContextArrays
from finetti.kernels.kernel import Kernel


class Cholesky(Route):
    """Answers everything."""

    name = "cholesky"

    def reason(self, call: Call) -> str:
        """It is what is left."""
        return f"One float64 factorization ({call.length} keys)."

    def cost(self, call: Call) -> Cost:
        """L³/3, and solves for the values or the queries, whichever are fewer."""
        from_values = not call.is_causal and call.wants == "mean"
        right = min(call.queries, call.d_v) if from_values else call.queries
        flops = call.solves * (call.length**3 / 3 + 2.0 * call.length**2 * right)
        return Cost(flops, 8.0 * (2.0 * call.length**2 + call.length * call.queries))

    def read(
        self, kernel: Kernel, ridge: Ridge, context: ContextArrays, wants: Wants, prefix: int | None
    ) -> Answer:
        """One factor for all queries, and for all prefixes."""
        query, keys, values, mask = context
        system = linear.build(kernel, keys, mask, ridge.of(context))
        values = masked_rows(values, mask)
        if prefix is not None:
            positions = jnp.arange(query.shape[0]) % prefix
            solved = causal.solve_prefixes(system, values, query, positions)
            if wants == "weights":
                return Answer(weights=causal.prefix_weights(system, solved).T)
            mean = causal.prefix_mean(system, solved, values)
            if wants == "mean":
                return Answer(mean=mean)
            variance = causal.prefix_variance(kernel, query, solved)
            return Answer(mean=mean, variance=variance, ridge=system.ridge)
        if wants == "mean":
            return Answer(mean=linear.solve_mean(system, values, query))
        right = linear.cross(system, query)
        weights, scaled, _ = linear.solve_weights(system, right)
        if wants == "weights":
            return Answer(weights=weights.T)
        variance = linear.solve_variance(kernel, query, right, scaled)
        return Answer(mean=weights.T @ values, variance=variance, ridge=system.ridge)
