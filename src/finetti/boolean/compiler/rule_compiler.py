"""From a rule to weights: parse → check options → compile → verify."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from finetti.boolean.compiled import Compiled
from finetti.boolean.compiler.cls_compiler import compile_cls
from finetti.boolean.compiler.compiler_options import Refusals, check_options
from finetti.boolean.compiler.gate_compiler import compile_gates
from finetti.boolean.language.gate_graph import as_tree
from finetti.boolean.language.parser import as_function
from finetti.boolean.language.rule import BooleanFunction
from finetti.display.progress import Progress, progress_bar


def compile_rule(
    rule: BooleanFunction | str,
    context_length: int,
    embedding: str = "deterministic",
    basis: Any = "orthonormal",
    *,
    gates: bool = False,
    width: int | None = None,
    margin: float = 1.0,
    seed: int = 0,
    quiet: bool = False,
) -> Compiled:
    """A Boolean rule as Transformer weights, exact on all inputs of its context: ``finetti
    compile`` in Python.

    One layer: symmetric rules take one head and a lookup on s + 1 points (Lemma B.5), others one
    head per bit (one in all for the bag) and a lookup on 2^s points (Lemma B.6). With ``gates`` one
    block per level of parentheses, so that sparsity counts per gate: an AND of ten ORs of five bits
    each depends on 50 bits, too many for one lookup, and no gate reads more than ten.

    Args:
        rule: a `BooleanFunction`, or an expression such as "x3 & (x7 | ~x9)" (`parse`).
        context_length: T, how many bits there are.
        embedding: "deterministic": tokens E_b + v_t (Lemma B.2); "trained": positions mark the
            relevant bits only (B.3); "bag": tokens b_t v_t without order (B.4), which has no gates.
        basis: "orthonormal": v_t, T dimensions; "random": signs in O(s log T) dimensions; or the T
            unit vectors themselves, as rows.
        gates: whether to build one token per gate; the rule is an expression, whose parentheses
            make the gates, or a family such as `And`, one gate.
        width: of tokens, with three dimensions for e_0, e_1 and v_[CLS] (and those that gates and
            features add); chosen by default.
        margin: at least 1; what is read errs by at most δ/margin, where δ is what the lookup
            tolerates.
        seed: of the random basis.
        quiet: no progress bar, which wide rules have while they are proven.

    Raises:
        InputError: with every reason why the rule cannot be compiled so.

    >>> compiled = compile_rule("x3 & (x7 | ~x9)", context_length=10)
    >>> compiled.predict([[0, 0, 0, 1, 0, 0, 0, 1, 0, 1], [1] * 3 + [0] * 7]).round(6).tolist()
    [1.0, 0.0]
    >>> compiled.check.method, compiled.certificate.n_heads
    ('all 2^10 = 1024 inputs', 3)
    >>> deep = compile_rule("(x1 | x2 | x3) & (x4 | ~x5) & maj(x6, x7, x8)", 12, gates=True)
    >>> deep.certificate.depth, len(deep.certificate.gates), deep.as_expected
    (2, 4, True)

    Reference: Section 4.4 and Appendix B, edelman2022 (Proposition 4.7).
    """
    function = as_function(rule, "compile_rule", "rule")
    if gates:
        function = as_tree(function)
    refusals = Refusals()
    options = check_options(
        refusals, function, context_length, embedding, basis, width, margin, seed
    )
    build: Any = compile_gates if gates else compile_cls
    made = Compiled(build(refusals, options, function), function, options.settings)
    with verification_bar("compile", not quiet) as on_progress:
        made.raise_if_wrong(on_progress)
    return made


@contextmanager
def verification_bar(name: str, shown: bool = True) -> Iterator[Callable[[float], Any]]:
    """A bar of the share of the inputs that have been run: wide rules take a minute."""
    with progress_bar(name, 100, shown, "% of the inputs") as on_change:
        yield lambda share: on_change(Progress(int(100 * share), 0, "running the network"))
