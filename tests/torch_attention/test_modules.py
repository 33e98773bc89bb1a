"""The module: PyTorch's own multi-head attention with another attention inside."""

import copy
import io
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from finetti.core.errors import InputError, UnsupportedError  # noqa: E402
from finetti.torch import RBF, Attention, Exponential, Matern, Polynomial  # noqa: E402

MEMBERS = ["cme", "softmax", "kernel", "local_linear", "linear", "delta_rule"]
members = pytest.mark.parametrize("member", MEMBERS)


def layer(member="cme", **options):
    torch.manual_seed(0)
    return Attention(8, 2, attention=member, batch_first=True, **options)


def tokens(batch=3, length=5):
    return torch.randn(batch, length, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("widths", [{}, {"kdim": 6, "vdim": 4}])
def test_with_softmax_it_is_pytorchs(batch_first, widths):
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first, **widths)
    ours = Attention(8, 2, attention="softmax", batch_first=batch_first, **widths)
    ours.load_state_dict(theirs.state_dict())
    query = tokens()
    key = torch.randn(3, 7, widths.get("kdim", 8))
    value = torch.randn(3, 7, widths.get("vdim", 8))
    padding = torch.tensor([[False] * 5 + [True] * 2, [False] * 7, [True] + [False] * 6])
    blocked = torch.rand(5, 7) < 0.3
    blocked[:, 1] = False
    if not batch_first:
        query, key, value = (each.transpose(0, 1) for each in (query, key, value))
    for masks in (
        {},
        {"key_padding_mask": padding},
        {"key_padding_mask": padding, "attn_mask": blocked},
        {"attn_mask": torch.randn(5, 7)},
        {"attn_mask": blocked.expand(6, 5, 7)},
    ):
        wanted, shares = theirs(query, key, value, average_attn_weights=False, **masks)
        found, weights = ours(
            query, key, value, need_weights=True, average_attn_weights=False, **masks
        )
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(weights, shares, atol=1e-6, rtol=1e-5)
    alone = (query[0], key[0], value[0]) if batch_first else (query[:, 0], key[:, 0], value[:, 0])
    torch.testing.assert_close(ours(*alone)[0], theirs(*alone)[0], atol=1e-6, rtol=1e-5)


@members
def test_padding_is_deletion_and_weights_are_those_of_the_values(member):
    attention, given = layer(member), tokens()
    padding = torch.tensor([False, False, False, True, True]).expand(3, 5)
    found, weights = attention(given, given, given, padding, need_weights=True)
    short = attention(given, given[:, :3], given[:, :3])[0]
    torch.testing.assert_close(found, short, atol=1e-5, rtol=1e-4)
    assert weights.shape == (3, 5, 5)
    assert (weights[..., 3:] == 0).all()


@members
def test_copies_pickles_and_state_dicts_are_the_same_layer(member):
    kernel = {"kernel": Polynomial(2), "linear": Polynomial(2)}.get(member)
    attention, given = layer(member, kernel=kernel), tokens()
    wanted = attention(given, given, given)[0]
    stored = io.BytesIO()
    torch.save(attention.state_dict(), stored)
    stored.seek(0)
    fresh = layer(member, kernel=copy.deepcopy(kernel))
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(1.0)
    fresh.load_state_dict(torch.load(stored))
    for other in (copy.deepcopy(attention), pickle.loads(pickle.dumps(attention)), fresh):
        torch.testing.assert_close(other(given, given, given)[0], wanted, atol=0, rtol=0)


@members
def test_everything_is_learned(member):
    attention, given = layer(member), tokens()
    attention(given, given, given, is_causal=True)[0].square().sum().backward()
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0 or name == "in_proj_bias", name


def test_the_variance_falls_with_more_keys():
    attention, given = layer(), tokens()
    output, _, variance = attention(given, given, given, is_causal=True, return_variance=True)
    assert output.shape == (3, 5, 8)
    assert variance.shape == (3, 2, 5)
    same = given[:, :1].expand(3, 5, 8)
    _, _, variance = attention(same, same, same, is_causal=True, return_variance=True)
    assert (variance.diff() < 0).all()


