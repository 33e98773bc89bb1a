"""Erratum 1: the ridge of (4.5) is not the ridge of (A.3)."""

from finetti.claims.claim import Claim, Context, Evidence, Verdict, close
from finetti.claims.exchangeability.eq_a_3 import embedding_error


def run(context: Context) -> Evidence:
    """Attention with the ridge λ, and with L·λ, against the empirical embedding with λ."""
    printed, derived = (
        embedding_error(context, CLAIM.id, per_token=per_token) for per_token in (False, True)
    )
    return Evidence(
        (close("attention with ridge λ − empirical embedding (relative)", printed, 1e-9),),
        (close("attention with ridge Lλ − empirical embedding (relative)", derived, 1e-9),),
    )


CLAIM = Claim(
    id="E-erratum-1",
    title="printed: one λ serves (4.5) and (A.3)",
    statement="attn_CME with the ridge λ is the empirical conditional mean embedding with that λ.",
    paper="E",
    label="(4.5), (A.3)",
    run=run,
    expected=Verdict.FAILS,
    erratum="(4.5) adds λ to the Gram matrix, (A.3) adds L·λ. Bayes statements need λ = noise / "
    "prior variance, Proposition 4.1 needs L·λ.",
)
