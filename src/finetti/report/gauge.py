"""A number against its limits, drawn as a small SVG: the rule of a measurement at a glance."""

import math
from dataclasses import dataclass
from html import escape

from finetti.display.formatting import format_interval, format_number

WIDTH, HEIGHT = 220, 36
LEFT, RIGHT, LINE = 9, WIDTH - 9, 12  # the ends of the axis, and where it lies
FAR = 30.0  # numbers whose ratio exceeds this are compared on a logarithmic axis
SIGNS = {True: "obeyed", False: "broken", None: "undecided"}


@dataclass(frozen=True)
class Gauge:
    """``value``, perhaps with an interval, and where it may lie.

    Args:
        value: the number.
        low: it should not lie below; -∞ if it may.
        high: nor above; ∞ if it may.
        holds: whether it obeys; None if that is undecided.
        interval: of the value.

    >>> Gauge(3e-16, high=1e-10, holds=True).text
    '3e-16 against the limit ≤ 1e-10: obeyed (logarithmic axis)'
    """

    value: float
    low: float = -math.inf
    high: float = math.inf
    holds: bool | None = None
    interval: tuple[float, float] | None = None

    @property
    def is_log(self) -> bool:
        """Whether the numbers are positive and so far apart that only their powers compare."""
        limits = [limit for limit in (self.low, self.high) if math.isfinite(limit)]
        numbers = [*limits, *self._ends]
        # An error of exactly 0 lies below every limit: at the left end of a logarithmic axis.
        positive = [number for number in numbers if 0 < number < math.inf]
        if min(limits, default=0.0) <= 0 or min(numbers) < 0 or not positive:
            return False
        return max(positive) > FAR * min(positive) or (0.0 in numbers and max(limits) < 1e-3)

    @property
    def text(self) -> str:
        """The drawing in words."""
        axis = " (logarithmic axis)" if self.is_log else ""
        number = format_interval(self.value, self.interval)
        return f"{number} against the limit {self._rule}: {SIGNS[self.holds]}{axis}"

    @property
    def svg(self) -> str:
        """The drawing; its colors are those of the page, its marks differ in shape as well."""
        known = [math.isfinite(number) for number in (self.value, self.low, self.high)]
        if math.isnan(self.value) or not any(known[1:]):
            return ""
        first, last = self._span()
        parts = [*self._ticks(first, last), *self._allowed(first, last), *self._mark(first, last)]
        return (
            f'<svg class="gauge" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" aria-label="{escape(self.text)}">'
            f'<path class="axis" d="M{LEFT} {LINE}H{RIGHT}"/>{"".join(parts)}</svg>'
        )

    @property
    def _rule(self) -> str:
        low, high = format_number(self.low), format_number(self.high)
        if math.isinf(self.low):
            return f"≤ {high}"
        return f"≥ {low}" if math.isinf(self.high) else f"in [{low}, {high}]"

    @property
    def _ends(self) -> tuple[float, float]:
        return (self.value, self.value) if self.interval is None else self.interval

    def _place(self, number: float) -> float:
        if not self.is_log:
            return number
        return math.log10(number) if number > 0 else -math.inf

    def _span(self) -> tuple[float, float]:
        """The ends of the axis: all that is drawn, with room around it."""
        numbers = (self.low, self.high, self.value, *self._ends)
        places = [place for place in map(self._place, numbers) if math.isfinite(place)]
        first, last = min(places), max(places)
        if self.is_log:
            return math.floor(first - 0.5), math.ceil(last + 0.5)
        room = 0.2 * (last - first) or 0.5 * abs(first) or 1.0
        return first - room, last + room

    def _x(self, number: float, first: float, last: float) -> float:
        share = (self._place(number) - first) / (last - first)
        return round(LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT), 1)

    def _allowed(self, first: float, last: float) -> list[str]:
        """Where the number may lie, and the limits with their names."""
        low, high = self._x(self.low, first, last), self._x(self.high, first, last)
        parts = [f'<rect class="allowed" x="{low}" y="4" width="{high - low:.1f}" height="16"/>']
        crowded = math.isfinite(self.low) and math.isfinite(self.high) and high - low < 56
        for limit, x, side in ((self.low, low, "end"), (self.high, high, "start")):
            if not math.isfinite(limit):
                continue
            at = side if crowded else "start" if x < 34 else "end" if x > WIDTH - 34 else "middle"
            parts.append(f'<path class="limit" d="M{x} 2V22"/>')
            parts.append(f'<text x="{x}" y="33" text-anchor="{at}">{format_number(limit)}</text>')
        return parts

    def _ticks(self, first: float, last: float) -> list[str]:
        """Powers of ten on a logarithmic axis; a linear one is told by its limits."""
        if not self.is_log:
            return []
        stride = max(1, math.ceil((last - first) / 12))
        powers = range(math.ceil(first), math.floor(last) + 1, stride)
        places = [self._x(10.0**power, first, last) for power in powers]
        return [f'<path class="tick" d="M{x} {LINE - 3}v6"/>' for x in places]

    def _mark(self, first: float, last: float) -> list[str]:
        """A dot where the rule is obeyed, a cross where it is broken, a ring where undecided."""
        parts = []
        if self.interval is not None:
            start, end = (self._x(number, first, last) for number in self.interval)
            ends = "".join(f"M{x} {LINE - 4}v8" for x in (start, end))
            parts.append(f'<path class="range" d="M{start} {LINE}H{end}{ends}"/>')
        x = self._x(self.value, first, last)
        if self.holds is False:
            cross = f"M{x - 4:.1f} {LINE - 4}l8 8m0 -8l-8 8"
            parts.append(f'<path class="value broken" d="{cross}"/>')
        else:
            name = "value" if self.holds else "value undecided"
            parts.append(f'<circle class="{name}" cx="{x}" cy="{LINE}" r="4.5"/>')
        return parts
