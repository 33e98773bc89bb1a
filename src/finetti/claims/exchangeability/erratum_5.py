"""Erratum 5: Lemma C.11 misses the norm of the values."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, close
from finetti.claims.exchangeability.instances import even_reader
from finetti.claims.perturbations import attained


def run(context: Context) -> Evidence:
    """A query that reads opposite tokens evenly, ω_v = 10, while W_k leaves 0 by 10⁻⁴·e₁e₁ᵀ."""
    instance = even_reader(10.0, 1e-4, copies=200)
    printed = lipschitz.heads_weight_perturbation(*instance, "printed")
    derived = lipschitz.heads_weight_perturbation(*instance)
    moved = float(printed.measured)
    return Evidence(
        (at_most("change of the heads", moved, float(printed.bound)),),
        (
            # R = ω_q = 1, and W_k of norm 10⁻⁴ is new.
            close("printed bound − (1 + 10⁻⁴)·10⁻⁴", float(printed.bound) - 1.0001e-4, 1e-15),
            at_most("the same, with ω_v and without σ⁻²", moved, 10 * float(printed.bound)),
            attained("with ω_v and σ⁻²", derived),
        ),
    )


CLAIM = Claim(
    id="E-erratum-5",
    title="printed: Lemma C.11 without the values' norm",
    statement="‖MHA(X;W) − MHA(X;Ŵ)‖ ≤ RΣε_v + R³Σ(ω_q + ω_k)(ε_q + ε_k).",
    paper="E",
    label="Lemma C.11",
    run=run,
    expected=Verdict.FAILS,
    erratum="(F.10)–(F.11) contain ω_v in the second sum; print drops it, also in Lemma C.12, "
    "(C.10) and the third entry of κ.",
)
