"""Binary tokens: attention by tables is exact."""

from typing import Any

from finetti.claims.claim import Claim, Context, Evidence, close

SAMPLES, LENGTH, DIMENSION, HEADS, WIDTH = 64, 50, 16, 4, 4


def run(context: Context) -> Evidence:
    """Outputs and gradients against a layer in which all T + 1 tokens attend to all."""
    import jax
    import jax.numpy as jnp

    from finetti.attention.binary.binary_tables import binary_tables
    from finetti.attention.binary.binary_tokens import binary_attention
    from finetti.attention.networks.multihead import MultiHead

    rng = context.generator(CLAIM.id)
    bits = rng.integers(0, 2, size=(SAMPLES, LENGTH))
    target = rng.normal(size=(SAMPLES, HEADS, WIDTH))

    def textbook(tokens: Any, cls: Any, weights: Any) -> Any:
        chosen = jnp.where((bits == 1)[:, :, None], tokens[1], tokens[0])
        first = jnp.broadcast_to(cls, (SAMPLES, 1, DIMENSION))
        sequences = jnp.concatenate([first, chosen], axis=1)
        return MultiHead(*weights).heads(sequences, sequences)[:, :, 0]

    def tables(tokens: Any, cls: Any, weights: Any) -> Any:
        return binary_attention(bits, binary_tables(tokens, cls, *weights))

    def both(function: Any) -> Any:
        def loss(*arguments: Any) -> Any:
            out = function(*arguments)
            return jnp.sum((out - target) ** 2), out

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))

    by_tables, by_textbook = both(tables), both(textbook)
    outputs = gradients = 0.0
    for trial in range(context.pick(quick=3, paper=30)):
        rng = context.generator(CLAIM.id, trial)
        arguments = (
            rng.normal(size=(2, LENGTH, DIMENSION)),
            rng.normal(size=DIMENSION),
            rng.normal(size=(3, HEADS, DIMENSION, WIDTH)) / DIMENSION**0.5,
        )
        (_, mine), my_slopes = by_tables(*map(jnp.asarray, arguments))
        (_, theirs), their_slopes = by_textbook(*map(jnp.asarray, arguments))
        outputs = max(outputs, float(jnp.abs(mine - theirs).max()))
        for a, b in zip(my_slopes, their_slopes, strict=True):
            gradients = max(gradients, float(jnp.abs(a - b).max() / jnp.abs(b).max()))
    return Evidence(
        (
            close("outputs: tables − textbook layer", outputs, 1e-10),
            close("gradients: tables − textbook layer (relative)", gradients, 1e-10),
        ),
        note=f"{SAMPLES} bit strings of length {LENGTH}; one matrix product replaces "
        f"{SAMPLES}·{HEADS} attention matrices of {LENGTH + 1}².",
    )


CLAIM = Claim(
    id="S-sec-5-tables",
    title="binary tokens: attention by tables is exact",
    statement="Over binary tokens the attention of [CLS] depends on 2T + 1 scores and values only: "
    "tables and one matrix product give the outputs and gradients of the full layer.",
    paper="S",
    label="Section 5 (the experiments; the tables are ours)",
    run=run,
)
