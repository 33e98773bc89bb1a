"""A formula as the paper prints it, and as its proof gives it."""

from typing import Literal

from finetti.core.errors import bad_argument

Form = Literal["derived", "printed"]


def check_form(form: str, owner: str) -> None:
    """Refuse anything but the two forms.

    >>> check_form("derived", "softmax_constant")
    """
    if form not in ("derived", "printed"):
        raise bad_argument("form", owner, '"derived" or "printed"', repr(form))
