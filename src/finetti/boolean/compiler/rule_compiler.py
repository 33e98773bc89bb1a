"""``finetti compile`` in Python: a rule as Transformer weights, in one block or gate by gate."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from finetti.boolean.compiled import Compiled
from finetti.boolean.compiler.cls_compiler import compile
from finetti.boolean.compiler.gate_compiler import compose
from finetti.boolean.language.rule import BooleanFunction
from finetti.display.progress import Progress, progress_bar


def compile_rule(
    rule: BooleanFunction | str,
    context_length: int,
    embedding: str = "deterministic",
    basis: str = "orthonormal",
    *,
    width: int | None = None,
    coherence: float | None = None,
    margin: float = 1.0,
    gates: bool = False,
    seed: int = 0,
    quiet: bool = False,
) -> Compiled:
    """A Boolean rule as Transformer weights, with a certificate: ``finetti compile`` in Python.

    The network prints its certificate, and has it as plain data (``to_dict``) and as a page.

    Args:
        rule: a text such as "x3 & (x7 | ~x9)", or a function.
        context_length, embedding, basis, width, coherence, margin, seed: see `compile`.
        gates: one block per level of parentheses, one token per gate; see `compose`.
        quiet: no progress bar, which wide rules have while they are proven.

    >>> made = compile_rule("x1 & x4", 6)
    >>> made.as_expected, made.predict([0, 1, 0, 0, 1, 0]).round(9).tolist()
    (True, 1.0)
    """
    build = compose if gates else compile
    with verification_bar("compile", not quiet) as on_progress:
        return build(
            rule,
            context_length,
            embedding,
            basis,
            width=width,
            coherence=coherence,
            margin=margin,
            seed=seed,
            on_progress=on_progress,
        )


@contextmanager
def verification_bar(name: str, shown: bool = True) -> Iterator[Callable[[float], Any]]:
    """A bar of the share of the inputs that have been run: wide rules take a minute."""
    with progress_bar(name, 100, shown, "% of the inputs") as on_change:
        yield lambda share: on_change(Progress(int(100 * share), 0, "running the network"))
