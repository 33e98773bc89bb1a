"""Text of others, made fit to be printed."""

import re

# Control characters of ASCII (but for tab and newline) and of Latin-1, which move the cursor or
# reach the clipboard; marks that turn the direction of text; halves of characters, which stand for
# bytes of file names that are no UTF-8.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """Return ``text`` without what would steer a terminal; a mark takes the place of each.

    >>> clean_text("layer\\x1b[2J.weight")
    'layer�[2J.weight'
    """
    return _UNPRINTABLE.sub(REPLACEMENT, text)
