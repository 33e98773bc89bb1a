"""One matrix at a time: what LAPACK is given inside JAX programs."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import finetti
from finetti.core.linalg import lapack

MATRIX = np.array([[4.0, 2.0, 0.4], [2.0, 3.0, 0.5], [0.4, 0.5, 1.0]])
FACTOR = np.linalg.cholesky(MATRIX)
RIGHT = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]])
CALLS = {
    "cholesky": (lapack.cholesky, np.linalg.cholesky, (MATRIX,)),
    "solve_lower": (lapack.solve_lower, np.linalg.solve, (FACTOR, RIGHT)),
    "solve_lower_transposed": (
        lapack.solve_lower_transposed,
        lambda g, b: np.linalg.solve(g.T, b),
        (FACTOR, RIGHT),
    ),
    "eigh": (lambda a: lapack.eigh(a)[0], np.linalg.eigvalsh, (MATRIX,)),
    "singular_values": (
        lapack.singular_values,
        lambda a: np.linalg.svd(a, compute_uv=False),
        (RIGHT,),
    ),
    "qr": (lambda a: lapack.qr(a)[1], lambda a: np.linalg.qr(a)[1], (MATRIX,)),
}


def batched_calls(program: str) -> list[str]:
    """LAPACK calls of a program (HLO, compiled or not) that take more than one matrix."""
    calls = re.findall(r"^.*custom_call_target=\"lapack_\w+\".*$", program, re.MULTILINE)
    assert calls, "no LAPACK call at all: the test looks at the wrong program"
    shapes = [re.findall(r"[fs]\d+\[([\d,]*)\]", call.split("custom-call(")[0]) for call in calls]
    return [
        call[:200]
        for call, results in zip(calls, shapes, strict=True)
        if any(shape.count(",") > 1 for shape in results)
    ]


@pytest.mark.parametrize("name", CALLS)
def test_each_is_lapack_and_stays_unbatched(name):
    ours, theirs, arguments = CALLS[name]
    np.testing.assert_allclose(ours(*map(jnp.asarray, arguments)), theirs(*arguments), atol=1e-12)
    many = [jnp.stack([array, 2 * array, 3 * array]) for array in arguments]
    program = jax.jit(jax.vmap(ours)).lower(*many).compile()
    assert batched_calls(program.as_text()) == []
    np.testing.assert_allclose(
        program(*many)[1], theirs(*(2 * array for array in arguments)), atol=1e-12
    )


def test_large_matrices_are_factored_in_parts(monkeypatch):
    root = np.random.default_rng(0).normal(size=(23, 23))
    matrix = root @ root.T + np.eye(23)
    monkeypatch.setattr(lapack, "MAX_ROWS", 6)
    found = lapack.cholesky(jnp.asarray(matrix))
    np.testing.assert_allclose(found, np.linalg.cholesky(matrix), atol=1e-12)
    matrix[2, 2] = -1.0
    assert jnp.isnan(lapack.cholesky(jnp.asarray(matrix))[-1, -1])


def test_the_search_sees_a_batched_call():
    many = jnp.stack([jnp.asarray(MATRIX)] * 3)
    program = jax.jit(jnp.linalg.cholesky).lower(many)
    for text in (program.as_text(dialect="hlo"), program.compile().as_text()):
        assert len(batched_calls(text)) == 1


def test_nothing_else_in_the_package_calls_lapack_from_jax():
    forbidden = re.compile(
        r"jnp\.linalg\.(?!norm\b)\w+|jax\.scipy\.linalg|jax\.lax\.linalg|lax\.linalg|namespace\(.*linalg"
    )
    root = Path(finetti.__file__).parent
    found = [
        f"{path.relative_to(root)}: {match[0]}"
        for path in root.rglob("*.py")
        if path.name != "lapack.py"
        for match in forbidden.finditer(path.read_text())
    ]
    assert found == []
