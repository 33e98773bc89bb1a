"""Small claims for tests of the ledger, of runs and of their results."""

from finetti.claims import Claim, Control, Evidence, at_most

MEASURED = []  # (claim, form, value) of every call of `measure_number`


def measure_number(context, form="derived", value=0.25):
    """A number below 1 with an interval, or, as printed, 2."""
    value = 2.0 if form == "printed" else value
    MEASURED.append((context.claim, form, value))
    return Evidence(at_most("number", value, 1.0, interval=(value - 0.1, value + 0.1)))


TOO_LARGE = Control("too large", changes={"value": 2.0})


def claim(claim_id="E-eq-1", run=measure_number, **fields):
    """A claim that holds."""
    return Claim(claim_id, "a title", "A statement.", run, "(1)", **fields)
