"""All that is measured of a target in a world: one row of the table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finetti.coherence.defects.context_orders import all_letters
from finetti.coherence.defects.defect import Defect
from finetti.coherence.defects.martingale_defect import (
    martingale_defect,
    one_letter_moves,
    one_pair_moves,
)
from finetti.coherence.defects.order_defect import order_defect
from finetti.coherence.defects.two_step_defect import two_step_defect
from finetti.coherence.predictors.context_predictor import (
    LAW,
    AlphabetPredictor,
    RegressionPredictor,
)
from finetti.coherence.predictors.predictor_loading import Predicts, as_predictor
from finetti.coherence.predictors.world_predictor import world_predictor
from finetti.coherence.truth_distance import Distance, distance_at
from finetti.core.arguments import one_hot
from finetti.core.errors import InputError
from finetti.core.keys import generator
from finetti.core.numbers import as_whole
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_number
from finetti.display.progress import Progress
from finetti.latent.world import LatentModel, Pairs

COLUMNS = ("order", "martingale", "two-step")
OF_TWO_LETTERS = ("order", "martingale = two-step")  # the same number, and shown once
PARTS = len(COLUMNS) + 1  # and the distance
N_CONTEXTS, N_QUERIES, N_ORDERS = 20, 6, 5
N_SEQUENCES, N_SAMPLES = 200, 100
# Where there are no more than this many times the contexts asked for, all of them are taken: it
# takes about as many answers as the orders and next letters of those drawn.
ENUMERATED = 16
NAMED = (None, 2, 3)  # letters of worlds that commands know by name; None for pairs


@dataclass(frozen=True, eq=False)
class CoherenceRow:
    """What was measured of one target at one context length.

    Without a law there are no two steps, and, unless answers are linear in the values, no own next
    value to see. With two letters two steps are the martingale defect, and are not measured again.
    A classifier reads the signs of a world's values, of which no exact predictive is known, and has
    no distance. ``expected`` says which defects it should not have, True, and which it should.
    ``one_token_moves`` is how much an answer changes on average when one more token is seen: what
    order and martingale defects are large or small beside (two-step defects of pairs beside its
    square).
    """

    name: str
    context_length: int
    order: Defect
    martingale: Defect | None
    two_step: Defect | None
    distance: Distance | None
    expected: tuple[bool | None, ...] = (None, None, None)
    one_token_moves: float | None = None

    @property
    def defects(self) -> tuple[Defect | None, ...]:
        """In the order of the columns."""
        return self.order, self.martingale, self.two_step

    @property
    def as_expected(self) -> bool:
        """Whether every verdict that was expected is there."""
        return all(
            wanted is None or (found is not None and found.holds() is wanted)
            for wanted, found in zip(self.expected, self.defects, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        named = zip(COLUMNS, self.defects, self.expected, strict=True)
        found = {
            name: None if each is None else {**each.to_dict(), "expected": wanted}
            for name, each, wanted in named
        }
        own = {"name": self.name, "context_length": self.context_length}
        far = None if self.distance is None else self.distance.to_dict()
        moves = {"one_token_moves": self.one_token_moves}
        return {**own, **found, **moves, "distance": far, "as_expected": self.as_expected}


@dataclass(frozen=True)
class CoherenceVerdict:
    """What all context lengths together say of one target.

    Args:
        name: of the target.
        defects_at: context lengths at which it has a defect.
        not_measured: columns that are not measured at every length; one defect is enough for "not
            coherent", but "coherent" needs all of them.
    """

    name: str
    defects_at: tuple[int, ...]
    not_measured: tuple[str, ...]

    @property
    def text(self) -> str:
        """coherent, not coherent, or undecided."""
        if self.defects_at:
            return "not coherent"
        return "undecided" if self.not_measured else "coherent"

    @property
    def reason(self) -> str:
        """Why it is undecided."""
        return f"{' and '.join(self.not_measured)} not measured"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "verdict": self.text,
            "defects_at": list(self.defects_at),
            "not_measured": list(self.not_measured),
        }


@dataclass(frozen=True, eq=False)
class CoherenceTable(Displayable):
    """Targets and their defects in one world."""

    world: LatentModel
    rows: tuple[CoherenceRow, ...]
    seed: int

    @property
    def as_expected(self) -> bool:
        """Whether all verdicts are those that were expected."""
        return all(row.as_expected for row in self.rows)

    @property
    def context_lengths(self) -> tuple[int, ...]:
        """In rising order."""
        return tuple(sorted({row.context_length for row in self.rows}))

    @property
    def columns(self) -> tuple[str, ...]:
        """The defects that are shown."""
        return OF_TWO_LETTERS if self.n_letters == 2 else COLUMNS

    @property
    def n_letters(self) -> int | None:
        """How many letters the world has; None for pairs."""
        return getattr(world_predictor(self.world), "n_letters", None)

    @property
    def verdicts(self) -> tuple[CoherenceVerdict, ...]:
        """Of every target, over all context lengths."""
        by_length = (self._at(length) for length in self.context_lengths)
        return tuple(_verdict(rows, self.columns) for rows in zip(*by_length, strict=True))

    def table(self, context_length: int | None = None) -> Table:
        """✓ or the size of every defect, at one context length.

        By default at the longest, with a last column that says at which ones there are defects.
        """
        length = self.context_lengths[-1] if context_length is None else context_length
        one = len(self.units) == 1
        far = f"distance ({self.units[0]})" if one else "distance"
        columns = ("target", *self.columns, "one token moves", far)
        rows = [
            (
                row.name,
                *("–" if each is None else each.text for each in row.defects[: len(self.columns)]),
                _moves_cell(row.one_token_moves),
                _distance_cell(row.distance, with_unit=not one),
            )
            for row in self._at(length)
        ]
        if context_length is None and len(self.context_lengths) > 1:
            columns = (*columns, "defects at")
            found = [", ".join(map(str, each.defects_at)) or "none" for each in self.verdicts]
            rows = [(*row, lengths) for row, lengths in zip(rows, found, strict=True)]
        return Table(f"Coherence, {length} tokens", columns, tuple(rows))

    def _at(self, context_length: int) -> list[CoherenceRow]:
        return [row for row in self.rows if row.context_length == context_length]

    @property
    def units(self) -> tuple[str, ...]:
        """Of distances to the truth: spread (of the values), nats or probability."""
        return tuple(dict.fromkeys(row.distance.unit for row in self.rows if row.distance))

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read the table."""
        return (
            f"✓: none up to rounding, or up to a test at 1 %. Otherwise the median, and the "
            f"largest, over contexts and queries, in {self._unit}. “Largest” is over all contexts "
            "and orders of this length, “largest seen” only over those tried, and no bound. “One "
            "token moves”: how far an answer moves on average when it sees one more token, to "
            "compare defects with. –: not measured; a classifier, which reads the signs of the "
            "values, has no exact answer.",
            *self._advice,
        )

    @property
    def _advice(self) -> tuple[str, ...]:
        """What to give, so that what is not measured can be."""
        names = [each.name for each in self.verdicts if each.text == "undecided"]
        if not names:
            return ()
        return (
            f"Undecided: {', '.join(names)}. Without a law there are no two steps, and, unless "
            f"answers are linear in the values, no next value of its own. {LAW}.",
        )

    @property
    def _unit(self) -> str:
        if self.n_letters is not None:
            return "total variation"
        return "units of the values' spread (two-step: its square; classes: of probability)"

    @property
    def headline(self) -> str:
        """In one sentence, over all context lengths."""
        found = self.verdicts
        good = [each.name for each in found if each.text == "coherent"]
        undecided = [each for each in found if each.text == "undecided"]
        if len(found) == 1 and not good:
            (only,) = found
            if undecided:
                return f"{only.name} is undecided ({only.reason})"
            return f"{only.name} is not coherent"
        if not good and not undecided:
            return f"None of {len(found)} is coherent"
        text = f"{len(good)} of {len(found)} coherent" + (f": {', '.join(good)}" if good else "")
        rest = ", ".join(f"{each.name} ({each.reason})" for each in undecided)
        return text + (f"; undecided: {rest}" if rest else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "world": self.world.name,
            "seed": self.seed,
            "context_lengths": list(self.context_lengths),
            "headline": self.headline,
            "as_expected": self.as_expected,
            "verdicts": [each.to_dict() for each in self.verdicts],
            "rows": [row.to_dict() for row in self.rows],
        }

    def __card__(self) -> Card:
        return Card(self.headline, (("world", self.world.name),), (self.table(),), self.notes)


