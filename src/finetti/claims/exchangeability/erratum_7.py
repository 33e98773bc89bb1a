"""Erratum 7: what Proposition 5.6 compares a stationary point with."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, close

SEQUENCES, LENGTH, DIMENSION = 400, 8, 4


def run(context: Context) -> Evidence:
    """A head at its saddle θ̂ = 0, on labels that are fair coins: f_θ̂ is E[y|X] = 0.

    f_θ(X) = ⟨w, attn_SM(q, X, XW_v)⟩ has no derivative at w = 0, W_v = 0, so (5.12) is an equality
    and the linearization is 0, whatever θ. The least squares fit of the coins is the best f_θ.
    """
    import jax

    from finetti.attention import Softmax

    rng = context.generator(CLAIM.id)
    tokens = rng.normal(size=(SEQUENCES, LENGTH, DIMENSION))
    query = rng.normal(size=(SEQUENCES, DIMENSION))
    labels = rng.choice([-1.0, 1.0], size=SEQUENCES)

    def predict(readout, value_weights):
        return Softmax()(query, tokens, tokens @ value_weights) @ readout

    saddle = np.zeros(DIMENSION), np.zeros((DIMENSION, DIMENSION))
    slopes = jax.tree.leaves(jax.jacobian(predict, argnums=(0, 1))(*saddle))
    means = np.stack([predict(axis, np.eye(DIMENSION)) for axis in np.eye(DIMENSION)], axis=1)
    readout = np.linalg.lstsq(means, labels, rcond=None)[0]
    fitted = np.asarray(predict(readout, np.eye(DIMENSION)))
    at_saddle = np.asarray(predict(*saddle))
    excess = np.mean((labels - at_saddle) ** 2) - np.mean((labels - fitted) ** 2)
    printed, derived = (4 * np.mean(np.abs(at_saddle - g)) for g in (0.0, fitted))
    return Evidence(
        (at_most("E_opt, against 4·Ê‖linearization − E[y|X]‖", float(excess), float(printed)),),
        (
            at_most("E_opt, against 4·Ê‖linearization − f̃‖", float(excess), float(derived)),
            close("E_opt − Ê‖f̃‖² (least squares)", float(excess - np.mean(fitted**2)), 1e-12),
            close("largest derivative at the saddle", max(np.abs(s).max() for s in slopes), 0.0),
            at_most("largest |f̃|, for the 4", float(np.abs(fitted).max()), 1.0),
        ),
    )


CLAIM = Claim(
    id="E-erratum-7",
    title="printed: Proposition 5.6 compares with E[y|X]",
    statement="At a stationary θ̂, E_opt ≤ 4·min_θ Ê‖f_θ̂ + ∇f_θ̂^⊤(θ − θ̂) − f*‖ with f* = E[y|X].",
    paper="E",
    label="Proposition 5.6, (5.13)",
    run=run,
    expected=Verdict.FAILS,
    erratum="Appendix D proves it with the best function of the class on the sample, f̃, for f*. "
    "E_opt is measured against f̃, which fits the noise in part; E[y|X] does not.",
    # |f̃| ≤ 1: its standard deviation is about √(4/400).
    false_alarm=1e-9,
)
