"""What the papers know of softmax itself: how steep it is, and the bandwidth of its RBF form.

Needs no JAX.
"""

from finetti.core.arguments import Form, check_form, check_positive
from finetti.core.errors import bad_argument


def softmax_constant(form: Form = "derived") -> float:
    """C with ‖softmax(θ) − softmax(θ')‖₁ ≤ C‖θ − θ'‖_∞: 1, printed 2 (Corollary A.7, edelman2022).

    1 because ‖Jh‖₁ = E_p|h − E_p h| ≤ sd_p(h) ≤ ‖h‖_∞; two equal scores moved apart attain it.

    >>> softmax_constant(), softmax_constant("printed")
    (1.0, 2.0)
    """
    check_form(form, "softmax_constant")
    return 1.0 if form == "derived" else 2.0


def bandwidth(head_dimension: int, rule: str = "C.1", r: float = 2.0) -> float:
    """σ² of the RBF-form softmax: 2d_p^{1/s} with 1/r + 1/s = 1 (C.1), or d_p (5.4), zhang2022.

    >>> bandwidth(16), bandwidth(16, "5.4")
    (8.0, 16.0)
    """
    check_positive(head_dimension, "head_dimension", "bandwidth")
    check_exponent(r, "bandwidth")
    if rule == "C.1":
        return 2.0 * head_dimension ** (1.0 - 1.0 / r)
    if rule == "5.4":
        return float(head_dimension)
    raise bad_argument("rule", "bandwidth", '"C.1" or "5.4"', repr(rule))


def check_exponent(r: float, owner: str) -> None:
    """Refuse what is not the exponent of a norm."""
    if not r >= 1:
        raise bad_argument("r", owner, "an exponent in [1, ∞]", r)
