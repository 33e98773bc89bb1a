"""Targets and random-feature classes from settings given by name."""

from finetti.bounds.random_features.targets import Target, check_coefficients
from finetti.bounds.settings import BoundSettings
from finetti.core.errors import bad_argument

TARGET_FAMILIES = (
    "query_power",
    "key_power",
    "correlation_power",
    "correlation_times_power",
    "correlation_series",
)


def read_target(settings: BoundSettings) -> Target:
    """The target called ``target`` in the settings; ``width`` is d.

    | target | what else is read |
    |---|---|
    | query_power, key_power | degree p (2), target_norm ‖b‖ (1) |
    | correlation_power | degree p (2) |
    | correlation_times_power | correlation_degree q (1), degree p (1), target_norm |
    | correlation_series | coefficients a_k ([0, 1]), target_norm |

    >>> settings = BoundSettings(norms={"target": "key_power", "degree": 3})
    >>> read_target(settings) == Target.key_power(3)
    True
    """
    family = settings.value("target", "key_power")
    if family not in TARGET_FAMILIES:
        raise bad_argument(
            "target", "the norms", f"one of {', '.join(TARGET_FAMILIES)}", repr(family)
        )
    if family == "correlation_series":
        coefficients = read_coefficients(settings)
        return Target.correlation_series(coefficients, settings.width, settings.norm("target_norm"))
    if family == "correlation_times_power":
        return Target.correlation_times_power(
            settings.value("correlation_degree", 1),
            settings.value("degree", 1),
            settings.width,
            settings.norm("target_norm"),
        )
    degree = settings.value("degree", 2)
    if family == "correlation_power":
        return Target.correlation_power(degree, dimension=settings.width)
    power = Target.query_power if family == "query_power" else Target.key_power
    return power(degree, settings.norm("target_norm"))


def read_coefficients(settings: BoundSettings) -> tuple[float, ...]:
    """The list ``coefficients``, a_0, a_1, …; F(t) = t if there is none."""
    return check_coefficients(settings.value("coefficients", (0.0, 1.0)), "the norms")
