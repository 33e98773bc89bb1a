"""What PyTorch can do with the functions: derivatives of any order, transforms, compilers."""

import pytest

torch = pytest.importorskip("torch")

from finetti import torch as finetti_torch  # noqa: E402
from finetti.torch import (  # noqa: E402
    RBF,
    Constant,
    Exponential,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    cme_attention,
    delta_rule_attention,
    kernel_attention,
    linear_attention,
    local_linear_attention,
    log_marginal_likelihood,
    softmax_attention,
)

# PyTorch's own, in its transforms and its compiler.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


def tokens(*lead, length=3, span=4, width=2, out=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (length, width), (span, width), (span, out)
    options = {"generator": generator, "dtype": torch.float64}
    return [torch.randn(*lead, *shape, **options).requires_grad_() for shape in shapes]


KERNELS = {
    "matern": Matern(2.5).double(),
    "polynomial": Polynomial(2).double(),
    "exponential": Exponential().double(),
    "offset": (RationalQuadratic(0.7) * Periodic(2.5) + Constant(0.5)).double(),
}
KEYS = torch.tensor([True, False, True, True])
WAYS = {
    "cme": lambda *t: cme_attention(*t, ridge=0.3),
    "cme-few-queries": lambda q, k, v: cme_attention(q[..., :1, :], k, v, ridge=0.3),
    "cme-matern": lambda *t: cme_attention(*t, kernel=KERNELS["matern"], ridge=0.3),
    "cme-polynomial": lambda *t: cme_attention(*t, kernel=KERNELS["polynomial"], ridge=0.3),
    "cme-offset": lambda *t: cme_attention(*t, kernel=KERNELS["offset"], ridge=0.3),
    "cme-exponential": lambda *t: cme_attention(*t, kernel=KERNELS["exponential"], ridge=0.3),
    "cme-keys": lambda *t: cme_attention(*t, attn_mask=KEYS, ridge_per_token=0.1),
    "cme-causal": lambda *t: cme_attention(*t, is_causal=True, return_variance=True),
    "cme-causal-exponential": lambda *t: cme_attention(
        *t, is_causal=True, kernel=KERNELS["exponential"]
    ),
    "cme-posterior": lambda *t: cme_attention(*t, return_variance=True, predictive=True),
    "kernel": lambda *t: kernel_attention(*t, is_causal=True),
    "local-linear": lambda *t: local_linear_attention(*t),
    "linear": lambda *t: linear_attention(*t, is_causal=True, kernel=KERNELS["polynomial"]),
    "delta": lambda *t: delta_rule_attention(*t, is_causal=True, step=0.7, decay=0.9),
    "delta-keys": lambda *t: delta_rule_attention(*t, attn_mask=KEYS, step=0.7),
    "likelihood": lambda _, k, v: log_marginal_likelihood(k, v, ridge=0.2),
}
ways = pytest.mark.parametrize("attend", WAYS.values(), ids=WAYS.keys())


@ways
def test_first_and_second_derivatives(attend):
    given = tokens()
    assert torch.autograd.gradcheck(attend, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(attend, given, fast_mode=True)


@ways
def test_vmap_is_a_loop_and_jacobians_agree(attend):
    """Backward, forward, and forward over backward."""
    many = tokens(3)
    alone = [attend(*(each[i] for each in many)) for i in range(3)]
    together = torch.vmap(attend)(*many)
    alone, together = (
        torch.stack([part[0] if isinstance(part, tuple) else part for part in alone]),
        together[0] if isinstance(together, tuple) else together,
    )
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=0)

    def answer(key):
        found = attend(query, key, value)
        return found[0] if isinstance(found, tuple) else found

    query, key, value = (each.detach() for each in tokens())
    backward = torch.func.jacrev(answer)(key)
    forward = torch.func.jacfwd(answer)(key)
    torch.testing.assert_close(backward, forward, atol=1e-10, rtol=0)


def test_vmap_over_a_ridge():
    given, ridges = tokens(), torch.tensor([0.1, 0.5], dtype=torch.float64)
    for is_causal in (False, True):

        def attend(ridge, is_causal=is_causal):
            return cme_attention(*given, ridge=ridge, is_causal=is_causal)

        wanted = torch.stack([attend(ridge) for ridge in ridges])
        torch.testing.assert_close(torch.vmap(attend)(ridges), wanted, atol=1e-12, rtol=0)


def test_a_hessian_of_the_values_is_zero_and_that_of_the_keys_is_symmetric():
    query, key, value = (each.detach() for each in tokens())
    of_values = torch.func.hessian(lambda v: cme_attention(query, key, v).sum())(value)
    torch.testing.assert_close(of_values, torch.zeros_like(of_values))
    of_keys = torch.func.hessian(lambda k: cme_attention(query, k, value).sum())(key)
    of_keys = of_keys.reshape(key.numel(), key.numel())
    torch.testing.assert_close(of_keys, of_keys.mT, atol=1e-10, rtol=0)
    assert of_keys.abs().max() > 0.01


COMPILED = ["cme", "cme-causal", "cme-matern", "delta"]


@pytest.mark.parametrize("name", COMPILED)
def test_compiles_in_one_graph(name):
    attend = WAYS[name]
    given, again = tokens(), tokens()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    found = compiled(*given)
    wanted = attend(*again)
    found, wanted = (each[0] if isinstance(each, tuple) else each for each in (found, wanted))
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    found.sum().backward()
    wanted.sum().backward()
    for one, other in zip(given, again, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-10, rtol=0)


def test_single_precision_that_is_compiled_is_solved_in_float64():
    """A check is a branch on numbers, which a program does not have."""
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(300, 1, generator=generator)
    values = torch.sin(keys)
    compiled = torch.compile(
        lambda *given: cme_attention(*given, ridge=1e-6), fullgraph=True, backend="aot_eager"
    )
    exact = cme_attention(keys.double(), keys.double(), values.double(), ridge=1e-6)
    found = compiled(keys, keys, values)
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["cme", "cme-exponential", "cme-posterior", "delta", "softmax"])
def test_shapes_without_numbers(name):
    """No call looks at a number, or makes a tensor on another device: what a machine without a GPU
    can say of one."""
    attend = WAYS.get(name, softmax_attention)
    query = torch.empty(2, 4, 5, 8, device="meta")
    key, value = (torch.empty(2, 4, 300, size, device="meta") for size in (8, 6))
    if name == "cme-exponential":
        kernel = Exponential(torch.ones(4, 1, 1)).to("meta")
        found = cme_attention(query, key, value, kernel=kernel)
    else:
        found = attend(query, key, value)
    mean, *variance = found if isinstance(found, tuple) else (found,)
    assert mean.shape == (2, 4, 5, 6)
    assert mean.device.type == "meta"
    assert [each.shape for each in variance] == ([(2, 4, 5)] if name == "cme-posterior" else [])


