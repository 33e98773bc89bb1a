"""A.2 and A.3: Dudley's integral, by quadrature and in closed form."""

import math

from finetti.claims.claim import Claim, Context, Evidence, at_least, close

DRAWS = 100


def run(context: Context) -> Evidence:
    """The two routes where log N = C/ε² exactly, and on the covers of random heads."""
    from finetti.bounds import Sample
    from finetti.bounds.covering.dudley import dudley_closed, dudley_quadrature
    from finetti.bounds.sparse_variables import HeadClass, HeadGap

    rng = context.generator(CLAIM.id)
    exact, least = 0.0, math.inf
    for _ in range(DRAWS):
        log_constant, log_range, log_samples = rng.uniform((-5, -3, 0), (30, 3, 60))
        closed = dudley_closed(log_constant, log_range, log_samples)
        found = dudley_quadrature(
            lambda u, shift=log_constant: shift - 2 * u, log_range, log_samples
        )
        exact = max(exact, abs(found.log_value - closed))
        norms = 10.0 ** rng.uniform(-1, 1, size=3)
        head = HeadClass(
            width=8,
            value_norm=norms[0],
            value_column_norm=norms[1],
            score_row_norm=norms[2],
            readout_norm=1.0,
        )
        sample = Sample(10**14, 1000)
        routes = [HeadGap(head, route).complexity(sample) for route in ("closed", "quadrature")]
        least = min(least, routes[0].log_value - routes[1].log_value)
    return Evidence(
        (
            close("log N = C/ε²: log of closed / quadrature", exact, 1e-10),
            at_least(f"{DRAWS} heads: least log of closed / quadrature", least, -1e-12),
        )
    )


CLAIM = Claim(
    id="S-app-A.3",
    title="Dudley's integral, by quadrature and in closed form",
    statement="Rad ≤ inf_δ 4δ + (12/√m)∫_δ^A √log N_∞(ε) dε; where log N_∞(ε) ≤ C_F/ε² this is "
    "A·min(1, 12(1 + log(x/3))/x) with x = A√(m/C_F) ≥ 3.",
    paper="S",
    label="A.2, A.3",
    run=run,
)
