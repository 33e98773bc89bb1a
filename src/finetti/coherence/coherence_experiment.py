"""Measures targets in a world, by default attention as one family of regressions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from finetti.coherence.coherence_page import CoherenceTable
from finetti.coherence.coherence_result import COLUMNS, CoherenceRow
from finetti.coherence.defects.context_orders import all_letters
from finetti.coherence.defects.martingale_defect import (
    martingale_defect,
    one_letter_moves,
    one_pair_moves,
)
from finetti.coherence.defects.order_defect import order_defect
from finetti.coherence.defects.two_step_defect import two_step_defect
from finetti.coherence.predictors.context_predictor import AlphabetPredictor, RegressionPredictor
from finetti.coherence.predictors.predictor_loading import Predicts, as_predictor, load_target
from finetti.coherence.predictors.world_predictor import has_predictive, world_predictor
from finetti.coherence.truth_distance import distance_at
from finetti.core.arguments import as_whole, one_hot
from finetti.core.errors import InputError
from finetti.core.numerics.random_keys import generator
from finetti.display import Progress, progress_bar
from finetti.latent.named_worlds import worlds
from finetti.latent.world import LatentModel, Pairs

N_STEPS = len(COLUMNS) + 1  # and the distance
RIDGE = 0.1
SHORTEST = 3  # of the family: nearest neighbors ask three
CONTEXT_LENGTHS = (4, 8, 12)
N_CONTEXTS, N_QUERIES, N_ORDERS = 20, 6, 5
N_SEQUENCES, N_SAMPLES = 200, 100
# Where there are no more than this many times the contexts asked for, all of them are taken: it
# takes about as many answers as the orders and next letters of those drawn.
ENUMERATED = 16
NAMED = (None, 2, 3)  # letters of worlds that commands know by name; None for pairs


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


def load_predictor(reference: str, directory: Any = ".") -> Predicts:
    """A member of the family by name, or yours as ``module:name`` or ``./file.py:Name``.

    >>> load_predictor("softmax").linear
    True
    """
    if reference in FAMILY:
        from finetti.core.numerics.float64 import float64

        with float64():
            return as_predictor(FAMILY[reference].make(), name=reference)
    return as_predictor(load_target(reference, FAMILY, directory), name=reference)


def measure_coherence(
    targets: Iterable[Any] | None = None,
    world: LatentModel | str | None = None,
    context_lengths: Sequence[int] = CONTEXT_LENGTHS,
    *,
    noise_variance: float | None = None,
    n_contexts: int = N_CONTEXTS,
    n_queries: int = N_QUERIES,
    n_orders: int = N_ORDERS,
    n_sequences: int = N_SEQUENCES,
    n_samples: int = N_SAMPLES,
    n_paths: int = 1000,
    seed: int = 0,
    quiet: bool = False,
    on_change: Callable[[Progress], None] | None = None,
) -> CoherenceTable:
    """Order, martingale and two-step defects of targets, and their distance to a world's answer.

    It is ``finetti coherence`` in Python. The result prints its table, draws its page
    (``result.write_page("coherence")``) and has all numbers (``result.to_dict()``).

    Args:
        targets: anything that `as_predictor` takes, or names as `load_predictor` knows them; the
            whole family by default.
        world: whose tokens they read, or its name; its own predictive is the truth, and the
            simulated null of targets that can only be sampled. One that fits the targets by
            default: for pairs a Gaussian process over 3 dimensions with the RBF kernel and noise of
            variance 0.1, in which ``cme`` is the exact predictive.
        context_lengths: n.
        noise_variance: of a new value, for targets that answer with a mean only.
        n_contexts: contexts of which the defects are measured; of letters, all that there are if
            they are at most 16 times as many.
        n_queries: queries of each, which are also the places of new pairs.
        n_orders: orders that are tried of each.
        n_sequences: contexts over which the distance is averaged.
        n_samples: draws of a next value, of laws that are not linear in the values.
        n_paths: draws per context, of a target that can only be sampled.
        seed: of all draws.
        quiet: no progress bar.
        on_change: called before each part, of which every target has `N_STEPS` at every length.

    >>> from finetti.latent import BetaBernoulli
    >>> laplace = as_predictor(lambda tokens: [0.5, 0.5], name="never learns")
    >>> table = measure_coherence([laplace], BetaBernoulli(), n_sequences=50)
    >>> [each.text for each in table.rows[0].defects if each], table.rows[0].distance.value > 0.01
    (['✓', '✓'], True)
    """
    lengths = sorted(
        {as_whole(each, "context_lengths", "measure_coherence") for each in context_lengths}
    )
    given = list(FAMILY if targets is None else targets)
    members = {each: FAMILY[each] for each in given if isinstance(each, str) and each in FAMILY}
    if members and min(lengths) < SHORTEST:
        raise InputError(
            f"`context_lengths` must be at least {SHORTEST} for members of the family: fewer pairs "
            f"have too few orders and neighbors. Got {min(lengths)} instead."
        )
    found = [
        as_predictor(
            load_predictor(each) if isinstance(each, str) else each, noise_variance=noise_variance
        )
        for each in given
    ]
    world = choose_world(world, found)
    truth = world_predictor(world)
    for each in found:
        _refuse_other_tokens(each, truth, world)
    sizes = {"n_contexts": n_contexts, "n_queries": n_queries, "n_sequences": n_sequences}
    sizes |= {"n_orders": n_orders, "n_samples": n_samples, "n_paths": n_paths, "seed": seed}
    expected = {name: member.expected for name, member in members.items()}
    total = N_STEPS * len(found) * len(lengths)
    with progress_bar("coherence", total, not quiet and on_change is None, "parts") as on_bar:
        rows = _measure(found, world, lengths, expected, on_change or on_bar, sizes)
    return CoherenceTable(world, rows, seed)


def choose_world(world: LatentModel | str | None, predictors: Sequence[Predicts]) -> LatentModel:
    """The world that is given or named; else one whose tokens the predictors can read."""
    if isinstance(world, LatentModel):
        return world
    if world is None:
        letters = {getattr(each, "n_letters", None) for each in predictors}
        fitting = "finite-atoms" if letters == {3} else "gaussian-process"
        world = "beta-bernoulli" if letters == {2} else fitting
    if world not in worlds:
        known = [each for each, make in worlds.items() if has_predictive(make())]
        raise InputError(f"Unknown world {world!r}. Choose one of {', '.join(known)}.")
    return worlds[world]()


def _measure(
    found: Sequence[Predicts],
    world: LatentModel,
    lengths: Sequence[int],
    expected: Mapping[str, tuple[bool | None, ...]],
    on_change: Callable[[Progress], None],
    sizes: Mapping[str, int],
) -> tuple[CoherenceRow, ...]:
    """Measure all targets at all lengths; ``sizes`` are those of `measure_coherence`."""
    n_contexts, seed = sizes["n_contexts"], sizes["seed"]
    options: dict[str, Any] = {"n_paths": sizes["n_paths"], "reference": world, "seed": seed}
    draws = {"n_samples": sizes["n_samples"], **options}
    rows: list[CoherenceRow] = []
    for length in lengths:
        rng = generator("coherence", seed, world.name, length)
        tokens = world.sample(rng, n_contexts, length + sizes["n_queries"]).tokens
        for each in found:
            read = _readable(tokens, each)
            context, query = _split(read, length)
            every = _all_contexts(each, length, n_contexts)
            context = context if every is None else every

            def begin(part: int, what: str) -> None:
                activity = f"{each.name}: {what}, {length} tokens"  # noqa: B023 - called here
                on_change(Progress(N_STEPS * len(rows) + part, 0, activity))

            begin(0, "order")
            order = order_defect(each, context, query, n_orders=sizes["n_orders"], **options)
            moves = two = distance = None
            begin(1, "martingale")
            if _has_future(each, query, context):
                moves = martingale_defect(each, context, query, **draws)
            begin(2, "two-step")
            if _has_two_steps(each):
                two = two_step_defect(each, context, query, **draws)
            begin(3, "distance to the truth")
            if not getattr(each, "categorical", False):
                distance = distance_at(each, world, length, sizes["n_sequences"], seed)
            order, moves, two = (
                found and replace(found, all_contexts=every is not None)
                for found in (order, moves, two)
            )
            assert order is not None
            known = expected.get(each.name, (None, None, None))
            moved = _one_token_moves(each, context, query, read)
            rows.append(CoherenceRow(each.name, length, order, moves, two, distance, known, moved))
    return tuple(rows)


def _one_token_moves(predictor: Predicts, context: Any, query: Any, tokens: Any) -> float | None:
    """On average; unknown where a target can only be sampled."""
    if isinstance(predictor, AlphabetPredictor):
        return one_letter_moves(predictor, context)
    if not isinstance(predictor, RegressionPredictor):
        return None
    length = context.keys.shape[1]
    return one_pair_moves(
        predictor, context, query, tokens.keys[:, length], tokens.values[:, length]
    )


def _readable(tokens: Any, predictor: Predicts) -> Any:
    """Return the tokens as ``predictor`` reads them: for a classifier signs become classes."""
    if not getattr(predictor, "categorical", False):
        return tokens
    return Pairs(tokens.keys, one_hot((tokens.values[:, :, 0] > 0).astype(int), 2))


def _has_future(predictor: Predicts, query: Any, context: Any) -> bool:
    """Whether its own next value has a law, or only its mean matters."""
    if not isinstance(predictor, RegressionPredictor):
        return True
    return predictor.has_law or predictor.categorical or predictor.is_linear(query, *context)


def _has_two_steps(predictor: Predicts) -> bool:
    """Whether there are two steps that the martingale defect does not show already."""
    if isinstance(predictor, RegressionPredictor):
        return predictor.has_law or predictor.categorical
    return predictor.n_letters != 2


def _all_contexts(predictor: Predicts, length: int, n_contexts: int) -> Any:
    """All contexts of this many letters, where that is affordable; else None."""
    if not isinstance(predictor, AlphabetPredictor):
        return None
    count = predictor.n_letters**length
    return all_letters(predictor.n_letters, length) if count <= ENUMERATED * n_contexts else None


def _split(tokens: Any, length: int) -> tuple[Any, Any]:
    """The context, and the keys of the tokens after it as queries."""
    if not isinstance(tokens, Pairs):
        return tokens[:, :length], None
    return Pairs(tokens.keys[:, :length], tokens.values[:, :length]), tokens.keys[:, length:]


def _refuse_other_tokens(predictor: Predicts, truth: Predicts, world: LatentModel) -> None:
    letters = [getattr(each, "n_letters", None) for each in (predictor, truth)]
    if letters[0] != letters[1]:
        kinds = ["pairs" if each is None else f"{each} letters" for each in letters]
        advice = "Choose another world, or another target."
        if letters[0] not in NAMED:
            advice = (
                f"No world by name has {kinds[0]}: in Python, give measure_coherence one of your "
                "own, as FiniteAtoms(prior, LetterEmission(table)) with a column of the table for "
                "each letter."
            )
        raise InputError(
            f"{predictor.name} reads {kinds[0]}, but the world {world.name} has {kinds[1]}. "
            f"{advice}"
        )