def test_autocast_does_not_round():
    """Its products would have 8 bits; the half precision of the tokens is all that is lost."""
    query, key, value = (each.detach().float() for each in tokens(length=40, span=40))
    exact = cme_attention(query, key, value, ridge=0.01)
    with torch.autocast("cpu", torch.bfloat16):
        found = cme_attention(query, key, value, ridge=0.01)
        projected = torch.nn.functional.linear(query, torch.eye(2))
        mixed = cme_attention(projected, key, value, ridge=0.01)
        trained = value.clone().requires_grad_()
        cme_attention(query, key, trained, ridge=0.01).sum().backward()
    assert projected.dtype == torch.bfloat16
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=0)
    rounded = cme_attention(query.bfloat16().float(), key, value, ridge=0.01)
    torch.testing.assert_close(mixed, rounded, atol=1e-6, rtol=0)
    weights = cme_attention(query.double(), key.double(), torch.eye(40).double(), ridge=0.01)
    wanted = weights.sum(0)[:, None].expand(40, 2).float()
    torch.testing.assert_close(trained.grad, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "member", ["cme", "kernel", "local_linear", "linear", "delta_rule", "softmax"]
)
def test_half_precision_is_that_of_the_tokens_alone(member, dtype):
    attend = getattr(finetti_torch, f"{member}_attention")
    half = [each.detach().to(dtype) for each in tokens(2, 3)]
    found = attend(*half)
    exact = attend(*(each.double() for each in half))
    assert found.dtype == dtype
    if member != "softmax":  # by PyTorch itself
        torch.testing.assert_close(found, exact.to(dtype), atol=0, rtol=torch.finfo(dtype).eps)


def test_kernels_learn_and_are_copied():
    """One step of Adam lowers the loss; a copy and a pickle are the same kernel."""
    import copy
    import pickle

    kernel = 2.0 * RBF(torch.full((3,), 0.5)) + Linear() * Polynomial(2, bias=0.5)
    keys, values = torch.randn(20, 3), torch.randn(20, 1)
    optimizer = torch.optim.Adam(kernel.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        loss = -log_marginal_likelihood(keys, values, kernel=kernel, ridge=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        torch.testing.assert_close(other(keys), kernel(keys), rtol=0, atol=0)
    fresh = 1.0 * RBF(torch.ones(3)) + Linear() * Polynomial(2)
    fresh.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(fresh(keys), kernel(keys), rtol=0, atol=0)