def measure_coherence(
    targets: Iterable[Any],
    world: LatentModel,
    context_lengths: Sequence[int] = (12,),
    *,
    expected: dict[str, tuple[bool | None, ...]] | None = None,
    n_contexts: int = N_CONTEXTS,
    n_queries: int = N_QUERIES,
    n_orders: int = N_ORDERS,
    n_sequences: int = N_SEQUENCES,
    n_samples: int = N_SAMPLES,
    n_paths: int = 1000,
    seed: int = 0,
    on_change: Callable[[Progress], None] | None = None,
) -> CoherenceTable:
    """Order, martingale and two-step defects of targets, and their distance to a world's answer.

    Args:
        targets: anything that `as_predictor` takes.
        world: whose tokens they read; its own predictive is the truth, and the simulated null of
            targets that can only be sampled.
        context_lengths: n.
        expected: by name, which defects a target does not have (True) and which it has.
        n_contexts: contexts of which the defects are measured; of letters, all that there are if
            they are at most 16 times as many.
        n_queries: queries of each, which are also the places of new pairs.
        n_orders: orders that are tried of each.
        n_sequences: contexts over which the distance is averaged.
        n_samples: draws of a next value, of laws that are not linear in the values.
        n_paths: draws per context, of a target that can only be sampled.
        seed: of all draws.
        on_change: called before each part, of which every target has `PARTS` at every length.

    >>> from finetti.latent import BetaBernoulli
    >>> laplace = as_predictor(lambda tokens: [0.5, 0.5], name="never learns")
    >>> table = measure_coherence([laplace], BetaBernoulli(), n_sequences=50)
    >>> [each.text for each in table.rows[0].defects if each], table.rows[0].distance.value > 0.01
    (['✓', '✓'], True)
    """
    expected = expected or {}
    truth, found = world_predictor(world), [as_predictor(target) for target in targets]
    lengths = sorted(
        {as_whole(each, "context_lengths", "measure_coherence") for each in context_lengths}
    )
    for each in found:
        _refuse_other_tokens(each, truth, world)
    options: dict[str, Any] = {"n_paths": n_paths, "reference": truth, "seed": seed}
    rows: list[CoherenceRow] = []
    for length in lengths:
        rng = generator("coherence", seed, world.name, length)
        draw = world.sample(rng, n_contexts, length + n_queries)
        for each in found:
            context, query = _split(_readable(draw.tokens, each), length)
            every = _all_contexts(each, length, n_contexts)
            context = context if every is None else every

            def begin(part: int, what: str) -> None:
                if on_change is not None:
                    activity = f"{each.name}: {what}, {length} tokens"  # noqa: B023 - called here
                    on_change(Progress(PARTS * len(rows) + part, 0, activity))

            begin(0, "order")
            order = order_defect(each, context, query, n_orders=n_orders, **options)
            moves = two = distance = None
            begin(1, "martingale")
            if _has_future(each, query, context):
                moves = martingale_defect(each, context, query, n_samples=n_samples, **options)
            begin(2, "two-step")
            if _has_two_steps(each):
                two = two_step_defect(each, context, query, n_samples=n_samples, **options)
            begin(3, "distance to the truth")
            if not getattr(each, "categorical", False):
                distance = distance_at(each, world, length, n_sequences, seed)
            order, moves, two = (
                found and replace(found, all_contexts=every is not None)
                for found in (order, moves, two)
            )
            assert order is not None
            known = expected.get(each.name, (None, None, None))
            moved = _one_token_moves(each, context, query, _readable(draw.tokens, each))
            rows.append(CoherenceRow(each.name, length, order, moves, two, distance, known, moved))
    return CoherenceTable(world, tuple(rows), seed)


def _distance_cell(distance: Distance | None, with_unit: bool) -> str:
    if distance is None:
        return "–"
    return f"{distance.text} {distance.unit}" if with_unit else distance.text


def _moves_cell(moves: float | None) -> str:
    return "–" if moves is None else format_number(moves, 2)


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


def _verdict(rows: Sequence[CoherenceRow], columns: Sequence[str]) -> CoherenceVerdict:
    """Of one target, from what was measured at each length."""
    failed = (row for row in rows if any(each and not each.holds() for each in row.defects))
    measured = zip(columns, *(row.defects[: len(columns)] for row in rows), strict=True)
    left_out = (name for name, *found in measured if None in found)
    return CoherenceVerdict(
        rows[0].name, tuple(row.context_length for row in failed), tuple(left_out)
    )


def _readable(tokens: Any, predictor: Predicts) -> Any:
    """What ``predictor`` reads: for a classifier the signs of the values are the classes."""
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
