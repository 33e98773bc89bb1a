"""How numbers of things and long rules are written."""


def counted(count: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "head"), counted(3, "head")
    ('1 head', '3 heads')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def counted_heads(heads_per_block: tuple[int, ...]) -> str:
    """The blocks of a network and their heads.

    >>> counted_heads((1,)), counted_heads((2, 1))
    ('1 block, 1 head', '2 blocks, 2 + 1 heads')
    """
    heads = " + ".join(map(str, heads_per_block))
    thing = "head" if heads == "1" else "heads"
    return f"{counted(len(heads_per_block), 'block')}, {heads} {thing}"


def bits_of(context_length: int) -> str:
    """The bits of a context and their names.

    >>> bits_of(1), bits_of(10)
    ('1 bit, x0', '10 bits, x0 to x9')
    """
    last = f" to x{context_length - 1}" if context_length > 1 else ""
    return f"{counted(context_length, 'bit')}, x0{last}"


def short_text(rule: str, most: int = 100) -> str:
    """A rule that fits into a title.

    >>> short_text("x1 & x2 & x3 & x4 & x5 & x6", most=20)
    'x1 & x2 & … x6'
    """
    if len(rule) <= most:
        return rule
    return f"{rule[: most - 10].rsplit(' ', 1)[0]} … {rule.rsplit(' ', 1)[-1][-8:]}"
