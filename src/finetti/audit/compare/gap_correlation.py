"""Do the norms of a training run's checkpoints follow its generalization gap? Rank correlations."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetti.audit.compare.audit_comparison import AuditComparison
from finetti.audit.compare.rank_correlation import FEWEST, rank_correlation
from finetti.core.errors import InputError, bad_argument
from finetti.core.files import read_file
from finetti.core.statistics.intervals import Interval
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

AS_IF = (
    "Intervals are as if checkpoints were independent draws. Those of one run follow each other, "
    "and whatever grows with training correlates with whatever else does."
)


@dataclass(frozen=True)
class MeasureCorrelation:
    """Spearman's ρ of a measure with the gap, None where the measure never changes.

    ``verdict`` is "rises with the gap", "falls with the gap" or "inconclusive".
    """

    measure: str
    value: float | None
    interval: Interval | None
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        ends = None if self.interval is None else [self.interval.low, self.interval.high]
        shown = {"measure": self.measure, "spearman": self.value}
        return shown | {"interval": ends, "verdict": self.verdict}


@dataclass(frozen=True)
class GapCorrelations(Displayable):
    """All measures of a series of checkpoints against its gaps, the strongest first."""

    n_checkpoints: int
    confidence: float
    rows: tuple[MeasureCorrelation, ...]

    def row(self, measure: str) -> MeasureCorrelation:
        """The row of a measure."""
        return next(each for each in self.rows if each.measure == measure)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        rows = [each.to_dict() for each in self.rows]
        sizes = {"n_checkpoints": self.n_checkpoints, "confidence": self.confidence}
        return sizes | {"rows": rows, "note": AS_IF}

    def table(self) -> Table:
        """A row per measure."""
        rows = []
        for each in self.rows:
            ends = (None, None)
            if each.interval is not None:
                ends = (each.interval.low, each.interval.high)
            rows.append((each.measure, each.value, *ends, each.verdict))
        title = f"Rank correlation with the gap, {self.n_checkpoints} checkpoints"
        return Table(title, ("measure", "Spearman ρ", "from", "to", "verdict"), tuple(rows))

    def __card__(self) -> Card:
        notes = [f"Together, intervals hold with {100 * self.confidence:g} %. {AS_IF}"]
        if self.n_checkpoints < FEWEST:
            notes = [f"Fewer than {FEWEST} checkpoints say nothing: every verdict is inconclusive."]
        return Card("Norms and gaps", (), (self.table(),), tuple(notes))


def correlate_gaps(
    compared: AuditComparison, gaps: Sequence[float] | Mapping[str, float], confidence: float = 0.95
) -> GapCorrelations:
    """Rank correlation of every measure with the generalization gap.

    The intervals hold together (each at 1 − (1 − confidence)/number of measures, Bonferroni); below
    eight checkpoints there are none, and every verdict is "inconclusive".

    Args:
        compared: of `compare_audits`, the checkpoints of one run or of several.
        gaps: a number for each checkpoint, in their order or by their names.
        confidence: of all intervals together.
    """
    owner = "correlate_gaps"
    if not 0 < confidence < 1:
        raise bad_argument("confidence", owner, "in (0, 1)", confidence)
    if isinstance(gaps, Mapping):
        gaps = match_gaps(compared.names, gaps)
    if len(gaps) != len(compared.names):
        raise bad_argument("gaps", owner, f"{len(compared.names)}, one a checkpoint", len(gaps))
    each = 1 - (1 - confidence) / max(1, len(compared.measures))
    rows = []
    for name, values in compared.measures.items():
        value, interval = rank_correlation(values, gaps, each)
        rows.append(MeasureCorrelation(name, value, interval, _verdict(interval)))
    rows.sort(key=lambda row: -abs(row.value or 0.0))
    return GapCorrelations(len(gaps), confidence, tuple(rows))


def _verdict(interval: Interval | None) -> str:
    if interval is None or interval.low <= 0 <= interval.high:
        return "inconclusive"
    return "rises with the gap" if interval.low > 0 else "falls with the gap"


def match_gaps(names: Sequence[str], gaps: Mapping[str, float]) -> list[float]:
    """The gap of every checkpoint, in their order; refused if one has none.

    >>> match_gaps(["runs/step-2", "runs/step-1"], {"step-1": 0.1, "step-2": 0.3})
    [0.3, 0.1]
    """
    rows: dict[str, str] = {}
    for name in names:
        row = _row_of(name, gaps)
        if row in rows:
            raise InputError(
                f"{rows[row]} and {name} have the same gap, that of {row}. Name every checkpoint "
                "by as much of its path as tells it from the others."
            )
        rows[row] = name
    return [gaps[row] for row in rows]


def _row_of(name: str, gaps: Mapping[str, float]) -> str:
    """How ``gaps`` names a checkpoint: by its name, or by the longest end of its path."""
    parts = Path(name).parts
    for row in (name, *(str(Path(*parts[start:])) for start in range(len(parts)))):
        if row in gaps:
            return row
    raise InputError(f"There is no gap for {name}; found {', '.join(list(gaps)[:5])}.")


def read_gaps(path: str | Path) -> dict[str, float]:
    """Gaps by checkpoint, from a CSV file with the columns ``checkpoint`` and ``gap``."""
    path = Path(path)
    content = read_file(path)
    try:
        text = content.decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path.name} cannot be read as CSV: {str(error)[:120]}.") from error
    found: dict[str, float] = {}
    for number, row in enumerate(rows, start=2):
        name, text = row.get("checkpoint"), row.get("gap")
        if not name or text is None:
            raise InputError(
                f"Line {number} of {path.name} has no checkpoint or no gap; expected a first line "
                "`checkpoint,gap` and one line for each."
            )
        if name in found:
            raise InputError(f"{path.name} has {name} twice.")
        try:
            found[name] = float(text)
        except ValueError as error:
            raise _no_number(name, path, text) from error
        if not math.isfinite(found[name]):
            raise _no_number(name, path, text)
    if not found:
        raise InputError(f"{path.name} holds no gaps.")
    return found


def _no_number(name: str, path: Path, text: str) -> InputError:
    return InputError(
        f"The gap of {name} in {path.name} is {text[:40]!r}; expected a finite number."
    )
