"""Every member and kernel equals its JAX twin to 1e-10 in float64, under every mask, and in its
gradients. JAX reads all masks by one program per member: one mask per query, which hides the same.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti import attention as in_jax
from finetti import kernels as jax_kernels

torch = pytest.importorskip("torch")

from finetti import torch as in_torch  # noqa: E402

BATCH, HEADS, GROUPS, LENGTH, SPAN, WIDTH, OUT = 2, 4, 2, 5, 7, 3, 2
KERNELS = {
    "rbf": lambda k, n: k.RBF(n(0.9)),
    "rbf-per-coordinate": lambda k, n: k.RBF(n([0.9, 1.3, 0.7])),
    "matern-1/2": lambda k, n: k.Matern(0.5, n(0.8)),
    "matern-3/2": lambda k, n: k.Matern(1.5, n(0.8)),
    "matern-5/2": lambda k, n: k.Matern(2.5, n(0.8)),
    "rational-quadratic": lambda k, n: k.RationalQuadratic(n(0.7), n([0.9, 1.3, 0.7])),
    "periodic": lambda k, n: k.Periodic(n(2.5), n([0.9, 1.3, 0.7])),
    "offset": lambda k, n: k.RBF(n(0.9)) + k.Constant(n(0.6)),
    "exponential": lambda k, n: k.Exponential(n(0.7)),
    "linear": lambda k, n: k.Linear(),
    "polynomial": lambda k, n: k.Polynomial(2, n(0.5), n(0.7)),
    "cubic": lambda k, n: k.Polynomial(3, n(0.5), 0.0),
    "sum": lambda k, n: n(0.5) * k.RBF(n(0.9)) + k.Exponential(n(0.3)),
    "sum-bounded": lambda k, n: k.Matern(1.5, n(0.9)) + k.Polynomial(2, n(0.5), n(1.0)),
    "product": lambda k, n: k.RBF(n(1.4)) * k.Exponential(n(0.3)),
}
MEMBERS = [
    *[("cme", name) for name in KERNELS],
    *[
        ("kernel", name)
        for name in ("rbf", "matern-1/2", "periodic", "exponential", "sum-bounded", "product")
    ],
    *[("local_linear", name) for name in ("rbf", "exponential")],
    *[("linear", name) for name in ("linear", "polynomial")],
    ("delta_rule", None),
    ("softmax", None),
]
OPTIONS = {"cme": {"ridge": 0.2}, "local_linear": {"ridge": 0.3}}
TRIANGLE = np.tril(np.ones((LENGTH, SPAN), bool))
PADDING = np.array([[True] * 5 + [False] * 2, [True, False, True, False, True, True, True]])
KEY_MASK = np.broadcast_to(PADDING[:, None, None], (BATCH, 1, 1, SPAN))
OWN = np.random.default_rng(5).random((BATCH, HEADS, LENGTH, SPAN)) < 0.7
OWN[..., 0] = True
MASKS = {
    "none": (None, False),
    "keys": (KEY_MASK, False),
    "causal": (None, True),
    "causal-keys": (KEY_MASK, True),
    "own": (OWN, False),
    "own-causal": (OWN, True),
    "per-head": (np.broadcast_to(OWN[:, :, :1], (BATCH, HEADS, 1, SPAN)), False),
}


def draw():
    rng = np.random.default_rng(0)
    query = rng.normal(size=(BATCH, HEADS, LENGTH, WIDTH))
    key = rng.normal(size=(BATCH, GROUPS, SPAN, WIDTH))
    value = rng.normal(size=(BATCH, GROUPS, SPAN, OUT))
    return query, key, value, rng.normal(size=(BATCH, HEADS, LENGTH, OUT))


def leaf_name(path):
    """That of the parameter in PyTorch."""
    return ".".join(part.name for part in path).replace("log_scale", "log_factor")


def in_jax_program(member, kernel):
    """(answer, gradients by query, key, value, kernel, ridge), given a mask per query."""
    attend = getattr(in_jax, f"{member}_attention")
    made = None if kernel is None else KERNELS[kernel](jax_kernels, jnp.asarray)
    ridge = jnp.asarray(OPTIONS.get(member, {}).get("ridge", 1.0))

    def answer(query, key, value, kernel, ridge, mask):
        options = {} if kernel is None else {"kernel": kernel}
        if member in OPTIONS:
            options["ridge"] = ridge
        if member == "delta_rule":
            options = {"step": 0.8, "decay": 0.9}
        tokens = (jnp.swapaxes(each, 1, 2) for each in (query, key, value))
        return jnp.swapaxes(attend(*tokens, mask=mask, **options), 1, 2)

    @jax.jit
    def both(query, key, value, cotangent, mask):
        out, pull = jax.vjp(lambda *given: answer(*given, mask), query, key, value, made, ridge)
        return out, pull(cotangent)

    return both


@pytest.mark.parametrize(("member", "kernel"), MEMBERS)
def test_values_and_gradients(member, kernel):
    query, key, value, cotangent = draw()
    program = in_jax_program(member, kernel)
    attend = getattr(in_torch, f"{member}_attention")

    def number(given):
        return torch.tensor(given, dtype=torch.float64)

    for mask, is_causal in MASKS.values():
        full = np.ones((BATCH, HEADS, LENGTH, SPAN), bool) if mask is None else mask
        full = full & TRIANGLE if is_causal else np.broadcast_to(full, (BATCH, HEADS, LENGTH, SPAN))
        tokens = [torch.tensor(each, requires_grad=True) for each in (query, key, value)]
        options = {"attn_mask": None if mask is None else torch.tensor(mask)}
        ridge = None
        if member in OPTIONS:
            ridge = torch.tensor(OPTIONS[member]["ridge"], dtype=torch.float64, requires_grad=True)
            options["ridge"] = ridge
        if member == "delta_rule":
            options |= {"step": 0.8, "decay": 0.9}
        if kernel is not None:
            options["kernel"] = KERNELS[kernel](in_torch, number)
        found = attend(*tokens, is_causal=is_causal, enable_gqa=True, **options)
        with np.errstate(all="ignore"):
            wanted, gradients = program(query, key, value, cotangent, full)
        assert full.any(-1).all()  # else softmax spreads evenly in JAX, and answers 0 in PyTorch
        np.testing.assert_allclose(found.detach(), wanted, atol=1e-10, rtol=0)
        found.backward(torch.tensor(cotangent))
        for tensor, gradient in zip(tokens, gradients, strict=False):
            np.testing.assert_allclose(tensor.grad, gradient, atol=1e-10, rtol=1e-10)
        if kernel is not None:
            leaves = jax.tree_util.tree_leaves_with_path(gradients[3])
            wanted = {leaf_name(path): leaf for path, leaf in leaves}
            for name, parameter in options["kernel"].named_parameters():
                np.testing.assert_allclose(parameter.grad, wanted.pop(name), atol=1e-10, rtol=1e-10)
            assert not wanted
        if ridge is not None:
            np.testing.assert_allclose(ridge.grad, gradients[4], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("mask", ["none", "causal-keys", "own", "per-head"])
def test_gates_of_the_delta_rule(mask):
    """Per token and head, per channel, by logarithms, and gates that forget everything."""
    query, key, value, cotangent = draw()
    tokens = query, key, value
    rng = np.random.default_rng(2)
    step = rng.uniform(0, 2, size=(BATCH, GROUPS, SPAN))
    kept, is_causal = MASKS[mask]

    @jax.jit
    def in_jax_program(gates, *given):
        def answer(*given):
            turned = {name: jnp.swapaxes(gate, 1, 2) for name, gate in gates.items()}
            given = (jnp.swapaxes(each, 1, 2) for each in given)
            out = in_jax.delta_rule_attention(*given, mask=kept, is_causal=is_causal, **turned)
            return jnp.swapaxes(out, 1, 2)

        out, pull = jax.vjp(answer, *given)
        return out, pull(cotangent)

    for width, name in (((), "decay"), ((WIDTH,), "decay"), ((WIDTH,), "log_decay")):
        decay = rng.uniform(0.1, 1.0, size=(BATCH, GROUPS, SPAN, *width))
        decay[:, 1, 3] = 1e-200
        gates = {"step": step, name: decay if name == "decay" else np.log(decay)}
        tensors = [torch.tensor(each, requires_grad=True) for each in tokens]
        found = in_torch.delta_rule_attention(
            *tensors,
            attn_mask=None if kept is None else torch.tensor(kept),
            is_causal=is_causal,
            enable_gqa=True,
            **{name: torch.tensor(gate) for name, gate in gates.items()},
        )
        wanted, gradients = in_jax_program(gates, *tokens)
        np.testing.assert_allclose(found.detach(), wanted, atol=1e-10, rtol=0)
        found.backward(torch.tensor(cotangent))
        for tensor, gradient in zip(tensors, gradients, strict=True):
            np.testing.assert_allclose(tensor.grad, gradient, atol=1e-10, rtol=1e-10)


def test_the_error_bar_and_a_ridge_per_token():
    query, key, value, _ = draw()
    tokens = [np.swapaxes(each, 1, 2) for each in (query, key, value)]
    shared = {"ridge_per_token": 0.05, "return_variance": True, "predictive": True}
    wanted = in_jax.cme_attention(*tokens, mask=jnp.asarray(KEY_MASK), **shared)
    tensors = [torch.tensor(each) for each in (query, key, value)]
    found = in_torch.cme_attention(
        *tensors, attn_mask=torch.tensor(KEY_MASK), enable_gqa=True, **shared
    )
    np.testing.assert_allclose(found[0], np.swapaxes(wanted[0], 1, 2), atol=1e-10, rtol=0)
    np.testing.assert_allclose(found[1], np.swapaxes(wanted[1], 1, 2), atol=1e-10, rtol=0)
    causal = {"is_causal": True, "return_variance": True}
    wanted = in_jax.cme_attention(*tokens, **causal)
    found = in_torch.cme_attention(*tensors, enable_gqa=True, **causal)
    np.testing.assert_allclose(found[1], np.swapaxes(wanted[1], 1, 2), atol=1e-10, rtol=0)
