"""Do the norms of a training run's checkpoints follow its generalization gap? Rank correlations."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.special import ndtri

from finetti.audit.compare.audit_comparison import AuditComparison
from finetti.core.arguments import check_finite, check_share
from finetti.core.errors import InputError, bad_argument
from finetti.core.files import read_file
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.core.plain_data import field_values, to_plain
from finetti.core.statistics.intervals import Interval
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

MIN_PAIRS = 8  # checkpoints below which there is no interval
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
        """Return plain data."""
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
        """Return the row of a measure."""
        return next(each for each in self.rows if each.measure == measure)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain({**field_values(self), "note": AS_IF})

    def table(self) -> Table:
        """Return a row per measure."""
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
        if self.n_checkpoints < MIN_PAIRS:
            notes = [
                f"Fewer than {MIN_PAIRS} checkpoints say nothing: every verdict is inconclusive."
            ]
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
    check_share(confidence, "confidence", owner)
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
    """Return the gap of every checkpoint, in their order; refused if one has none.

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
    """Return how ``gaps`` names a checkpoint: by its name, or by the longest end of its path."""
    parts = Path(name).parts
    for row in (name, *(str(Path(*parts[start:])) for start in range(len(parts)))):
        if row in gaps:
            return row
    raise InputError(f"There is no gap for {name}; found {', '.join(list(gaps)[:5])}.")


def rank_correlation(
    first: ArrayLike, second: ArrayLike, confidence: float = 0.95
) -> tuple[float | None, Interval | None]:
    """Spearman's ρ of two rows of numbers, and its interval.

    ``tanh(artanh ρ ± z √((1 + ρ²/2)/(n − 3)))`` (D. G. Bonett and T. A. Wright, Psychometrika 65,
    2000). At ρ = ±1 the interval ends there and begins where it would for the nearest ρ without
    ties. ρ is None where one row is constant, the interval is None below eight pairs.

    >>> value, interval = rank_correlation(range(8), [0, 1, 2, 3, 4, 5, 7, 6])
    >>> round(value, 3), round(interval.low, 2), round(interval.high, 3)
    (0.976, 0.82, 0.997)
    >>> rank_correlation([1, 2, 3], [1, 2, 4])
    (1.0, None)
    """
    rows = [np.asarray(each, np.float64) for each in (first, second)]
    for row, name in zip(rows, ("measure", "gaps"), strict=True):
        check_finite(row, name, "correlate_gaps")
    count = len(rows[0])
    if count < 2 or any(row.min() == row.max() for row in rows):
        return None, None
    # Whole and half numbers are exact: of equal ranks ρ is 1, which `spearmanr` rounds.
    ranks = [scipy.stats.rankdata(row) - (count + 1) / 2 for row in rows]
    value = float(ranks[0] @ ranks[1] / math.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))
    value = smallest_of(1.0, largest_of(-1.0, value))
    if count < MIN_PAIRS:
        return value, None
    limit = 1 - 6 / (count * (count**2 - 1))
    inner = smallest_of(limit, largest_of(-limit, value))
    reach = float(ndtri((1 + confidence) / 2)) * math.sqrt((1 + inner**2 / 2) / (count - 3))
    low, high = (math.tanh(math.atanh(inner) + sign * reach) for sign in (-1, 1))
    low, high = (-1.0 if value <= -limit else low), (1.0 if value >= limit else high)
    return value, Interval(low, high, confidence, "spearman")


def read_gaps(path: str | Path) -> dict[str, float]:
    """Return gaps by checkpoint, from a CSV file with the columns ``checkpoint`` and ``gap``."""
    import pandas as pd  # seconds, which other audits do not wait for

    path = Path(path)
    content = read_file(path)
    try:
        table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise InputError(f"{path.name} cannot be read as CSV: {str(error)[:120]}.") from error
    if not {"checkpoint", "gap"} <= set(table.columns):
        raise InputError(
            f"{path.name} has no columns checkpoint and gap; expected a first line "
            "`checkpoint,gap` and one line for each."
        )
    found: dict[str, float] = {}
    for name, text in zip(table["checkpoint"], table["gap"], strict=True):
        if name in found:
            raise InputError(f"{path.name} has {name} twice.")
        found[name] = _finite(text)
        if not name or not math.isfinite(found[name]):
            raise InputError(
                f"The gap of {name!r} in {path.name} is {text[:40]!r}; expected a name and a "
                "finite number."
            )
    if not found:
        raise InputError(f"{path.name} holds no gaps.")
    return found


def _finite(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
