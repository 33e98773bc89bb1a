"""Attention as one family of regressions: which of its members are coherent?"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from finetti.coherence.measuring import CoherenceTable, measure_coherence
from finetti.coherence.predictors.predictor_loading import Predicts, as_predictor, load_target
from finetti.core.errors import InputError
from finetti.latent.world import LatentModel

RIDGE = 0.1
LENGTHS = (12,)


class FamilyMember(NamedTuple):
    """A mechanism, and which defects it does not have: order, martingale, two-step."""

    make: Callable[[], Any]
    expected: tuple[bool | None, ...]


def _attention(name: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from finetti import attention, kernels

        given = [getattr(kernels, each)() for each in arguments]
        return getattr(attention, name)(*given, **options)

    return make


def _neighbors() -> Any:
    from sklearn.neighbors import KNeighborsRegressor

    return KNeighborsRegressor(3)


FAMILY: dict[str, FamilyMember] = {
    "softmax": FamilyMember(_attention("Softmax"), (True, False, None)),
    "smoother": FamilyMember(_attention("KernelSmoother", "RBF"), (True, False, None)),
    "linear": FamilyMember(_attention("LinearAttention"), (True, False, None)),
    "local-linear": FamilyMember(
        _attention("LocalLinear", "RBF", ridge=RIDGE), (True, False, None)
    ),
    "delta-rule": FamilyMember(_attention("DeltaRule"), (False, True, None)),
    "delta-rule-decay": FamilyMember(_attention("DeltaRule", decay=0.9), (False, False, None)),
    "mesa": FamilyMember(_attention("ConditionalMean", "Linear", ridge=RIDGE), (True, True, True)),
    "cme": FamilyMember(_attention("ConditionalMean", "RBF", ridge=RIDGE), (True, True, True)),
    "cme-per-token": FamilyMember(
        _attention("ConditionalMean", "RBF", ridge_per_token=RIDGE / 12), (True, False, False)
    ),
    "neighbors": FamilyMember(_neighbors, (True, False, None)),
}


def family_table(
    world: LatentModel | None = None,
    context_lengths: Sequence[int] = LENGTHS,
    members: Sequence[str] = tuple(FAMILY),
    **options: Any,
) -> CoherenceTable:
    """The table of the family: only ridge regression with a fixed ridge is coherent.

    Args:
        world: whose tokens are read; by default a Gaussian process over 3 dimensions with the RBF
            kernel and noise of variance 0.1, in which ``cme`` is the exact predictive.
        context_lengths: n.
        members: names of `FAMILY`, all by default.
        options: those of `measure_coherence`.
    """
    unknown = [each for each in members if each not in FAMILY]
    if unknown:
        raise InputError(f"Unknown member {unknown[0]!r}. Choose from {', '.join(FAMILY)}.")
    from finetti.latent import GaussianProcessWorld

    targets = [load_predictor(each) for each in members]
    expected = {each: FAMILY[each].expected for each in members}
    world = GaussianProcessWorld() if world is None else world
    return measure_coherence(targets, world, context_lengths, expected=expected, **options)


def load_predictor(reference: str, directory: Any = ".") -> Predicts:
    """A member of the family by name, or yours as ``module:name`` or ``./file.py:Name``.

    >>> load_predictor("softmax").linear
    True
    """
    if reference in FAMILY:
        from finetti.core.precision import float64

        with float64():
            return as_predictor(FAMILY[reference].make(), name=reference)
    return as_predictor(load_target(reference, FAMILY, directory), name=reference)
