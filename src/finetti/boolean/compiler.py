"""From a rule to weights: parse → simplify → route → positions → head → lookup → verify."""

from typing import Any

import numpy as np

from finetti.boolean.basis import automatic_width
from finetti.boolean.compiled import Compiled
from finetti.boolean.domain import LARGEST, values_reason
from finetti.boolean.functions.base import MAX_TABLE, BooleanFunction
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.functions.truth_table import TruthTable
from finetti.boolean.network.head_weights import EMBEDDINGS, Embedding
from finetti.boolean.network.lookup import make_lookup
from finetti.boolean.parser import parse
from finetti.boolean.planning import Request, make_plan
from finetti.boolean.refusals import Refusals, readable_bytes
from finetti.boolean.routes import is_scalar_route, lookup_bytes, lookup_values
from finetti.boolean.simplification import simplify
from finetti.boolean.words import bits_of, counted
from finetti.core.errors import FinettiError, bad_argument

MAX_BYTES = 2**29
MAX_TABLES = 2**32
TABLE_BYTES = 48  # of every column at every position: two tables and more, in two precisions
MAX_TRIED = 10**6  # how long a context is tried for reasons only
BASES = ("orthonormal", "random")


def compile(
    function: BooleanFunction | str,
    context_length: int,
    embedding: Embedding = "deterministic",
    basis: Any = "orthonormal",
    width: int | None = None,
    coherence: float | None = None,
    margin: float = 1.0,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> Compiled:
    """A one-layer Transformer that computes ``function`` exactly on all inputs of its context.

    Symmetric rules take one head and a lookup on s + 1 points (Lemma B.5), others one head per bit
    (one in all for the bag) and a lookup on 2^s points (Lemma B.6).

    Args:
        function: a `BooleanFunction`, or an expression for `parse`.
        context_length: T, how many bits there are.
        embedding: "deterministic": tokens E_b + v_t (Lemma B.2); "trained": positions mark the
            relevant bits only (B.3); "bag": tokens b_t v_t without order (B.4).
        basis: "orthonormal": v_t, T dimensions; "random": signs in O(s log T) dimensions; or the T
            unit vectors themselves, as rows.
        width: d, with three dimensions for e_0, e_1 and v_[CLS]; chosen by default.
        coherence: the largest |⟨v_i, v_j⟩| that relevant vectors may have with others.
        margin: at least 1; the head's error is at most δ/margin, where δ is what the lookup bears.
        seed: of the random basis.
        max_bytes: refuse a lookup (or a random basis) larger than this.

    Raises:
        InputError: with every reason why the rule cannot be compiled so.

    >>> compiled = compile("x3 & (x7 | ~x9)", context_length=10)
    >>> compiled.predict([[0, 0, 0, 1, 0, 0, 0, 1, 0, 1], [1] * 3 + [0] * 7]).round(6).tolist()
    [1.0, 0.0]
    >>> compiled.check.method, compiled.certificate.n_heads
    ('all 2^10 = 1024 inputs', 3)

    Reference: Section 4.4 and Appendix B, edelman2022 (Proposition 4.7).
    """
    rule = _as_function(function)
    refusals = Refusals("The rule")
    check_arguments(refusals, rule, context_length, embedding, basis, width, coherence, margin)
    check_whole(refusals, seed=seed, max_bytes=max_bytes)
    refuse_table(refusals, rule)
    if has_table(rule) and values_reason(rule):
        refusals.add(values_reason(rule))
    # Without a table the rule counts as one that needs all its bits.
    reduced = simplify(rule) if has_table(rule) else None
    scalar = reduced is not None and is_scalar_route(reduced)
    indices = tuple(sorted(rule.indices)) if reduced is None else reduced.indices
    fits = _check_sizes(refusals, reduced, len(indices), context_length, embedding, max_bytes)
    fits = _check_vectors(refusals, len(indices), context_length, embedding, basis) and fits
    # An index outside is a reason by itself; whether width and coherence would do is another, and
    # is answered on a context that is long enough.
    top = max(rule.indices, default=0)
    plan = None
    longest = MAX_TRIED if isinstance(basis, str) else 0  # vectors of one's own are as many as bits
    if fits and top < max(context_length, longest) and embedding in EMBEDDINGS:
        request = Request(
            max(int(context_length), top + 1),
            indices,
            scalar,
            embedding,
            basis if not isinstance(basis, str) or basis in BASES else BASES[0],
            width if is_whole(width) else None,
            coherence
            if coherence is not None and is_number(coherence) and 0 < coherence < 1
            else None,
            float(margin) if is_number(margin) and 1 <= margin < np.inf else 1.0,
            seed if is_whole(seed) and seed >= 0 else 0,
            max_bytes if is_whole(max_bytes) else MAX_BYTES,
        )
        plan, reasons = make_plan(request)
        for reason in reasons:
            refusals.add(reason)
    refusals.raise_if_any()
    assert plan is not None  # or there was a reason
    assert reduced is not None
    lookup = make_lookup(plan.points(), lookup_values(reduced), plan.tolerance)
    settings = plain_settings(basis, width, coherence, margin, seed)
    compiled = Compiled(rule, plan.weights, lookup, settings)
    if not compiled.check.exact:
        raise FinettiError(
            f"The compiled network is wrong {compiled.check.counterexample}: choose a larger width."
        )
    return compiled


def plain_settings(
    basis: Any, width: int | None, coherence: float | None, margin: float, seed: int
) -> dict[str, Any]:
    """How a network was made, as plain data for its file."""
    return {
        "basis": basis if isinstance(basis, str) else "given",
        "width": None if width is None else int(width),
        "coherence": None if coherence is None else float(coherence),
        "margin": float(margin),
        "seed": int(seed),
    }


def _as_function(function: Any) -> BooleanFunction:
    """The function itself, or the one that an expression describes."""
    if isinstance(function, str):
        return parse(function)
    if not isinstance(function, BooleanFunction):
        requirement = "a BooleanFunction or an expression such as 'x3 & x7'"
        raise bad_argument("function", "compile", requirement, type(function).__name__)
    return function


def check_context(refusals: Refusals, rule: BooleanFunction, context_length: int) -> None:
    """Refuse indices outside the context."""
    if not is_whole(context_length) or context_length < 1:
        refusals.add(f"its context has {context_length} bits; give a whole number of at least 1")
        refusals.raise_if_any()
    outside = [index for index in rule.indices if index >= context_length]
    if outside:
        names = ", ".join(f"x{index}" for index in outside[:8])
        more = f" and {len(outside) - 8} more" if len(outside) > 8 else ""
        refusals.add(f"it uses {names}{more}, outside the context of {bits_of(context_length)}")


def _check_sizes(
    refusals: Refusals,
    reduced: Symmetric | TruthTable | None,
    sparsity: int,
    context_length: int,
    embedding: Any,
    max_bytes: Any,
) -> bool:
    """Refuse lookups and tables by their bytes; whether the tables can be made at all."""
    size = 0 if reduced is None else lookup_bytes(reduced, bag=embedding == "bag")
    if reduced is not None and is_whole(max_bytes) and size > max_bytes >= 0:
        refusals.add(
            f"its lookup on {counted(int(np.count_nonzero(lookup_values(reduced))), 'point')} "
            f"takes {readable_bytes(size)}, above the budget of {readable_bytes(max_bytes)}; raise "
            "max_bytes, or build it of gates with `compose`"
        )
    scalar = reduced is not None and is_scalar_route(reduced)
    if 4 * sparsity > LARGEST:
        refusals.add(
            f"its lookup tells {sparsity} bits apart with weights of {4 * sparsity}, and weights "
            f"end at {LARGEST:g}; build it of gates with `compose`"
        )
    n_columns = 2 if scalar else 2 * sparsity
    tables = TABLE_BYTES * int(context_length) * n_columns
    if tables > MAX_TABLES:
        refusals.add(
            f"its tables over {context_length} bits take {readable_bytes(tables)}, and tables end "
            f"at {readable_bytes(MAX_TABLES)}; choose a shorter context"
        )
    return tables <= MAX_TABLES


def check_arguments(
    refusals: Refusals,
    rule: BooleanFunction,
    context_length: int,
    embedding: Any,
    basis: Any,
    width: Any,
    coherence: Any,
    margin: Any,
) -> None:
    """Refuse arguments by name, and indices outside the context."""
    check_context(refusals, rule, context_length)
    if embedding not in EMBEDDINGS:
        refusals.add(f"embedding {embedding!r} is none of {', '.join(EMBEDDINGS)}")
    if isinstance(basis, str) and basis not in BASES:
        refusals.add(f"basis {basis!r} is neither orthonormal nor random, nor an array of vectors")
    check_width(refusals, width)
    if coherence is not None and not (is_number(coherence) and 0 < coherence < 1):
        refusals.add(f"coherence {coherence!r} is not between 0 and 1")
    if not (is_number(margin) and 1 <= margin < np.inf):
        refusals.add(f"margin {margin!r} is not a finite number of at least 1")


def check_width(refusals: Refusals, width: Any) -> None:
    """Refuse what is no dimension."""
    if width is not None and not (is_whole(width) and width >= 1):
        refusals.add(f"width {width!r} is no dimension; give a whole number of at least 1")


def check_whole(refusals: Refusals, **named: Any) -> None:
    """Refuse numbers that are not whole, or negative."""
    for name, number in named.items():
        if not (is_whole(number) and number >= 0):
            refusals.add(f"{name} {number!r} is not a whole number of at least 0")


def is_whole(number: Any) -> bool:
    """Whether something is an integer, and no Boolean."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def is_number(number: Any) -> bool:
    """Whether something is a real number, and no Boolean."""
    real = isinstance(number, int | float | np.integer | np.floating)
    return real and not isinstance(number, bool)


def has_table(rule: BooleanFunction) -> bool:
    """Whether a rule can be reduced: it has a profile, or few enough bits for a table."""
    return rule.sparsity <= MAX_TABLE or rule.profile() is not None


def refuse_table(refusals: Refusals, rule: BooleanFunction) -> None:
    """Refuse a rule whose table would be too long, as one reason among others."""
    if not has_table(rule):
        refusals.add(
            f"it has {rule.sparsity} bits and is not symmetric, and its table of "
            f"2^{rule.sparsity} values is too long: tables end at 2^{MAX_TABLE}; build it of gates "
            "with `compose`"
        )


def _check_vectors(
    refusals: Refusals, sparsity: int, context_length: int, embedding: Any, basis: Any
) -> bool:
    """Refuse relevant vectors, their duals and their products by bytes; whether they fit."""
    if embedding == "trained":
        return True  # a vector of its own for few, and one for all of a symmetric rule
    if isinstance(basis, str):
        wide = automatic_width(int(context_length), sparsity, None)
        width = int(context_length) if basis == "orthonormal" else wide
    else:
        width = np.shape(basis)[-1] if np.ndim(basis) else 0
    size = 3 * 8 * sparsity * (width + sparsity)
    if size > MAX_TABLES:
        refusals.add(
            f"the vectors of its {sparsity} relevant bits and their products take "
            f"{readable_bytes(size)}, and these end at {readable_bytes(MAX_TABLES)}; choose fewer "
            'bits, or embedding="trained"'
        )
    return size <= MAX_TABLES
