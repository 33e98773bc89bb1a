"""Models of transformers whose attention is one of the family: tiny, random, made here."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers  # noqa: E402
from transformers import AttentionInterface, AttentionMaskInterface  # noqa: E402
from transformers.masking_utils import sdpa_mask  # noqa: E402

from finetti import torch as ours  # noqa: E402
from finetti.core.errors import InputError, UnsupportedError  # noqa: E402
from finetti.torch import RBF, Exponential, Polynomial, attention_options, variances  # noqa: E402

ours.register()

WORDS, LENGTH, RIDGE = 29, 8, 0.3
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    # Weights large enough for attention to matter.
    "initializer_range": 0.5,
    "attn_implementation": "eager",
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0}
CROSS = {**SMALL, "is_decoder": True, "add_cross_attention": True}
WINDOW = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
IMAGE = {"image_size": 6, "patch_size": 2}
BUILDERS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
    "qwen": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**GROUPED, **WINDOW)),
    "gemma": lambda: transformers.GemmaForCausalLM(
        transformers.GemmaConfig(**{**GROUPED, "num_key_value_heads": 1}, head_dim=6)
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS,
            n_embd=16,
            n_layer=2,
            n_head=4,
            n_positions=32,
            initializer_range=0.5,
            attn_implementation="eager",
        )
    ),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)),
    "bert-cross": lambda: transformers.BertLMHeadModel(transformers.BertConfig(**CROSS)),
    "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL, **IMAGE)),
}
MEMBERS = ("cme", "kernel", "local_linear", "linear", "delta_rule")
# Llama and its relatives normalize in float32, whatever the model's precision: a difference of
# 1e-16 may become one of 1e-7.
ROUNDED = ("llama", "qwen", "gemma")
CAUSAL = ("llama", "qwen", "gemma", "gpt2")
LEFT, RIGHT = ([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8], [[1] * 8, [1, 1, 1, 1, 1, 0, 0, 0]])


def build(name):
    torch.manual_seed(0)
    return BUILDERS[name]().double().eval()


def draw(name, padding=None):
    """The arguments of a call, and which of its answers count."""
    generator = torch.Generator().manual_seed(1)
    if name == "vit":
        pixels = torch.randn(2, 3, 6, 6, generator=generator, dtype=torch.float64)
        return {"pixel_values": pixels}, torch.ones(2, dtype=torch.bool)
    given = {"input_ids": torch.randint(1, WORDS, (2, LENGTH), generator=generator)}
    counted = torch.ones(2, LENGTH, dtype=torch.bool)
    if padding is not None:
        given["attention_mask"] = torch.tensor(padding)
        counted = given["attention_mask"].bool()
    if name == "bert-cross":
        states = torch.randn(2, 5, 16, generator=generator, dtype=torch.float64)
        given["encoder_hidden_states"] = states
        given["encoder_attention_mask"] = torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
    return given, counted


def logits(model, implementation, given):
    model.set_attn_implementation(implementation)
    return model(**given).logits


def close(found, wanted, atol=1e-5):
    torch.testing.assert_close(found, wanted, atol=atol, rtol=0)


def full_mask(*args, **options):
    """Never None, so that a reference needs to know nothing of causality."""
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, **{**options, **skips})


def read_one(member, query, keys, values, scale):
    """One query reads the keys that are given, without any mask."""
    if member == "cme":
        both = torch.cat([query, keys]) * scale**0.5
        gram = torch.exp(-0.5 * (both[:, None] - both[None]).square().sum(-1))
        system = gram[1:, 1:] + RIDGE * torch.eye(len(keys), dtype=gram.dtype)
        return gram[:1, 1:] @ torch.linalg.solve(system, values)
    function = getattr(ours, f"{member}_attention")
    options = {"ridge": RIDGE} if member == "local_linear" else {}
    return function(query, keys, values, scale=scale, **options)


def reference(member):
    """Every query of every head by itself, its visible keys cut out."""

    def attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **_):
        groups = query.shape[1] // key.shape[1]
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        length = query.shape[2]
        full = (len(query), 1, length, key.shape[2])
        mask = torch.ones(full, dtype=torch.bool) if attention_mask is None else attention_mask
        answers = []
        for row in range(len(query)):
            for head in range(query.shape[1]):
                keys, values = key[row, head // groups], value[row, head // groups]
                for place in range(length):
                    seen = mask[row, 0, place]
                    one = query[row, head, place : place + 1]
                    empty = values.new_zeros(1, values.shape[-1])
                    some = bool(seen.any())
                    answers.append(
                        read_one(member, one, keys[seen], values[seen], scale) if some else empty
                    )
        shape = (len(query), -1, length, value.shape[-1])
        return torch.cat(answers).reshape(shape).transpose(1, 2), None

    return attend


for each in MEMBERS:
    AttentionInterface.register(f"reference_{each}", reference(each))
    AttentionMaskInterface.register(f"reference_{each}", full_mask)


@pytest.fixture
def llama():
    return build("llama")


def with_ridge(model, member):
    model.config.finetti = {"ridge": RIDGE} if member in ("cme", "local_linear") else {}
    return model


@pytest.mark.parametrize("padding", [None, LEFT, RIGHT], ids=["whole", "left", "right"])
@pytest.mark.parametrize("name", BUILDERS)
@torch.no_grad()
def test_softmax_is_eager_attention(name, padding):
    if name == "vit" and padding:
        return
    # Eager attention computes its softmax in float32, and masks with numbers of the model's dtype.
    model, (given, counted) = build(name).float(), draw(name, padding)
    given = {k: v.float() if v.is_floating_point() else v for k, v in given.items()}
    wanted = logits(model, "eager", given)[counted]
    assert wanted.std() > 0.01
    close(logits(model, "finetti_softmax", given)[counted], wanted, 2e-5 * float(wanted.std()))


@pytest.mark.parametrize(
    ("name", "member", "padding"),
    [
        *((name, "cme", LEFT if name in CAUSAL else RIGHT) for name in BUILDERS if name != "vit"),
        *(("llama", member, LEFT) for member in MEMBERS[1:]),
        ("qwen", "delta_rule", RIGHT),
        ("llama", "cme", None),
        ("bert", "linear", None),
        ("vit", "cme", None),
        ("vit", "delta_rule", None),
    ],
)
def test_every_member_reads_what_the_mask_allows_and_so_do_its_gradients(name, member, padding):
    model, (given, counted) = build(name), draw(name, padding)
    with_ridge(model, member)
    found = []
    for implementation in (f"finetti_{member}", f"reference_{member}"):
        model.zero_grad()
        answer = logits(model, implementation, given)[counted]
        answer.square().mean().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append((answer.detach(), gradients))
    (answer, gradients), (wanted, expected) = found
    atol = 1e-5 if name in ROUNDED else 1e-9
    close(answer, wanted, atol)
    assert len(gradients) == len(expected)
    for gradient, other in zip(gradients, expected, strict=True):
        close(gradient, other, atol * (1 + float(other.abs().max())))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(
    ("name", "member"),
    [
        *((name, "cme") for name in CAUSAL),
        *((name, "softmax") for name in CAUSAL),
        *(("llama", member) for member in MEMBERS[1:]),
    ],
)
@torch.no_grad()
def test_generation_step_by_step_is_the_full_pass(name, member, cache):
    model = with_ridge(build(name), member)
    model.set_attn_implementation(f"finetti_{member}")
    given, _ = draw(name, LEFT)
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    if cache == "static":
        options["cache_implementation"] = "static"
    steps = model.generate(**given, **options)
    mask = torch.cat([given["attention_mask"], torch.ones(2, 4, dtype=torch.long)], 1)
    places = (mask.cumsum(1) - 1).clamp_min(0)
    full = model(steps.sequences, attention_mask=mask, position_ids=places).logits
    # `generate` keeps the logits in float32.
    close(torch.stack(steps.logits, 1), full[:, LENGTH - 1 : -1].float(), 1e-5)


@pytest.mark.parametrize("member", ["cme", "linear", "delta_rule"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@torch.no_grad()
def test_a_cache_is_filled_in_pieces(llama, member, cache):
    with_ridge(llama, member)
    given, counted = draw("llama", LEFT)
    wanted = logits(llama, f"finetti_{member}", given)
    if cache == "static":
        kept = transformers.StaticCache(llama.config, max_cache_len=12)
    else:
        kept = transformers.DynamicCache(config=llama.config)
    pieces = []
    for piece in (slice(0, 3), slice(3, 7), slice(7, 8)):
        mask = given["attention_mask"][:, : piece.stop]
        ids = given["input_ids"][:, piece]
        pieces.append(llama(ids, attention_mask=mask, past_key_values=kept).logits)
    close(torch.cat(pieces, 1)[counted], wanted[counted])


@torch.no_grad()
def test_masks_in_four_dimensions_boolean_or_of_numbers(llama):
    with_ridge(llama, "cme")
    given, _ = draw("llama")
    wanted = logits(llama, "finetti_cme", given)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().expand(2, 1, -1, -1)
    close(logits(llama, "finetti_cme", {**given, "attention_mask": mask}), wanted)
    lowest = torch.finfo(torch.float64).min
    numbers = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, lowest)
    close(logits(llama, "finetti_cme", {**given, "attention_mask": numbers}), wanted)
    # One that is neither causal nor the same for all queries, with a query that reads nothing.
    odd = torch.rand(2, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.5
    odd[0, 0, 3] = False
    odd = {**given, "attention_mask": odd}
    close(logits(llama, "finetti_cme", odd), logits(llama, "reference_cme", odd))
    biased = {**given, "attention_mask": torch.where(mask, numbers + 0.5, lowest)}
    with pytest.raises(InputError, match="a regression has no additive score"):
        logits(llama, "finetti_cme", biased)
    llama.float()
    biased["attention_mask"] = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    biased["attention_mask"][0, 0, 5, 2] = 2.0
    softmax, eager = (logits(llama, each, biased) for each in ("finetti_softmax", "eager"))
    close(softmax, eager, 1e-5)


@torch.no_grad()
def test_the_configuration_keeps_options_and_files_keep_them_too(llama, tmp_path):
    given, _ = draw("llama")
    llama.set_attn_implementation("finetti_cme")
    kernel = RBF(torch.tensor([0.7, 1.5], dtype=torch.float64)[:, None, None])
    with attention_options(llama, ridge=torch.tensor([0.2, 0.4]).double(), kernel=kernel):
        wanted = llama(**given).logits
    assert not hasattr(llama.model.layers[0].self_attn, "finetti_options")
    options = {"ridge": [0.2, 0.4], "kernel": {"name": "RBF", "lengthscale": [0.7, 1.5]}}
    llama.config.finetti = options
    close(llama(**given).logits, wanted)
    llama.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, attn_implementation="finetti_cme", local_files_only=True, dtype=torch.float64
    )
    assert again.config.finetti == options
    close(again(**given).logits, wanted)
    again.config.finetti = {"kernel": {"name": "Gauss"}}
    with pytest.raises(InputError, match=r"`kernel` argument of config\.finetti must be named"):
        again(**given)
    again.config.finetti = {"rigde": 0.2}
    with pytest.raises(InputError, match="Got `rigde` instead"):
        again(**given)
    again.config.finetti = 0.1
    with pytest.raises(InputError, match="must be a dict of options"):
        again(**given)


def test_ridge_and_lengthscale_of_one_layer_are_learned():
    model, (given, _) = build("gpt2"), draw("gpt2")
    model.requires_grad_(False).set_attn_implementation("finetti_softmax")
    log_ridge = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    kernel = RBF(torch.ones(4, 1, 1, dtype=torch.float64))

    def loss():
        options = {"attention": "cme", "kernel": kernel, "ridge": log_ridge.exp()}
        with attention_options(model, layers=[1], **options):
            answers = model(**given).logits[:, :-1].flatten(0, 1)
            return torch.nn.functional.cross_entropy(answers, given["input_ids"][:, 1:].flatten())

    learned = [log_ridge, kernel.log_lengthscale]
    gradients = torch.autograd.grad(loss(), learned)
    step = 1e-5
    for parameter, gradient in zip(learned, gradients, strict=True):
        for place in range(4):
            around = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter.view(-1)[place] += sign * step
                    around.append(float(loss()))
                    parameter.view(-1)[place] -= sign * step
            slope = (around[0] - around[1]) / (2 * step)
            assert abs(slope) > 1e-6
            assert float(gradient.view(-1)[place]) == pytest.approx(slope, abs=1e-8)
    optimizer = torch.optim.Adam(learned, lr=0.1)
    before = loss().item()
    for _ in range(10):
        optimizer.zero_grad()
        now = loss()
        now.backward()
        optimizer.step()
    assert loss().item() < before


@torch.no_grad()
def test_blocks_stand_inside_each_other_and_end_with_an_error(llama):
    given, _ = draw("llama")
    plain = logits(llama, "finetti_softmax", given)
    with attention_options(llama, attention="cme", ridge=RIDGE):
        everywhere = llama(**given).logits
        with attention_options(llama, layers=[0], kernel=Exponential(None)):
            inner = llama(**given).logits
        with attention_options(llama, layers=[0], attention="softmax"):
            second = llama(**given).logits
        close(llama(**given).logits, everywhere, 0)
    with (
        attention_options(
            llama, layers=[0], attention="cme", ridge=RIDGE, kernel=Exponential(None)
        ),
        attention_options(llama, layers=[1], attention="cme", ridge=RIDGE),
    ):
        close(llama(**given).logits, inner, 0)
    with attention_options(llama, layers=[1], attention="cme", ridge=RIDGE):
        close(llama(**given).logits, second, 0)
    with pytest.raises(ZeroDivisionError), attention_options(llama, attention="linear"):
        _ = 1 / 0
    close(llama(**given).logits, plain, 0)


@torch.no_grad()
def test_error_bars_of_all_heads():
    model, (given, _) = with_ridge(build("llama"), "cme"), draw("llama", LEFT)
    seen = []

    def listen(module, query, key, value, attention_mask, scaling=None, **_):
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
        options = {"scale": scaling, "ridge": RIDGE, "return_variance": True}
        out, variance = ours.cme_attention(query, key, value, attention_mask, **options)
        seen.append(variance)
        return out.transpose(1, 2), None

    AttentionInterface.register("listening", listen)
    AttentionMaskInterface.register("listening", full_mask)
    wanted = logits(model, "listening", given)
    model.set_attn_implementation("finetti_cme")
    output, bars = variances(model, **given)
    close(output.logits, wanted)
    assert list(bars) == [f"model.layers.{n}.self_attn" for n in (0, 1)]
    for bar, other in zip(bars.values(), seen, strict=True):
        assert bar.shape == (2, 4, LENGTH)
        close(bar, other)
        assert (bar[0, :, :3] == 1).all()  # the prior, where nothing may be read
        assert (bar[1] > 0).all()
        assert (bar[1, :, 1:] < 1).all()
    assert not hasattr(model.model.layers[0].self_attn, "finetti_variances")
    model.set_attn_implementation("finetti_softmax")
    with attention_options(model, layers=[1], attention="cme", ridge=RIDGE):
        _, some = variances(model, **given)
    assert list(some) == ["model.layers.1.self_attn"]
    with pytest.raises(UnsupportedError, match="only CME attention has one"):
        variances(model, **given)


@torch.no_grad()
def test_a_module_that_is_called_twice_has_two_error_bars():
    config = transformers.AlbertConfig(
        **SMALL, embedding_size=8, num_hidden_groups=1, inner_group_num=1
    )
    config._attn_implementation = "finetti_cme"
    _, bars = variances(transformers.AlbertModel(config).eval(), torch.ones(1, 4, dtype=torch.long))
    first, second = bars
    assert second == f"{first} (2)"


def test_half_precision_and_training_with_checkpoints_of_activations(llama):
    given, _ = draw("llama", RIGHT)
    llama.set_attn_implementation("finetti_cme")
    exact = llama(**given).logits.detach()
    half = llama.to(torch.bfloat16)(**given).logits
    assert half.dtype == torch.bfloat16
    close(half.double(), exact, 0.1 * float(exact.abs().max()))
    llama.double().train()
    slopes = []
    for enabled in (False, True):
        if enabled:
            llama.activation_checkpointing_enable()
        llama.zero_grad()
        llama(**given).logits.square().mean().backward()
        slopes.append(llama.model.layers[0].self_attn.q_proj.weight.grad.clone())
    close(*slopes)


# The compiler's own way with functions that need no gradient.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@torch.no_grad()
def test_compiled(llama):
    given, _ = draw("llama", LEFT)
    llama.set_attn_implementation("finetti_cme")
    with attention_options(llama, ridge=RIDGE):
        wanted = llama(**given).logits
        compiled = torch.compile(llama, backend="aot_eager", fullgraph=True)
        close(compiled(**given, use_cache=False).logits, wanted)


@pytest.mark.parametrize(
    ("build_model", "options", "words"),
    [
        (
            lambda: transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2)),
            {},
            r"no dropout .* GPT2Attention asks for 0\.1 .* attn_pdrop=0\.0",
        ),
        (
            lambda: transformers.Gemma2Model(transformers.Gemma2Config(**GROUPED, head_dim=4)),
            {},
            r"attention of Gemma2Attention, which bounds its scores \(softcap\)",
        ),
        (
            lambda: transformers.GptOssModel(
                transformers.GptOssConfig(**GROUPED, head_dim=4, num_local_experts=2)
            ),
            {},
            "attention of GptOssAttention, which has attention sinks",
        ),
        (
            lambda: transformers.LlamaModel(transformers.LlamaConfig(**GROUPED)),
            {"output_attentions": True},
            r"returns no attention weights .* finetti\.torch\.variances",
        ),
    ],
    ids=["dropout", "softcap", "sinks", "weights"],
)
@pytest.mark.parametrize("member", ["softmax", "cme"])
def test_what_is_not_built_is_refused_by_name(build_model, options, words, member):
    model = build_model().train()
    model.set_attn_implementation(f"finetti_{member}")
    with pytest.raises(UnsupportedError, match=words):
        model(torch.ones(1, 4, dtype=torch.long), **options)


def test_wrong_options_are_refused(llama):
    given, _ = draw("llama")
    ids = given["input_ids"]
    with (
        pytest.raises(InputError, match=r"set_attn_implementation\('finetti_softmax'\)"),
        attention_options(llama, ridge=1.0),
    ):
        pass
    llama.set_attn_implementation("finetti_softmax")
    for wrong, words in (
        ({"attention": "hard"}, "must be one of"),
        ({"rigde": 1.0}, "must be some of .* Got `rigde`"),
        ({"layers": [0, 7]}, r"must be numbers of layers, 0 to 1\. Got \[7\]"),
    ):
        with pytest.raises(InputError, match=words), attention_options(llama, **wrong):
            pass
    with (
        attention_options(llama, ridge=1.0),
        pytest.raises(UnsupportedError, match="finetti_softmax has no option `ridge`; it has none"),
    ):
        llama(ids)
    llama.set_attn_implementation("finetti_linear")
    with attention_options(llama, kernel=Polynomial(2)):
        assert torch.isfinite(llama(ids).logits).all()
    with (
        attention_options(llama, kernel=RBF()),
        pytest.raises(UnsupportedError, match="no finite feature map"),
    ):
        llama(ids)
    llama.set_attn_implementation("finetti_delta_rule")
    with attention_options(llama, step=0.5, decay=0.9):
        assert torch.isfinite(llama(ids).logits).all()


def test_without_transformers_the_extra_is_named(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "transformers" else find(name)
    )
    with pytest.raises(ImportError, match=r"pip install 'finetti\[language-models\]'"):
        ours.register()
