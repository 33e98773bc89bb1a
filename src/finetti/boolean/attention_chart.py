"""Attention as a picture: who reads by what is read, the darker the more."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = list[tuple[str, NDArray[np.float64]]]


def attention_layer(names: list[str], columns: Columns, reader: str, title: str) -> Any:
    """A layer of Altair: tiles with their numbers, rows and columns in the order given.

    Args:
        names: of the rows.
        columns: names of what is read, each with the attention that every row puts on it.
        reader: what a row is, as "head".
        title: of the picture.
    """
    import altair as alt

    rows = [
        {"reader": reader_name, "token": token, "attention": float(weights[k])}
        for token, weights in columns
        for k, reader_name in enumerate(names)
    ]
    order = [token for token, _ in columns]
    x = alt.X(field="token", type="nominal", sort=order, title=None, axis={"labelAngle": 0})
    y = alt.Y(field="reader", type="nominal", sort=names, title=reader)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y)
    scale = alt.Scale(domain=[0, 1], scheme="blues")
    color = alt.Color(field="attention", type="quantitative", scale=scale, title="attention")
    tiles = base.mark_rect(stroke="white", strokeWidth=2).encode(color=color)
    white = alt.condition("datum.attention > 0.5", alt.value("white"), alt.value("#222222"))
    text = alt.Text(field="attention", type="quantitative", format=".2f")
    numbers = base.mark_text(fontSize=11).encode(text=text, color=white)
    size = {"width": {"step": 64}, "height": {"step": 34}}
    return alt.layer(tiles, numbers, title=title).properties(**size)
