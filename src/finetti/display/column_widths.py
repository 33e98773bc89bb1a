"""How a table fits the width of a terminal: numbers are never broken, words only if they are long.

What does not fit side by side follows below, beside the first column, which says what a row is.
"""

from collections.abc import Sequence

LONG_WORD = 16  # characters; a longer one, as a path, may be broken
BETWEEN, EDGES = 3, 2  # characters between two columns, and at both ends of a line


def fit_columns(texts: Sequence[Sequence[str]], width: int) -> list[dict[int, int]]:
    """The parts in which a table is shown, each as its columns and their widths.

    ``texts`` are those of every column, with its name.

    >>> texts = [("T", "1000"), ("error", "0.25"), ("gap", "0.5")]
    >>> fit_columns(texts, 80), fit_columns(texts, EDGES + 4 + BETWEEN + 5)
    ([{0: 4, 1: 5, 2: 3}], [{0: 4, 1: 5}, {0: 4, 2: 3}])
    """
    words = [[word for text in each for word in text.split()] for each in texts]
    lines = [[line for text in each for line in text.splitlines()] for each in texts]
    least = [max(map(_unbroken, each), default=1) for each in words]
    wanted = [max(map(_width, each), default=1) for each in lines]
    parts = []
    for part in _side_by_side(least, width):
        room = width - EDGES - BETWEEN * (len(part) - 1)
        widths = _shrink([wanted[i] for i in part], [least[i] for i in part], room)
        parts.append(dict(zip(part, widths, strict=True)))
    return parts


def _unbroken(word: str) -> int:
    """The width that a word needs at least; of numbers only whole ones have many digits."""
    number = word.lstrip("-").isdigit()
    return _width(word) if number else min(_width(word), LONG_WORD)


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _side_by_side(least: Sequence[int], width: int) -> list[list[int]]:
    """Columns that fit when each is as narrow as it may be; the first is in all parts."""
    parts = [[index] for index in range(len(least))[:1]]
    for index in range(1, len(least)):
        taken = [*parts[-1], index]
        needed = EDGES + sum(least[i] for i in taken) + BETWEEN * (len(taken) - 1)
        if needed <= width or len(taken) == 2:
            parts[-1] = taken
        else:
            parts.append([0, index])
    return parts


def _shrink(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widest gives way first, down to its least; in too little room all of them do.

    >>> _shrink([30, 9, 5], [4, 9, 3], 28), _shrink([30, 9], [4, 9], 8)
    ([14, 9, 5], [4, 4])
    """
    found = [max(1, min(width, room)) for width in widths]
    for floors in (least, [1] * len(least)):
        while sum(found) > room and (spare := [i for i, w in enumerate(found) if w > floors[i]]):
            found[max(spare, key=found.__getitem__)] -= 1
    return found
