"""The result of a coherence run: measurements of targets in a world, verdicts and the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from finetti.coherence.defects.defect import Defect
from finetti.coherence.predictors.context_predictor import LAW
from finetti.coherence.predictors.world_predictor import world_predictor
from finetti.coherence.truth_distance import Distance
from finetti.core.plain_data import field_values, to_plain
from finetti.display import Card, RunResult, Table, format_number
from finetti.latent.world import LatentModel

COLUMNS = ("order", "martingale", "two-step")
OF_TWO_LETTERS = ("order", "martingale = two-step")  # the same number, and shown once


@dataclass(frozen=True, eq=False)
class CoherenceRow:
    """The measurements of one target at one context length.

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
        """Return the defects in the order of the columns."""
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
        return field_values(self, "as_expected")


@dataclass(frozen=True)
class CoherenceVerdict:
    """The verdict on one target over all context lengths.

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
        return {**field_values(self), "verdict": self.text}


@dataclass(frozen=True, eq=False)
class CoherenceFindings(RunResult):
    """Targets and their defects in one world, without the page."""

    page_name: ClassVar[str] = "coherence.html"

    world: LatentModel
    rows: tuple[CoherenceRow, ...]
    seed: int

    @property
    def as_expected(self) -> bool:
        """Whether all verdicts are those that were expected."""
        return all(row.as_expected for row in self.rows)

    @property
    def context_lengths(self) -> tuple[int, ...]:
        """Return the context lengths in rising order."""
        return tuple(sorted({row.context_length for row in self.rows}))

    @property
    def columns(self) -> tuple[str, ...]:
        """The defects that are shown."""
        return OF_TWO_LETTERS if self.n_letters == 2 else COLUMNS

    @property
    def n_letters(self) -> int | None:
        """Return the number of letters of the world; None for pairs."""
        return getattr(world_predictor(self.world), "n_letters", None)

    @property
    def verdicts(self) -> tuple[CoherenceVerdict, ...]:
        """Return the verdict on each target, over all context lengths."""
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
        """Return the units of the distances: spread (of the values), nats or probability."""
        return tuple(dict.fromkeys(row.distance.unit for row in self.rows if row.distance))

    @property
    def notes(self) -> tuple[str, ...]:
        """Explain how to read the table."""
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
        """Advise what to supply, so that missing parts can be measured."""
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
        """Return the result in one sentence, over all context lengths."""
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
        document = {
            "world": self.world.name,
            "seed": self.seed,
            "context_lengths": list(self.context_lengths),
            "headline": self.headline,
            "as_expected": self.as_expected,
            "verdicts": self.verdicts,
            "rows": self.rows,
        }
        return to_plain(document, nan="NaN")

    @property
    def surprises(self) -> tuple[str, ...]:
        """Members of the family that do not behave as expected."""
        names = sorted({row.name for row in self.rows if not row.as_expected})
        return (f"Not as expected: {', '.join(names)}.",) if names else ()

    def __card__(self) -> Card:
        return Card(self.headline, (("world", self.world.name),), (self.table(),), self.notes)


def _distance_cell(distance: Distance | None, with_unit: bool) -> str:
    if distance is None:
        return "–"
    return f"{distance.text} {distance.unit}" if with_unit else distance.text


def _moves_cell(moves: float | None) -> str:
    return "–" if moves is None else format_number(moves, 2)


def _verdict(rows: Sequence[CoherenceRow], columns: Sequence[str]) -> CoherenceVerdict:
    """Return the verdict on one target from its rows at all lengths."""
    failed = (row for row in rows if any(each and not each.holds() for each in row.defects))
    measured = zip(columns, *(row.defects[: len(columns)] for row in rows), strict=True)
    left_out = (name for name, *found in measured if None in found)
    return CoherenceVerdict(
        rows[0].name, tuple(row.context_length for row in failed), tuple(left_out)
    )
