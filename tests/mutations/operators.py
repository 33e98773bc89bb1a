"""The kinds of faults: each finds the places in a function where it can be made."""

import ast
from collections.abc import Iterator

Change = tuple[ast.AST, str]  # a node on one line, and the text that takes its place

COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
# A factor that is lost: f(x) becomes x.
TRANSFORMS = {"sqrt", "exp", "log", "log2", "log1p", "expm1", "abs", "square", "ceil", "floor"}
# Calls whose first two arguments may be exchanged, or whose exchange is a type error at once.
SYMMETRIC = {
    "max", "min", "maximum", "minimum", "isinstance", "issubclass", "getattr", "hasattr", "setattr",
    "zip", "allclose", "logaddexp", "multiply", "add", "cast", "isclose", "array_equal", "gcd",
    "hypot", "bad_argument",
}  # fmt: skip


def changes(function: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield (operator, node, new text) for every fault that can be made in the function."""
    for node in body_nodes(function):
        for name, operator in OPERATORS.items():
            for target, text in operator(node):
                yield name, target, text


def body_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of the body that are computed: no annotations or inner functions."""
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.JoinedStr):
            continue
        yield node
        if isinstance(node, ast.Raise):
            continue  # the words of a message
        if isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value else []
        else:
            waiting += ast.iter_child_nodes(node)


def sign(node: ast.AST) -> Iterator[Change]:
    """a + b for a − b and the other way round; −a becomes a."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        other = "-" if isinstance(node.op, ast.Add) else "+"
        if not any(_is_text(side) for side in (node.left, node.right)):
            yield node, f"{_wrap(node.left)} {other} {_wrap(node.right)}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node, _wrap(node.operand)


def constant(node: ast.AST) -> Iterator[Change]:
    """2x for a number x with a point, n + 1 for a whole one."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
        yield node, repr(value * 2 if isinstance(value, float) and value else value + 1)


def missing_factor(node: ast.AST) -> Iterator[Change]:
    """a for a·b, a/b or a^b; x for √x, log x and the like."""
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.Mult | ast.Div | ast.Pow | ast.MatMult
    ):
        yield node, _wrap(node.left)
        if isinstance(node.op, ast.Mult):
            yield node, _wrap(node.right)
    elif isinstance(node, ast.Call) and _name(node) in TRANSFORMS and len(node.args) == 1:
        yield node, _wrap(node.args[0])


def off_by_one(node: ast.AST) -> Iterator[Change]:
    """range(n − 1) for range(n), and one further at the ends of a slice or an index."""
    if isinstance(node, ast.Call) and _name(node) in ("range", "arange") and len(node.args) == 1:
        yield node.args[0], f"{_wrap(node.args[0])} - 1"
    elif isinstance(node, ast.Slice):
        for end in (node.lower, node.upper):
            if end is not None:
                yield end, f"{_wrap(end)} + 1"


def swapped_arguments(node: ast.AST) -> Iterator[Change]:
    """f(b, a) for f(a, b)."""
    if isinstance(node, ast.Call) and len(node.args) >= 2 and _name(node) not in SYMMETRIC:
        first, second = node.args[:2]
        if not any(isinstance(each, ast.Starred | ast.Constant) for each in (first, second)):
            swapped = ast.Call(node.func, [second, first, *node.args[2:]], node.keywords)
            yield node, ast.unparse(swapped)


def comparison(node: ast.AST) -> Iterator[Change]:
    """< for ≤, = for ≠, in for not in, `or` for `and`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = COMPARISONS[type(node.ops[0])]
        yield node, f"{_wrap(node.left)} {other} {_wrap(node.comparators[0])}"
    elif isinstance(node, ast.BoolOp):
        other = " or " if isinstance(node.op, ast.And) else " and "
        yield node, "(" + other.join(_wrap(value) for value in node.values) + ")"


def dropped_check(node: ast.AST) -> Iterator[Change]:
    """A condition under which an error is raised, or something is left out, never holds."""
    if isinstance(node, ast.If) and isinstance(
        node.body[-1], ast.Raise | ast.Return | ast.Continue
    ):
        yield node.test, "False"


OPERATORS = {
    "sign": sign,
    "constant": constant,
    "missing factor": missing_factor,
    "off by one": off_by_one,
    "swapped arguments": swapped_arguments,
    "comparison": comparison,
    "dropped check": dropped_check,
}


def _wrap(node: ast.expr) -> str:
    text = ast.unparse(node)
    simple = ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript
    return text if isinstance(node, simple) else f"({text})"


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_text(node: ast.AST) -> bool:
    texts = ast.JoinedStr, ast.List, ast.Tuple
    return isinstance(node, texts) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
