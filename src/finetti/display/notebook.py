"""A card as HTML, for notebooks: self-contained, escaped, legible on light and dark pages."""

from html import escape

from finetti.display.card import Card, Table
from finetti.display.formatting import format_value
from finetti.display.terminal import is_numeric

# Colors are inherited or half transparent, so that the notebook's own theme decides.
_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"padding:.2em .8em .2em 0;border:0;border-bottom:{_LINE};vertical-align:top;"
_TABLE = "border-collapse:collapse;margin:.5em 0;background:transparent;color:inherit;"


def _cell(tag: str, text: str, align: str, style: str = "") -> str:
    return f'<{tag} style="{_CELL}text-align:{align};{style}">{escape(text)}</{tag}>'


def _table(table: Table) -> str:
    sides = ["right" if is_numeric(table, i) else "left" for i in range(len(table.columns))]
    caption = "text-align:left;font-weight:600;color:inherit;"
    head = "".join(map(_cell, ["th"] * len(sides), table.columns, sides))
    rows = [
        "".join(
            _cell("td", format_value(cell), side) for cell, side in zip(row, sides, strict=True)
        )
        for row in table.rows
    ]
    body = "".join(f'<tr style="background:transparent">{row}</tr>' for row in rows)
    title = f'<caption style="{caption}">{escape(table.title)}</caption>' if table.title else ""
    content = f"{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<table style="{_TABLE}">{content}</table>'


def to_html(card: Card) -> str:
    """``card`` as one HTML element with the same content as its text."""
    parts = [f'<div style="font-weight:600">{escape(card.title)}</div>']
    if card.fields:
        rows = "".join(
            '<tr style="background:transparent">'
            + _cell("th", name, "left", "font-weight:400;opacity:.75;")
            + _cell("td", format_value(value), "left")
            + "</tr>"
            for name, value in card.fields
        )
        parts.append(f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>')
    parts += [_table(table) for table in card.tables]
    parts += [f'<div style="font-style:italic;opacity:.85">{escape(n)}</div>' for n in card.notes]
    return f'<div style="line-height:1.45;max-width:60em">{"".join(parts)}</div>'
