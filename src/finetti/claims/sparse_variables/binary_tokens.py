"""Binary tokens: attention by tables is exact."""

from typing import Any

from finetti import attention
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, close
from finetti.claims.wrong import times
from finetti.core.numbers import largest_of


@claim(
    id="S-sec-5-tables",
    title="binary tokens: attention by tables is exact",
    statement="Over binary tokens the attention of [CLS] depends on 2T + 1 scores and values only: "
    "tables and one matrix product give the outputs and gradients of the full layer.",
    formula="den = X (e_1 − e_0) + Σ_t e_0(t) + e_{cls}",
    label="Section 5 (the experiments; the tables are ours)",
    controls=(
        Control("tables 1 % too large", breaks={"finetti.attention.binary_attention": times(1.01)}),
    ),
)
def s_sec_5_tables(context: Context) -> Evidence:
    """Outputs and gradients against a layer in which all T + 1 tokens attend to all."""
    import jax
    import jax.numpy as jnp

    samples, length, dimension, heads, width = 64, 50, 16, 4, 4
    rng = context.generator(s_sec_5_tables.id)
    bits = rng.integers(0, 2, size=(samples, length))
    target = rng.normal(size=(samples, heads, width))

    def textbook(tokens: Any, cls: Any, weights: Any) -> Any:
        chosen = jnp.where((bits == 1)[:, :, None], tokens[1], tokens[0])
        first = jnp.broadcast_to(cls, (samples, 1, dimension))
        sequences = jnp.concatenate([first, chosen], axis=1)
        return attention.MultiHead(*weights).heads(sequences, sequences)[:, :, 0]

    def tables(tokens: Any, cls: Any, weights: Any) -> Any:
        return attention.binary_attention(bits, attention.binary_tables(tokens, cls, *weights))

    def both(function: Any) -> Any:
        def loss(*arguments: Any) -> Any:
            out = function(*arguments)
            return jnp.sum((out - target) ** 2), out

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))

    by_tables, by_textbook = both(tables), both(textbook)
    outputs = gradients = 0.0
    for trial in range(context.pick(quick=3, paper=30)):
        rng = context.generator(s_sec_5_tables.id, trial)
        arguments = (
            rng.normal(size=(2, length, dimension)),
            rng.normal(size=dimension),
            rng.normal(size=(3, heads, dimension, width)) / dimension**0.5,
        )
        (_, mine), my_slopes = by_tables(*map(jnp.asarray, arguments))
        (_, theirs), their_slopes = by_textbook(*map(jnp.asarray, arguments))
        outputs = largest_of(outputs, float(jnp.abs(mine - theirs).max()))
        for a, b in zip(my_slopes, their_slopes, strict=True):
            gradients = largest_of(gradients, float(jnp.abs(a - b).max() / jnp.abs(b).max()))
    return Evidence(
        close("outputs: tables − textbook layer", outputs, 1e-10),
        close("gradients: tables − textbook layer (relative)", gradients, 1e-10),
        note=f"{samples} bit strings of length {length}; one matrix product replaces "
        f"{samples}·{heads} attention matrices of {length + 1}².",
    )
