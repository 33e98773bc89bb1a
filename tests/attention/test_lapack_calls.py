"""Programs that hold two batched LAPACK calls can wait for themselves for ever: there are none.

See `finetti.core.linalg.lapack`.
"""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import pytest
from tests.core.test_lapack import batched_calls

from finetti.attention import ConditionalMean, DeltaRule, LocalLinear, start_decoding
from finetti.kernels import RBF, Exponential, Polynomial

BATCH, LENGTH, WIDTH = 2, 6, 2
TOKENS = [jax.ShapeDtypeStruct((BATCH, LENGTH, WIDTH), jnp.float32)] * 3


def attend(kernel, route="auto", **options):
    # Parameters are made inside: in the precision of the program.
    return lambda *tokens: ConditionalMean(kernel(), route=route)(*tokens, **options)


def variance(query, keys, values):
    return ConditionalMean().posterior(query, keys, values)[1]


def decoded(*tokens):
    query, keys, values = jax.lax.stop_gradient(tokens)
    module = ConditionalMean()
    cache = start_decoding(module, keys[:, :4], values[:, :4], capacity=LENGTH)
    return cache.append(keys[:, 4], values[:, 4]).read(query[:, 0])[0]


PROGRAMS = {
    "cholesky": attend(RBF),
    "causal": attend(RBF, is_causal=True),
    "exponential": attend(Exponential),
    "primal": attend(lambda: Polynomial(2), "primal"),
    "primal, causal": attend(lambda: Polynomial(2), "primal", is_causal=True),
    # Long contexts follow one another; the user's own vmap brings them together all the same.
    "mixed": jax.vmap(attend(RBF, "mixed")),
    "conjugate gradients": jax.vmap(attend(RBF, "conjugate_gradients")),
    "posterior": variance,
    "likelihood": lambda q, k, v: ConditionalMean().log_marginal_likelihood(k, v),
    "decoding": decoded,
    "delta rule": lambda *tokens: DeltaRule(chunk_length=3)(*tokens, is_causal=True),
    "local linear": lambda *tokens: LocalLinear(RBF())(*tokens),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_route_factors_one_matrix_at_a_time(name):
    # A linear loss: nothing of the backward pass waits for the forward one.
    def step(*tokens):
        return jax.value_and_grad(lambda *tokens: jnp.sum(PROGRAMS[name](*tokens)), (0, 1, 2))(
            *tokens
        )

    # The calls are those that JAX writes: the compiler drops some and adds none.
    with jax.enable_x64(False):
        program = jax.jit(step).lower(*TOKENS).as_text(dialect="hlo")
    assert batched_calls(program) == []


def test_training_with_causal_attention_goes_on():
    """400 steps of what used to stop for ever in half of the runs, in a process of its own."""
    program = """
        import jax, jax.numpy as jnp
        from finetti.attention import cme_attention

        def loss(q, k, v):
            return (cme_attention(q, k, v, ridge=0.1, is_causal=True) ** 2).sum()

        step = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
        tokens = jax.random.normal(jax.random.key(0), (3, 8, 16, 2, 4))
        for _ in range(400):
            jax.block_until_ready(step(*tokens))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=600)
