"""Right, or it says so: masks, NaN, precision, refusals."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from finetti.core.errors import InputError, UnsupportedError  # noqa: E402
from finetti.torch import (  # noqa: E402
    RBF,
    ConditionalMeanState,
    Exponential,
    FastWeightState,
    Linear,
    Matern,
    Polynomial,
    checked,
    cme,
    cme_attention,
    delta_rule_attention,
    kernel_attention,
    layout,
    linear_attention,
    local_linear_attention,
    log_marginal_likelihood,
    softmax_attention,
    solve,
)
from finetti.torch.solve import diagonal_floor  # noqa: E402

sdpa = torch.nn.functional.scaled_dot_product_attention
FAMILY = {
    "cme": cme_attention,
    "cme-exponential": lambda *t, **o: cme_attention(*t, kernel=Exponential(None), **o),
    "softmax": softmax_attention,
    "kernel": kernel_attention,
    "local-linear": local_linear_attention,
    "linear": linear_attention,
    "delta": lambda *t, **o: delta_rule_attention(*t, step=0.8, decay=0.9, **o),
}
family = pytest.mark.parametrize("attend", FAMILY.values(), ids=FAMILY.keys())
MASK = torch.tensor([True, False, True, True, False, True])


def tokens(*lead, length=4, span=6, width=3, out=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = (length, width), (span, width), (span, out)
    return [torch.randn(*lead, *shape, generator=generator, dtype=dtype) for shape in shapes]


def close(found, wanted, atol=1e-12):
    torch.testing.assert_close(found, wanted, atol=atol, rtol=0, equal_nan=True)


def test_a_sliding_window_reads_its_own_keys_some_queries_at_a_time(monkeypatch):
    query, key, value = tokens(2, 3, length=12, span=12)
    places = torch.arange(12)
    window = (places <= places[:, None]) & (places > places[:, None] - 3)
    window[4] = False
    whole = cme_attention(query, key, value, window, return_variance=True)
    monkeypatch.setattr(cme, "MAX_ENTRIES", 6 * 12**2 * 2)  # two queries
    sizes, build = [], solve.build
    monkeypatch.setattr(solve, "build", lambda *a: sizes.append(a[1].shape[-2]) or build(*a))
    for found, wanted in zip(
        cme_attention(query, key, value, window, return_variance=True), whole, strict=True
    ):
        close(found, wanted)
    assert sizes == [2, 4, 3, 4, 4, 4]
    for place in (0, 4, 7):
        seen = slice(max(0, place - 2), place + 1)
        one = query[..., place : place + 1, :], key[..., seen, :], value[..., seen, :]
        wanted = torch.zeros(2, 3, 1, 2).double() if place == 4 else cme_attention(*one)
        close(whole[0][..., place : place + 1, :], wanted)


@family
def test_a_masked_key_is_deleted_whatever_it_holds(attend):
    query, key, value = tokens(2)
    deleted = attend(query, key[:, MASK], value[:, MASK])
    for number in (7.0, torch.nan, torch.inf):
        dirty = [each.clone() for each in (key, value)]
        for each in dirty:
            each[:, ~MASK] = number
        close(attend(query, *dirty, attn_mask=MASK), deleted)
        close(attend(query, *dirty, attn_mask=MASK.expand(4, 6)), deleted)
        trained = dirty[1].requires_grad_()
        attend(query, dirty[0], trained, attn_mask=MASK).sum().backward()
        assert torch.isfinite(trained.grad).all()
        assert (trained.grad[:, ~MASK] == 0).all()


def test_pytorch_leaks_what_is_masked():
    query, key, value = tokens(1)
    value[:, ~MASK] = torch.nan
    assert sdpa(query, key, value, attn_mask=MASK.expand(4, 6)).isnan().any()
    assert not softmax_attention(query, key, value, attn_mask=MASK.expand(4, 6)).isnan().any()


@family
def test_nan_reaches_the_queries_that_read_it_and_no_others(attend):
    query, key, value = tokens(span=4)
    clean = attend(query, key, value, is_causal=True)
    for place, tensor in ((2, key), (2, value), (1, query)):
        dirty = [each.clone() for each in (query, key, value)]
        index = next(i for i, each in enumerate((query, key, value)) if each is tensor)
        dirty[index][place, 0] = torch.nan
        found = attend(*dirty, is_causal=True)
        reads = torch.arange(4) == 1 if tensor is query else torch.arange(4) >= 2
        assert found[reads].isnan().all()
        close(found[~reads], clean[~reads])


@family
def test_a_query_that_may_read_nothing_answers_0(attend):
    query, key, value = tokens(2)
    for mask in (torch.zeros(6, dtype=torch.bool), torch.zeros(4, 6, dtype=torch.bool)):
        assert (attend(query, key, value, attn_mask=mask) == 0).all()
    some = torch.ones(4, 6, dtype=torch.bool)
    some[1] = False
    found = attend(query, key.requires_grad_(), value, attn_mask=some)
    assert (found[:, 1] == 0).all()
    close(found[:, 0], attend(query[:, :1], key, value)[:, 0])
    found.sum().backward()
    assert torch.isfinite(key.grad).all()


def test_without_keys_the_variance_is_the_prior():
    query, key, value = tokens(2)
    nothing = torch.zeros(6, dtype=torch.bool)
    for kernel in (2.0 * RBF(), Exponential(), Linear()):
        mean, variance = cme_attention(
            query, key, value, nothing, kernel=kernel, scale=1.0, return_variance=True
        )
        assert (mean == 0).all()
        close(variance, kernel.diagonal(query).detach(), atol=1e-6)


@family
def test_causal_is_upper_left_as_in_pytorch(attend):
    """Query t reads the keys 0…t, also where there are more queries than keys, or fewer."""
    for length, span in ((4, 6), (6, 4), (70, 70)):
        query, key, value = tokens(2, length=length, span=span)
        found = attend(query, key, value, is_causal=True)
        triangle = torch.ones(length, span, dtype=torch.bool).tril()
        close(found, attend(query, key, value, attn_mask=triangle), atol=1e-11)
    query, key, value = tokens(2)
    close(
        softmax_attention(query, key, value, is_causal=True),
        sdpa(query, key, value, is_causal=True),
    )


@family
def test_empty_batches_one_token_and_no_queries(attend):
    query, key, value = tokens(0, 2)
    assert attend(query, key, value).shape == (0, 2, 4, 2)
    assert attend(query, key, value, is_causal=True).shape == (0, 2, 4, 2)
    one = tokens(length=1, span=1)
    close(attend(*one, is_causal=True), attend(*one))
    assert torch.isfinite(attend(*one)).all()
    query, key, value = tokens(2, length=0)
    assert attend(query, key, value).shape == (2, 0, 2)
    assert attend(query, key, value, is_causal=True).shape == (2, 0, 2)


@family
def test_grouped_heads_are_repeated_heads(attend):
    query = tokens(2, 4)[0]
    key, value = tokens(2, 2)[1:]
    repeated = [each.repeat_interleave(2, -3) for each in (key, value)]
    for options in ({}, {"is_causal": True}, {"attn_mask": torch.rand(2, 4, 4, 6) < 0.6}):
        grouped = attend(query, key, value, enable_gqa=True, **options)
        close(grouped, attend(query, *repeated, **options))


def test_a_mask_of_numbers_is_added_to_scores():
    query, key, value = tokens(2)
    bias = torch.randn(4, 6, dtype=torch.float64)
    bias[0, 2] = -torch.inf
    wanted = sdpa(query, key, value, attn_mask=bias)
    close(softmax_attention(query, key, value, bias), wanted)
    close(kernel_attention(query, key, value, bias, kernel=Exponential(None)), wanted)


def test_softmax_is_kernel_attention_and_large_scores_do_not_overflow():
    query, key, value = (1e3 * each for each in tokens(2))
    wanted = sdpa(query, key, value)
    close(kernel_attention(query, key, value, kernel=Exponential(None)), wanted, atol=1e-8)
    found = cme_attention(query, key, value, kernel=Exponential(None), return_variance=True)
    assert not any(part.isnan().any() for part in found)


@pytest.mark.parametrize("is_causal", [False, True])
def test_repeated_keys_at_a_small_ridge(is_causal):
    """Three copies of a key are one with a third of the ridge and the mean of the values."""
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(5, 2, generator=generator).repeat(3, 1).requires_grad_()
    value = torch.randn(15, 2, generator=generator)
    found, variance = cme_attention(
        key, key, value, ridge=1e-6, is_causal=is_causal, return_variance=True
    )
    merged = cme_attention(
        key[:5].double(), key[:5].double(), value.view(3, 5, 2).mean(0).double(), ridge=1e-6 / 3
    )
    close(found[-5:].double(), merged if not is_causal else found[-5:].double(), atol=1e-4)
    if is_causal:
        close(found[-1].double(), merged[-1], atol=1e-4)
    assert (variance >= 0).all()
    found.sum().backward()
    assert torch.isfinite(key.grad).all()


def test_the_floor_is_that_of_jax():
    from finetti.core.linalg import positive_definite as solves

    assert diagonal_floor(300, 7) == solves.diagonal_floor(300, 7)


def test_a_factor_in_blocks_is_that_of_lapack_and_knows_where_there_is_none():
    size = solve.MIN_BLOCKED + 30
    rows = torch.randn(2, size, size, generator=torch.Generator().manual_seed(0)).double()
    gram, noise = rows @ rows.mT / size, torch.full((2, size), 0.1).double()
    factor, failed = solve.factor_once(gram, noise)
    close(factor, torch.linalg.cholesky(gram + torch.diag_embed(noise)), atol=1e-11)
    assert (failed == 0).all()
    gram[1, 300, 300] = -1.0  # in the second block
    assert (solve.factor_once(gram, noise)[1] > 0).tolist() == [False, True]


def test_checks_choose_the_precision(monkeypatch):
    """Smooth values at a moderate ridge are answered in float32, noise at a small one is not."""
    torch.manual_seed(0)
    answered = []
    exact = checked.Call.mean64
    monkeypatch.setattr(
        checked.Call, "mean64", lambda self, *given: answered.append(1) or exact(self, *given)
    )
    query, key, _ = tokens(length=300, span=300, dtype=torch.float32)
    smooth = torch.sin(key)
    cme_attention(query, key, smooth, ridge=0.1)
    assert not answered
    noisy = torch.randn(300, 2)
    cme_attention(query, key, noisy, ridge=1e-7)
    assert len(answered) == 1
    # What does for the answer need not do for the gradient: that of the values is checked apart.
    key = torch.randn(800, 1)
    value = torch.sin(key).requires_grad_()
    out = cme_attention(key, key, value, kernel=RBF(0.7), scale=1.0, ridge=0.05)
    assert len(answered) == 1
    weights = torch.randn(800, 1)
    (found,) = torch.autograd.grad(out, value, weights, retain_graph=True)
    doubled = value.detach().double().requires_grad_()
    out64 = cme_attention(
        key.double(), key.double(), doubled, kernel=RBF(0.7), scale=1.0, ridge=0.05
    )
    (wanted,) = torch.autograd.grad(out64, doubled, weights.double())
    assert (found - wanted).abs().max() <= 1e-3 * wanted.abs().max()


def test_gradients_of_gradients_in_single_precision():
    query, key, value = tokens(length=3, span=300, dtype=torch.float32)

    def second(dtype):
        given = [each.to(dtype).clone().requires_grad_() for each in (query, key, value)]
        out = cme_attention(*given, ridge=0.5).square().sum()
        (first,) = torch.autograd.grad(out, given[1], create_graph=True)
        return torch.autograd.grad(first.square().sum(), given)

    for found, wanted in zip(second(torch.float32), second(torch.float64), strict=True):
        assert (found - wanted).abs().max() <= 1e-3 * wanted.abs().max()


@pytest.mark.parametrize("wanted", ["query", "key", "value", "ridge", "lengthscale"])
def test_long_contexts_differentiate_one_argument_alone(wanted):
    def gradient(dtype):
        given = dict(zip(("query", "key", "value"), tokens(length=9, span=300), strict=True))
        given |= {"value": torch.sin(given["key"]), "ridge": torch.tensor(0.3)}
        given = {name: each.to(dtype) for name, each in given.items()}
        kernel = RBF(torch.tensor(0.8, dtype=dtype)).requires_grad_(wanted == "lengthscale")
        leaf = kernel.log_lengthscale if wanted == "lengthscale" else given[wanted]
        leaf.requires_grad_()
        cme_attention(**given, kernel=kernel).square().sum().backward()
        return leaf.grad

    found, exact = gradient(torch.float32), gradient(torch.float64)
    assert (found - exact).abs().max() <= 1e-3 * exact.abs().max()


@pytest.mark.parametrize("tie", ["kernel", "parameter"])
def test_what_occurs_twice_in_a_kernel_is_learned_and_stays(tie):
    def gradient(dtype):
        first = RBF(torch.tensor(0.8, dtype=dtype))
        second = first if tie == "kernel" else Matern(1.5, torch.tensor(1.0, dtype=dtype))
        second.log_lengthscale = length = first.log_lengthscale
        given = [each.to(dtype) for each in tokens(length=9, span=300)]
        out = cme_attention(*given[:2], torch.sin(given[1]), kernel=first + 2.0 * second, ridge=0.3)
        out.square().sum().backward()
        assert first.log_lengthscale is length
        assert second.log_lengthscale is length
        return length.grad

    found, exact = gradient(torch.float32), gradient(torch.float64)
    assert (found - exact).abs() <= 1e-3 * exact.abs()


def test_heads_and_masks_of_long_contexts_in_single_precision():
    """Grouped heads, one mask for all heads of a sequence, a ridge and a lengthscale per head."""
    query, key, value = tokens(2, 6, length=300, span=300, dtype=torch.float32)
    key, mask = key[:, :3], torch.rand(2, 1, 1, 300) < 0.8
    value, weights = torch.sin(key[..., :2]), torch.randn(2, 6, 300, 2)

    def both(dtype):
        given = [each.to(dtype).clone().requires_grad_() for each in (query, key, value)]
        kernel = (2.0 * RBF(torch.tensor([0.7, 1.0, 1.5])[:, None, None])).to(dtype)
        ridge = torch.tensor([0.1, 0.5, 1.0], dtype=dtype, requires_grad=True)
        out = cme_attention(*given, mask, enable_gqa=True, kernel=kernel, ridge=ridge)
        out.backward(weights.to(dtype))
        return [out.detach(), *(each.grad for each in (*given, ridge, *kernel.parameters()))]

    for found, wanted in zip(both(torch.float32), both(torch.float64), strict=True):
        assert found.dtype == torch.float32
        assert (found - wanted).abs().max() <= 1e-3 * wanted.abs().max()


def test_gates_of_the_delta_rule_are_the_recurrence():
    """Per token and head, per channel, and gates that forget everything."""
    query, key, value = tokens(2, 3, length=70, span=70)
    generator = torch.Generator().manual_seed(1)
    options = {"generator": generator, "dtype": torch.float64}
    step = 2 * torch.rand(2, 3, 70, **options)
    counted = torch.rand(2, 1, 1, 70, **options) < 0.8
    for shape in ((2, 3, 70), (2, 3, 70, 3)):
        decay = torch.rand(*shape, **options)
        decay[:, 1, 9] = 0.0
        for mask in (None, counted):
            gates = {"step": step, "decay": decay, "attn_mask": mask}
            found = delta_rule_attention(query, key, value, is_causal=True, **gates)
            wanted = recurrence(query, key, value, step, decay, mask)
            close(found, wanted, atol=1e-10)
            last = delta_rule_attention(query[..., -1:, :], key, value, **gates)
            close(last, wanted[..., -1:, :], atol=1e-10)
        logs = delta_rule_attention(
            query, key, value, is_causal=True, step=step, log_decay=decay.log()
        )
        close(logs, recurrence(query, key, value, step, decay, None), atol=1e-10)


def recurrence(query, key, value, step, decay, mask):
    """One token after the other."""
    state, out = query.new_zeros(2, 3, 2, 3), []
    for t in range(key.shape[-2]):
        k, v, alpha = key[..., t, :], value[..., t, :], decay[:, :, t]
        faded = state * (alpha[..., None, None] if alpha.ndim == 2 else alpha[..., None, :])
        beta = (step[..., t] / k.square().sum(-1))[..., None, None]
        missed = (faded @ k[..., None])[..., 0] - v
        written = faded - beta * missed[..., None] * k[..., None, :]
        counts = torch.tensor(True) if mask is None else mask[..., t, None]
        state = torch.where(counts, written, state)
        out.append((state @ query[..., t, :, None])[..., 0])
    return torch.stack(out, -2)


def test_decoding_is_the_causal_call():
    query, key, value = tokens(2, length=40, span=40)
    for kernel, ridge in ((None, 0.1), (Matern(1.5).double(), torch.tensor([0.2, 0.01]))):
        options = {"kernel": kernel, "ridge": ridge}
        mean, variance = cme_attention(
            query, key, value, is_causal=True, return_variance=True, **options
        )
        for prompt in (0, 7):
            options["ridge"] = ridge if kernel is None else ridge.double()
            state = ConditionalMeanState(key[:, :prompt], value[:, :prompt], **options)
            for t in range(prompt, 40):
                state.append(key[:, t], value[:, t])
                found = state.read(query[:, t])
                close(found[0], mean[:, t], atol=1e-10)
                close(found[1], variance[:, t].detach(), atol=1e-10)
    step, decay = torch.rand(2, 40).double(), torch.rand(2, 40, 3).double()
    gated = delta_rule_attention(query, key, value, is_causal=True, step=step, decay=decay)
    plain = linear_attention(query, key, value, is_causal=True, scale=1.0)
    delta = FastWeightState(key[:, :5], value[:, :5], step=step[:, :5], decay=decay[:, :5])
    linear = FastWeightState(key[:, :5], value[:, :5])
    for t in range(5, 40):
        delta.append(key[:, t], value[:, t], step=step[:, t], decay=decay[:, t])
        linear.append(key[:, t], value[:, t])
        close(delta.read(query[:, t]), gated[:, t], atol=1e-10)
        close(linear.read(query[:, t]), plain[:, t], atol=1e-10)


def test_the_likelihood_is_that_of_a_gaussian():
    _, key, value = tokens(2)
    for kernel in (RBF(0.8).double(), Exponential(0.3).double(), Polynomial(2).double()):
        found = log_marginal_likelihood(key, value, MASK.expand(2, 6), kernel=kernel, ridge=0.2)
        kept = key[:, MASK]
        covariance = kernel(kept, scale=3**-0.5) + 0.2 * torch.eye(4, dtype=torch.float64)
        gauss = torch.distributions.MultivariateNormal(torch.zeros(4).double(), covariance)
        wanted = sum(gauss.log_prob(value[:, MASK, j]) for j in range(2))
        close(found, wanted, atol=1e-10)


def test_one_ridge_per_head_and_one_lengthscale():
    query, key, value = tokens(2, 3)
    ridges, lengths = torch.tensor([0.1, 0.5, 2.0]).double(), torch.tensor([0.5, 1.0, 2.0]).double()
    kernel = RBF(lengths[:, None, None])
    own = torch.rand(2, 3, 4, 6) < 0.7
    for options in ({}, {"is_causal": True}, {"attn_mask": own}):
        found = cme_attention(query, key, value, kernel=kernel, ridge=ridges, **options)
        for head in range(3):
            rest = dict(options)
            if "attn_mask" in rest:
                rest["attn_mask"] = own[:, head]
            alone = cme_attention(
                *(each[:, head] for each in (query, key, value)),
                kernel=RBF(lengths[head]),
                ridge=float(ridges[head]),
                **rest,
            )
            close(found[:, head], alone, atol=1e-10)


REFUSALS = {
    "has no dropout": lambda q, k, v: cme_attention(q, k, v, dropout_p=0.1),
    "`key` argument of cme_attention must be of the query's width": lambda q, k, v: cme_attention(
        q, k[..., :2], v
    ),
    "allowed with enable_gqa=True": lambda q, k, v: kernel_attention(q, k[:1], v[:1]),
    "divides that of query heads": lambda q, k, v: cme_attention(
        q[:1].expand(3, 4, 3), k, v, enable_gqa=True
    ),
    "`value` argument of cme_attention must be of shape": lambda q, k, v: cme_attention(
        q, k, v[:, :3]
    ),
    "must be of at least one key": lambda q, k, v: cme_attention(q, k[:, :0], v[:, :0]),
    "must be of the query's dtype, torch.float64": lambda q, k, v: cme_attention(q, k.float(), v),
    "must be of a floating dtype": lambda q, k, v: cme_attention(q.long(), k, v),
    "must be on the query's device": lambda q, k, v: cme_attention(q, k.to("meta"), v),
    "must be a PyTorch tensor": lambda q, k, v: cme_attention(q, k.numpy(), v),
    "Convert it with `attn_mask == 0`": lambda q, k, v: cme_attention(q, k, v, torch.zeros(4, 6)),
    r"broadcastable to \(2, 4, 6\)": lambda q, k, v: cme_attention(q, k, v, MASK[:5]),
    "`ridge` argument of cme_attention must be positive": lambda q, k, v: cme_attention(
        q, k, v, ridge=0.0
    ),
    "not both": lambda q, k, v: cme_attention(q, k, v, ridge=0.1, ridge_per_token=0.1),
    "where every query reads another number": lambda q, k, v: cme_attention(
        q, k, v, is_causal=True, ridge_per_token=0.1
    ),
    "takes both signs": lambda q, k, v: kernel_attention(q, k, v, kernel=Linear()),
    "no finite feature map": lambda q, k, v: linear_attention(q, k, v, kernel=RBF()),
    "must be a kernel of finetti.torch": lambda q, k, v: cme_attention(q, k, v, kernel="rbf"),
    "`scale` argument of cme_attention": lambda q, k, v: cme_attention(q, k, v, scale=-1.0),
    "between 0 and 2": lambda q, k, v: delta_rule_attention(q, k, v, step=2.5),
    "`decay` or `log_decay`": lambda q, k, v: delta_rule_attention(
        q, k, v, decay=0.5, log_decay=-1.0
    ),
    "0.5, 1.5 or 2.5": lambda q, k, v: Matern(3.5),
    "positive and finite": lambda q, k, v: RBF(-1.0),
    "grows exponentially": lambda q, k, v: ConditionalMeanState(k, v, kernel=Exponential()),
    # Of parameters: one per key head needs an axis for each of the tokens' last two.
    r"`lengthscale` argument of RBF must be .* of shape \(3,\), \(heads, 1, 1\)": lambda q, k, v: (
        cme_attention(q, k, v, kernel=RBF(torch.ones(2)))
    ),
    r"Got shape \(5, 1, 1\)": lambda q, k, v: kernel_attention(
        q, k, v, kernel=Matern(1.5, torch.ones(5, 1, 1))
    ),
    "`factor` argument of Polynomial": lambda q, k, v: linear_attention(
        q, k, v, kernel=Polynomial(2, torch.ones(2))
    ),
    "`constant` argument of Scaled": lambda q, k, v: local_linear_attention(
        q, k, v, kernel=torch.ones(2) * RBF()
    ),
    "on the device of the tokens, cpu": lambda q, k, v: cme_attention(
        q, k, v, kernel=RBF().to("meta")
    ),
    "`ridge` argument of local_linear_attention": lambda q, k, v: local_linear_attention(
        q, k, v, ridge=torch.ones(3)
    ),
    # Of states.
    "`ridge` argument of ConditionalMeanState": lambda q, k, v: ConditionalMeanState(
        k, v, ridge=torch.ones(3)
    ),
    "`scale` argument of ConditionalMeanState": lambda q, k, v: ConditionalMeanState(
        k, v, scale=-1.0
    ),
    "`key` argument of ConditionalMeanState must be a PyTorch": lambda q, k, v: (
        ConditionalMeanState(k.numpy(), v)
    ),
    r"`value` argument of ConditionalMeanState must be of shape \(2, 2\)": lambda q, k, v: (
        ConditionalMeanState(k, v).append(k[:, 0], v[:, 0, :1])
    ),
    "on the device of the keys, cpu": lambda q, k, v: ConditionalMeanState(k, v).read(
        q[:, 0].to("meta")
    ),
    r"`query` argument of FastWeightState must be of shape \(2, 3\)": lambda q, k, v: (
        FastWeightState(k, v).read(q[:, 0, :2])
    ),
    "None in linear attention": lambda q, k, v: FastWeightState(k, v, decay=0.5),
    "`step` argument of FastWeightState must be None": lambda q, k, v: FastWeightState(k, v).append(
        k[:, 0], v[:, 0], step=0.5
    ),
}


@pytest.mark.parametrize("sentence", REFUSALS)
def test_what_cannot_be_is_refused_in_a_sentence(sentence):
    with pytest.raises((InputError, UnsupportedError), match=sentence):
        REFUSALS[sentence](*tokens(2))


def test_a_device_without_float64_is_refused():
    """No such device is here: a tensor that says it is on one."""

    class OnMPS(torch.Tensor):
        device = torch.device("mps")

    given = [each.as_subclass(OnMPS) for each in tokens()]
    with pytest.raises(UnsupportedError, match="MPS has no float64"):
        layout.arrange("cme_attention", *given, None, 0.0, False, None, False)


def test_numpy_agrees():
    query, key, value = (each.numpy() for each in tokens())
    gram = np.exp(-0.5 * 3**-0.5 * ((key[:, None] - key[None]) ** 2).sum(-1))
    cross = np.exp(-0.5 * 3**-0.5 * ((query[:, None] - key[None]) ** 2).sum(-1))
    wanted = cross @ np.linalg.solve(gram + 0.3 * np.eye(6), value)
    found = cme_attention(*(torch.tensor(each) for each in (query, key, value)), ridge=0.3)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