def test_a_network_of_it_learns_in_context_regression():
    """Plain supervised training lowers the loss, with ridge and lengthscales among what moves."""
    torch.manual_seed(0)
    attention = Attention(16, 2, batch_first=True)
    read, write = torch.nn.Linear(2, 16), torch.nn.Linear(16, 1)
    parameters = [*attention.parameters(), *read.parameters(), *write.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    start = attention.log_ridge.detach().clone()
    losses = []
    for _ in range(30):
        x = torch.randn(16, 12, 1)
        y = torch.sin(2 * x + torch.randn(16, 1, 1))
        asked = read(torch.cat([x[:, -1:], torch.zeros(16, 1, 1)], -1))
        known = read(torch.cat([x, y], -1)[:, :-1])
        loss = (write(attention(asked, known, known)[0]) - y[:, -1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])
    assert (attention.log_ridge - start).abs().min() > 0


@members
def test_inside_pytorchs_encoder_it_stays_itself(member):
    """In training and in evaluation, with the masks of 0 and −∞ that the layer passes on."""
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder.self_attn, given = layer(member), tokens()
    padding = torch.tensor([False, False, False, True, True]).expand(3, 5)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = {"src_mask": causal, "src_key_padding_mask": padding}
    own = encoder.self_attn(given, given, given, padding, attn_mask=causal)[0]
    wanted = encoder.norm1(given + own)
    wanted = encoder.norm2(wanted + encoder.linear2(encoder.linear1(wanted).relu()))
    torch.testing.assert_close(encoder(given, **masks), wanted)
    encoder.eval()
    with torch.no_grad():
        torch.testing.assert_close(encoder(given, **masks), wanted)
        stack = torch.nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
        assert stack(given, causal, padding).shape == given.shape


def test_is_built_without_numbers_and_loaded_afterwards():
    attention, given = layer(), tokens()
    with torch.device("meta"):
        empty = layer()
    loaded = empty.to_empty(device="cpu")
    loaded.load_state_dict(attention.state_dict())
    wanted = attention(given, given, given)[0]
    torch.testing.assert_close(loaded(given, given, given)[0], wanted, atol=0, rtol=0)


def test_print_shows_ridges_and_parameters_of_kernels():
    kernel = 0.5 * Matern(1.5, torch.tensor([1.0, 2.0])) + Polynomial(2, bias=0)
    shown = str(layer(kernel=kernel, ridge=0.25))
    assert "attention='cme', ridge=[0.25, 0.25]" in shown
    for words in ("constant=0.5", "Matern(nu=1.5, lengthscale=[1, 2])", "degree=2, factor=1)"):
        assert words in shown
    assert "lengthscale=[1, 1, 1, 1, …]" in str(RBF(torch.ones(5, 1, 1)))
    assert "lengthscale=(shape (2,))" in str(RBF(torch.ones(2)).to("meta"))


def test_refusals():
    with pytest.raises(UnsupportedError, match=r"no dropout of weights.*torch\.nn\.Dropout"):
        Attention(8, 2, dropout=0.1)
    with pytest.raises(InputError, match="one of \\('cme', 'softmax'"):
        Attention(8, 2, attention="cosine")
    with pytest.raises(InputError, match="a divisor of embed_dim = 8"):
        Attention(8, 3)
    given = tokens()
    with pytest.raises(UnsupportedError, match="has no variance"):
        layer("kernel", kernel=Exponential())(given, given, given, return_variance=True)
    with pytest.raises(InputError, match=r"boolean, \(3, 5\)"):
        layer()(given, given, given, torch.ones(3, 5))
    for tokens_given, sentence in (
        ((given[..., :7],) * 3, "as the query, with E = 8"),
        ((given, given[:2], given[:2]), "of as many sequences as the query, 3"),
        ((given, given, given[:, :4]), "one per key"),
        ((given[0, 0],) * 3, "or without B"),
        ((given.double(),) * 3, r"dtype of the layer's weights.*layer\.to\(torch.float64\)"),
    ):
        with pytest.raises(InputError, match=sentence):
            layer()(*tokens_given)
    for member in ("softmax", "delta_rule"):
        with pytest.raises(InputError, match="which has no kernel"):
            layer(member, kernel=Exponential())
    with pytest.raises(InputError, match="must be a kernel of finetti"):
        layer(kernel="rbf")
    for ridge in (None, torch.tensor([0.1, 0.2]), float("inf"), -1.0):
        with pytest.raises(InputError, match="`ridge` argument of Attention"):
            layer(ridge=ridge)


def test_neither_side_imports_the_other():
    """No JAX is loaded by the PyTorch side; without PyTorch it says what to install."""
    code = (
        "import sys; import finetti.torch as f; f.Attention, f.cme_attention; "
        "assert not {'jax', 'equinox'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest); "
        "import finetti; assert 'torch' in dir(finetti)\n"
        "try:\n    import finetti.torch\n"
        "except ImportError as error:\n    assert \"pip install 'finetti[torch]'\" in str(error)\n"
        "else:\n    raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
