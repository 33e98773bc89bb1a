"""From a rule to weights: parse → simplify → route → positions → head → lookup → verify."""

from typing import Any

import numpy as np

from finetti.boolean.compiled import Compiled
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.functions.truth_table import TruthTable
from finetti.boolean.network.head_weights import EMBEDDINGS, Embedding
from finetti.boolean.network.lookup import make_lookup
from finetti.boolean.parser import parse
from finetti.boolean.planning import Request, make_plan
from finetti.boolean.refusals import Refusals, readable_bytes
from finetti.boolean.routes import is_scalar_route, lookup_bytes, lookup_values
from finetti.boolean.simplification import simplify
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
        margin: the head's error is at most δ/margin, where δ is what the lookup bears.
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
    _check_arguments(refusals, rule, context_length, embedding, basis, width, coherence, margin)
    reduced = simplify(rule)
    fits = _check_sizes(refusals, reduced, context_length, embedding, max_bytes)
    # An index outside is a reason by itself; whether width and coherence would do is another, and
    # is answered on a context that is long enough.
    top = max(rule.indices, default=0)
    plan = None
    longest = MAX_TRIED if isinstance(basis, str) else 0  # vectors of one's own are as many as bits
    if fits and top < max(context_length, longest) and embedding in EMBEDDINGS:
        request = Request(
            max(int(context_length), top + 1),
            reduced.indices,
            is_scalar_route(reduced),
            embedding,
            basis if not isinstance(basis, str) or basis in BASES else BASES[0],
            width,
            coherence if coherence is not None and 0 < coherence < 1 else None,
            float(margin) if margin > 0 else 1.0,
            seed,
            max_bytes,
        )
        plan, reasons = make_plan(request)
        for reason in reasons:
            refusals.add(reason)
    refusals.raise_if_any()
    assert plan is not None  # or there was a reason
    lookup = make_lookup(plan.points(), lookup_values(reduced), plan.tolerance)
    settings = {
        "basis": basis if isinstance(basis, str) else "given",
        "width": width,
        "coherence": coherence,
        "margin": float(margin),
        "seed": seed,
    }
    compiled = Compiled(rule, plan.weights, lookup, settings)
    if not compiled.check.exact:
        raise FinettiError(
            f"The compiled network is wrong {compiled.check.counterexample}: the numbers of this "
            "rule are beyond float64. Scale its values, or choose a larger width."
        )
    return compiled


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
    if not isinstance(context_length, int | np.integer) or context_length < 1:
        refusals.add(f"its context has {context_length} bits; give a whole number of at least 1")
        refusals.raise_if_any()
    outside = [index for index in rule.indices if index >= context_length]
    if outside:
        names = ", ".join(f"x{index}" for index in outside[:8])
        more = f" and {len(outside) - 8} more" if len(outside) > 8 else ""
        refusals.add(
            f"it uses {names}{more}, outside the context of {context_length} bits, x0 to "
            f"x{context_length - 1}"
        )


def _check_sizes(
    refusals: Refusals,
    reduced: Symmetric | TruthTable,
    context_length: int,
    embedding: Any,
    max_bytes: int,
) -> bool:
    """Refuse lookups and tables by their bytes; whether the tables can be made at all."""
    size = lookup_bytes(reduced, bag=embedding == "bag")
    if size > max_bytes:
        refusals.add(
            f"its lookup on {int(np.count_nonzero(lookup_values(reduced)))} points takes "
            f"{readable_bytes(size)}, above the budget of {readable_bytes(max_bytes)}; raise "
            "max_bytes, or build it of gates with `compose`"
        )
    n_columns = 2 if is_scalar_route(reduced) else 2 * reduced.sparsity
    tables = TABLE_BYTES * int(context_length) * n_columns
    if tables > MAX_TABLES:
        refusals.add(
            f"its tables over {context_length} bits take {readable_bytes(tables)}, and tables end "
            f"at {readable_bytes(MAX_TABLES)}; choose a shorter context"
        )
    return tables <= MAX_TABLES


def _check_arguments(
    refusals: Refusals,
    rule: BooleanFunction,
    context_length: int,
    embedding: Any,
    basis: Any,
    width: int | None,
    coherence: float | None,
    margin: float,
) -> None:
    check_context(refusals, rule, context_length)
    if embedding not in EMBEDDINGS:
        refusals.add(f"embedding {embedding!r} is none of {', '.join(EMBEDDINGS)}")
    if isinstance(basis, str) and basis not in BASES:
        refusals.add(f"basis {basis!r} is neither orthonormal nor random, nor an array of vectors")
    if width is not None and width < 1:
        refusals.add(f"width {width} is no dimension")
    if coherence is not None and not 0 < coherence < 1:
        refusals.add(f"coherence {coherence} is not between 0 and 1")
    if not margin > 0:
        refusals.add(f"margin {margin} is not positive")
