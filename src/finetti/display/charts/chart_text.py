"""A chart for those who do not see it, or want its numbers: in words, and as tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from finetti.display.card import Table
from finetti.display.formatting import format_number

KINDS = {"line": "Lines", "point": "Points", "bar": "Bars", "area": "Areas"}
INNER = ("layer", "hconcat", "vconcat", "concat", "spec")  # where Vega-Lite nests charts
MAX_NAMES = 8  # of lines, in a sentence


def chart_title(chart: Mapping[str, Any]) -> str:
    """The title of a Vega-Lite specification as one line; empty if it has none."""
    title = chart.get("title", "")
    text = title.get("text", "") if isinstance(title, Mapping) else title
    return " ".join(text) if isinstance(text, list) else str(text or "")


def describe_chart(chart: Mapping[str, Any]) -> str:
    """What is drawn, in sentences: title, axes with their ranges, and the names of the lines.

    >>> from finetti.display import line_chart
    >>> rows = [{"T": 8, "error": 0.5}, {"T": 32, "error": 0.125}]
    >>> describe_chart(line_chart(rows, "T", "error", log_x=True, title="It falls"))
    'It falls. Lines: error (0.125 to 0.5) against T (8 to 32, logarithmic).'
    """
    sentences = [chart_title(chart)]
    for panel in _panels(chart):
        title = chart_title(panel)
        sentences += [title if title != sentences[0] else "", _sentence(panel)]
    return " ".join(f"{each.rstrip('.')}." for each in sentences if each)


def chart_tables(chart: Mapping[str, Any]) -> tuple[Table, ...]:
    """The data of a Vega-Lite specification, in the order drawn; one table for each set of records.

    >>> from finetti.display import line_chart
    >>> rows = [{"T": 8, "error": 0.5}, {"T": 32, "error": 0.125}]
    >>> chart_tables(line_chart(rows, "T", "error", x_title="tokens"))[0].columns
    ('tokens', 'error')
    """
    tables: list[Table] = []
    for panel in _panels(chart):
        names = {channel["field"]: channel["title"] for channel in _channels(panel).values()}
        for rows in _records(panel):
            fields = list(dict.fromkeys(field for row in rows for field in row))
            columns = tuple(str(names.get(field) or field) for field in fields)
            if len(set(columns)) < len(columns):  # two fields on one axis
                columns = tuple(fields)
            cells = tuple(tuple(row.get(field) for field in fields) for row in rows)
            table = Table(chart_title(panel), columns, cells)
            if table not in tables:
                tables.append(table)
    # A level that is drawn as one line is a table only where nothing else is.
    return tuple(table for table in tables if len(table.rows) > 1) or tuple(tables)


def _panels(chart: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a chart with axes of their own; each has its data, if only from above."""
    for name in ("hconcat", "vconcat", "concat"):
        if name in chart:
            return [{**_above(chart), **panel} for part in chart[name] for panel in _panels(part)]
    return [dict(chart)]


def _above(chart: Mapping[str, Any]) -> dict[str, Any]:
    return {name: chart[name] for name in ("data", "datasets") if name in chart}


def _units(chart: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A chart and all that it is made of."""
    yield chart
    for name in INNER:
        inner = chart.get(name, ())
        for each in inner if isinstance(inner, list) else [inner] if inner else []:
            yield from _units(each)


def _records(chart: Mapping[str, Any]) -> Iterator[list[Mapping[str, Any]]]:
    named = chart.get("datasets", {})
    for unit in _units(chart):
        data = unit.get("data") or {}
        rows = data.get("values") or named.get(data.get("name")) or []
        if rows and all(isinstance(row, Mapping) for row in rows):
            yield rows


def _channels(chart: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The first field of each encoding channel, with its title and kind of scale."""
    found: dict[str, dict[str, Any]] = {}
    for unit in _units(chart):
        for name, channel in (unit.get("encoding") or {}).items():
            if name in found or not isinstance(channel, Mapping) or "field" not in channel:
                continue
            title = channel.get("title") or channel["field"]
            log = (channel.get("scale") or {}).get("type") == "log"
            found[name] = {"field": channel["field"], "title": title, "log": log}
    return found


def _range(channel: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> str:
    values = [row.get(channel["field"]) for row in rows]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if not numbers:
        return str(channel["title"])
    log = ", logarithmic" if channel["log"] else ""
    ends = f"{format_number(min(numbers))} to {format_number(max(numbers))}"
    return f"{channel['title']} ({ends}{log})"


def _sentence(panel: Mapping[str, Any]) -> str:
    channels = _channels(panel)
    rows = [row for records in _records(panel) for row in records]
    marks = [unit.get("mark") for unit in _units(panel) if unit.get("mark")]
    kinds = [mark["type"] if isinstance(mark, Mapping) else mark for mark in marks]
    kind = next((KINDS[each] for each in ("bar", "line", "point", "area") if each in kinds), "")
    axes = [_range(channels[name], rows) for name in ("y", "x") if name in channels]
    text = f"{kind or 'Chart'}: {' against '.join(axes)}"
    if "color" in channels:
        color = channels["color"]
        values = dict.fromkeys(row[color["field"]] for row in rows if color["field"] in row)
        names = [format_number(v) if isinstance(v, float) else str(v) for v in values]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        text += f", for {color['title']} {', '.join(names[:MAX_NAMES])}{more}"
    return text
