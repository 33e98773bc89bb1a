"""From a checkpoint to bounds: chains by hand, invariances, inversions, assumptions by name."""

import itertools
import json
import math
import re
from dataclasses import replace
from importlib.resources import files

import mpmath
import numpy as np
import pytest
from scipy import optimize

import checkpoints as make
from finetti.audit import (
    AuditReport,
    CheckpointReport,
    WeightDelta,
    measure_capacity,
    measure_matrix,
)
from finetti.audit.capacity.block_chain import block_network
from finetti.audit.capacity.capacity_result import TUNING
from finetti.audit.capacity.capacity_rows import BEFORE_ROUNDING, _prices
from finetti.audit.capacity.fine_tuning import tuned_network
from finetti.audit.capacity.nearest_class import (
    projected_class,
    residual_class,
    violated_assumptions,
)
from finetti.audit.measures.measurements import TITLES
from finetti.bounds import Sample
from finetti.bounds.ours import BlocksCovering, BlocksGap
from finetti.core.errors import UnsupportedError

PAPERS = ("Theorem A.17 (S)", "Theorem C.4 (E)")
OWN = ("parameter count", "count", "Maurey", "Schatten", "smallest")
GELU, SILU = 1.128905, 1.099840


def spectral(matrix):
    return np.linalg.norm(np.asarray(matrix, float), 2)


def audited(family, **options):
    arrays, config, _ = make.synthetic(family, **options)
    heads = {"heads": make.HEADS}
    if "num_key_value_heads" in config:
        heads["kv_heads"] = config["num_key_value_heads"]
    return arrays, make.measured(arrays, **heads)


@pytest.fixture(scope="module")
def bert():
    """Norms after the first part only, and tables of words and positions."""
    arrays = make.synthetic("bert")[0]
    rng = np.random.default_rng(5)
    arrays["bert.embeddings.word_embeddings.weight"] = rng.normal(size=(11, make.WIDTH))
    arrays["bert.embeddings.position_embeddings.weight"] = rng.normal(size=(7, make.WIDTH))
    arrays["bert.embeddings.LayerNorm.weight"] = rng.normal(size=make.WIDTH)
    arrays["bert.embeddings.LayerNorm.bias"] = rng.normal(size=make.WIDTH)
    return arrays, make.measured(arrays, heads=make.HEADS)


@pytest.fixture(scope="module")
def capacity(bert):
    return measure_capacity(bert[1], context_length=64)


def chain_by_hand(arrays):
    """(Lipschitz constant, radius) of the post-norm network above in mpmath, from its arrays."""
    number, epsilon = mpmath.mpf, mpmath.mpf("1e-12")
    root = mpmath.sqrt(make.WIDTH)
    gain, shift = (arrays[f"bert.embeddings.LayerNorm.{kind}"] for kind in ("weight", "bias"))
    lipschitz = number(float(np.abs(gain).max())) / mpmath.sqrt(epsilon)
    radius = root * number(float(np.abs(gain).max())) + number(float(np.linalg.norm(shift)))
    for n in range(2):
        get = lambda name, n=n: arrays[f"bert.encoder.layer.{n}.{name}"].astype(float)  # noqa: E731
        query, key, value = (get(f"attention.self.{x}.weight") for x in ("query", "key", "value"))
        bias = get("attention.self.query.bias")
        output = get("attention.output.dense.weight")
        total, length = number(0), number(0)
        for h in range(make.HEADS):
            own = slice(2 * h, 2 * h + 2)
            scores = number(spectral(query[own].T @ key[own])) / mpmath.sqrt(2)
            c = number(float(np.linalg.norm(key[own].T @ bias[own]))) / mpmath.sqrt(2)
            mixing = number(spectral(value[own].T @ output[:, own].T))
            total += mixing * (1 + radius * (2 * scores * radius + c))
            length += mixing * radius
        together = output @ get("attention.self.value.bias") + get("attention.output.dense.bias")
        length += number(float(np.linalg.norm(together)))
        # norm(x + f(x)) with a gain of 1 and no shift
        lipschitz *= (1 + total) / mpmath.sqrt(epsilon)
        radius = root
        inner, outer = get("intermediate.dense.weight"), get("output.dense.weight")
        lipschitz *= 1 + number(str(GELU)) * number(spectral(inner)) * number(spectral(outer))
        b1, b2 = (float(np.linalg.norm(get(f"{x}.dense.bias"))) for x in ("intermediate", "output"))
        hidden = number(spectral(inner)) * radius + number(b1)
        radius += number(spectral(outer)) * hidden + number(b2)
    return lipschitz, radius


def gaps_shown(capacity):
    place = capacity.table().columns.index("gap at n")
    return {row[0]: row[place] for row in capacity.table().rows}


def test_a_gap_beyond_the_loss_is_vacuous_by_every_bound(bert, capacity):
    # Dudley's integral ends at the range of the loss, of which paper S's gap needs only half.
    assert 1 < capacity.row("Theorem A.17 (S)").gap.value < 2
    assert 2 < capacity.row("Theorem C.4 (E)").gap.value < 4
    assert set(gaps_shown(capacity).values()) == {"vacuous"}
    assert "vacuous by every bound: it is at least 1" in str(capacity)
    rich = measure_capacity(bert[1], context_length=64, n_samples=10**12)
    shown = gaps_shown(rich)
    empty = [name for name, gap in shown.items() if gap == "vacuous"]
    assert empty == ["Theorem A.17 (S)"]
    assert all(0 < gap < 1 for name, gap in shown.items() if name not in empty)
    assert "vacuous by Theorem A.17 (S), nearest class: " in rich.vacuous_note()
    plenty = measure_capacity(bert[1], context_length=64, n_samples=10**60)
    assert all(0 < gap < 1 for gap in gaps_shown(plenty).values())
    assert "vacuous" not in str(plenty)


def test_the_smallest_cover_says_what_its_radii_cost(capacity):
    smallest, count = (capacity.row(name) for name in ("smallest", "count"))
    assert smallest.covering.log_value <= count.covering.log_value
    assert smallest.needed.count > count.needed.count
    (note,) = (each for each in capacity.notes if each.startswith("smallest asks for more"))
    assert f"{smallest.n_radii:,} radii" in note
    cheap = replace(smallest, needed=count.needed)
    assert not list(_prices([*(r for r in capacity.rows if r is not smallest), cheap]))


def test_the_chain_by_hand(bert):
    arrays, audit = bert
    passage = block_network(audit).propagate_tokens(Sample(1, 1))
    lipschitz, radius = chain_by_hand(arrays)
    assert passage.log_lipschitz == pytest.approx(float(mpmath.log(lipschitz)), abs=1e-7)
    assert passage.log_radius == pytest.approx(float(mpmath.log(radius)), abs=1e-7)
    assert lipschitz > 1e20  # ε = 1e-12 three times


def test_the_gated_rotary_chain_by_hand():
    arrays, audit = audited("llama", kv_heads=2)
    passage = block_network(audit).propagate_tokens(Sample(1, 1, input_norm=3.0))
    log, radius = 0.0, 3.0
    for n in range(2):
        get = lambda name, n=n: arrays[f"model.layers.{n}.{name}.weight"].astype(float)  # noqa: E731
        query, key, value = (get(f"self_attn.{x}_proj") for x in "qkv")
        output, total, length = get("self_attn.o_proj"), 0.0, 0.0
        inside = math.sqrt(make.WIDTH)
        for h in range(make.HEADS):
            own, shared = slice(2 * h, 2 * h + 2), slice(2 * (h // 2), 2 * (h // 2) + 2)
            scores = spectral(query[own]) * spectral(key[shared]) / math.sqrt(2)
            mixing = spectral(value[shared].T @ output[:, own].T)
            total += mixing * (1 + 2 * scores * inside**2)
            length += mixing * inside
        log += math.log(1 + total / math.sqrt(1e-6))  # x + f(norm(x))
        radius += length
        up, gate, down = (spectral(get(f"mlp.{x}_proj")) for x in ("up", "gate", "down"))
        # The second norm is not in the file: x + f(x).
        log += math.log(1 + down * (up * gate * radius + SILU * gate * up * radius))
        radius += down * up * gate * radius**2
    assert passage.log_lipschitz == pytest.approx(log, abs=1e-7)
    assert passage.log_radius == pytest.approx(math.log(radius), abs=1e-7)


def planted_layer(width, score, mixing):
    """One layer x + head(x) without norms and biases: ‖W_QW_Kᵀ‖/√d and ‖W_VW_O‖ are given.

    W_Q and W_V are long, W_K and W_O short, so that only the products have these norms.
    """
    rng, sizes = np.random.default_rng(11), np.linspace(1.0, 0.2, width)
    q, k, v, o = (np.linalg.qr(rng.normal(size=(width, width)))[0] for _ in range(4))
    query, key = 7 * (q * np.sqrt(sizes)).T, score * math.sqrt(width) / 7 * (k * np.sqrt(sizes)).T
    value, output = 9 * (v * sizes).T, mixing / 9 * o.T
    return {
        "layers.0.self_attn.in_proj_weight": np.vstack([query, key, value]),
        "layers.0.self_attn.out_proj.weight": output.T,
    }


def test_log_n_is_that_of_the_best_allocation_by_hand():
    width, rho, resolution = 6, 1.5, 0.1
    grid = (4, -3, 0)  # j of the radii 1.1^j of M, of W_VW_O and of the readout
    radii = 1.1 ** np.array(grid)
    # |out − ôut| ≤ ‖w‖vρ·ρ²·x_M + ‖w‖ρ·x_V + (1 + v)ρ·x_w, with d², d² and d parameters.
    reach = np.array([radii[1] * rho**3, rho, (1 + radii[1]) * rho])
    counts = np.array([width**2, width**2, width])

    def log_n(free):
        shares = np.exp(free) / np.exp(free).sum()
        return np.sum(counts * np.log1p(2 * radii * reach / (resolution * shares)))

    least = optimize.minimize(log_n, np.log(counts / counts.sum()), tol=1e-12).fun
    planted = planted_layer(width, *(radii[:2] * (1 - 1e-7)))
    capacity = measure_capacity(make.measured(planted, heads=1), input_norm=rho)
    row = capacity.row("count")
    assert 1 - 1e-9 <= row.covering.value / least <= 1.005
    kappa = math.pi**2 / 3 - 1
    by_hand = sum(2 * math.log(abs(j) + 1) + math.log(kappa) for j in grid)
    assert row.post_hoc == pytest.approx(by_hand, rel=1e-12)
    slope = math.log(1 + radii[1] * (1 + 2 * radii[0] * rho**2))
    assert 1 - 1e-6 <= capacity.log_lipschitz / slope <= 1


def test_every_row_has_its_values(capacity):
    assert [row.name for row in capacity.rows] == [*OWN, *PAPERS]
    for row in capacity.rows:
        assert row.refused == ""
        assert row.post_hoc > 0
        assert row.n_radii > 0
        assert row.covering.kind == row.gap.kind == "upper_bound"
        assert sum(term.share for term in row.terms) == pytest.approx(1.0)
    papers = capacity.rows[-2:]
    assert all(row.nearest and row.violates for row in papers)
    assert not any(row.nearest or row.violates for row in capacity.rows[:-2])
    text = json.dumps(capacity.to_dict(), allow_nan=False)
    assert "nearest_class" in text


def test_assumptions_that_are_left_by_name(capacity):
    left = {row.name[-2]: " ".join(row.violates) for row in capacity.rows[-2:]}
    for words in ("a single head per layer, and here are 4", "no residual connections"):
        assert words in left["S"]
        assert words not in left["E"]  # which has heads and residuals
    for words in ("LayerNorm", "not trained, and this network trains them", "no biases"):
        assert words in left["S"]
        assert words in left["E"]
    assert "softmax over −‖q − k‖²" in left["E"]
    assert "ReLU, and here is gelu" in left["E"]
    rotary = audited("llama")[1]
    for paper in "SE":
        leaves = " ".join(violated_assumptions(rotary, paper))
        assert "rotate" in leaves
        assert "gate" in leaves
        assert "this network has RMSNorm" in leaves
        assert "LayerNorm" not in leaves
        unsaid = replace(rotary, design=replace(rotary.design, normalization=""))
        assert "this network has LayerNorm or RMSNorm" in " ".join(
            violated_assumptions(unsaid, paper)
        )


def test_samples_needed_invert(bert, capacity):
    audit = bert[1]
    row = capacity.row("smallest")
    gap = BlocksGap(block_network(audit), "stratified")
    n = row.needed.count
    assert gap.evaluate(replace(capacity.sample, n_samples=n)).value <= capacity.wanted
    assert gap.evaluate(replace(capacity.sample, n_samples=n - max(1, n // 10**9))).value > 0.1
    # The term of the radii is in the confidence, by hand.
    (sure,) = (term for term in row.gap.terms if term.name == "confidence")
    inside = math.log(3 / 0.05) + row.post_hoc
    assert sure.value == pytest.approx(3 * math.sqrt(inside / (2 * 10_000)))


def test_post_hoc_is_in_the_papers_rows_too(capacity):
    sparse, exchangeable = (capacity.row(f"Theorem {name}") for name in ("A.17 (S)", "C.4 (E)"))
    (sure,) = (term for term in sparse.gap.terms if term.name == "confidence")
    inside = math.log(3 / 0.05) + sparse.post_hoc
    assert sure.value == pytest.approx(3 * math.sqrt(inside / 20_000))
    one, other = (term.value for term in exchangeable.gap.terms[-2:])
    post_hoc = exchangeable.post_hoc
    assert one == pytest.approx(3 * math.sqrt((math.log(4 / 0.05) + post_hoc) / 20_000))
    assert other == pytest.approx(math.sqrt((math.log(2 / 0.05) + post_hoc) / 20_000))


def test_growth_with_the_context_length(capacity):
    theirs = capacity.row("Theorem A.17 (S)")
    first = theirs.growth
    assert all(a < b for a, b in itertools.pairwise(first))
    for row in capacity.rows:
        assert row is theirs or len(set(row.growth)) == 1
    # log N of Theorem A.17 is affine in log T, once T + 1 is T.
    values, lengths = np.exp(np.array(first) - first[0]), np.log(capacity.lengths)
    slopes = np.diff(values[-4:]) / np.diff(lengths[-4:])
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-3)


def test_monotone_in_gap_delta_samples_and_norms(bert):
    audit = bert[1]
    gap = BlocksGap(block_network(audit), "stratified")
    sample = Sample(10**9, 64)
    needed = [gap.samples_needed(g, sample).count for g in (0.05, 0.1, 0.2)]
    assert needed == sorted(needed, reverse=True)
    values = [gap.evaluate(replace(sample, n_samples=10**k)).value for k in (6, 8, 10, 12)]
    assert values == sorted(values, reverse=True)
    assert gap.samples_needed(0.1, sample, delta=0.5).count <= needed[1]
    readouts = [
        BlocksGap(block_network(audit, norm), "stratified").samples_needed(0.1, sample).count
        for norm in (0.5, 1.0, 4.0)
    ]
    assert readouts == sorted(readouts)


def test_shared_layers_cost_once_and_carry_every_time(tmp_path):
    arrays, config, _ = make.synthetic("albert", layers=1)
    counts = {}
    for times in (1, 3):
        path = make.write(tmp_path / str(times), arrays, config | {"num_hidden_layers": times})
        passage = block_network(make.measured(path)).propagate_tokens(Sample(1, 1))
        counts[times] = len(passage.parts), passage.log_lipschitz
    assert counts[1][0] == counts[3][0]
    assert counts[3][1] > 2 * counts[1][1]


@pytest.mark.parametrize("family", make.FAMILIES)
def test_every_family_has_a_chain(family):
    _, audit = audited(family)
    gap = BlocksGap(block_network(audit), "stratified").evaluate(Sample(100, 64))
    assert gap.kind == "upper_bound"
    assert gap.vacuous
    for made in (projected_class(audit), residual_class(audit)):
        assert len(made.layers) == 2


def test_what_the_chain_does_not_cover_is_refused_by_name(tmp_path):
    arrays, config, _ = make.synthetic("bert")
    for more, words in (
        ({"hidden_act": "mish"}, "activation 'mish'"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"layer_norm_eps": 0}, "epsilon"),
    ):
        path = make.write(tmp_path / words[-3:], arrays, config | more)
        audit = make.measured(path)
        found = measure_capacity(audit)
        assert found.best is None
        assert all(words in row.refused for row in found.rows)
        assert "does not cover" in str(found)
        with pytest.raises(UnsupportedError, match="does not cover"):
            block_network(audit)


@pytest.mark.parametrize(
    ("family", "model_type"),
    [
        ("llama", "gemma"),  # whose RMSNorm multiplies by 1 + w
        ("llama", "granite"),
        ("llama", "bert"),
        ("llama", 3),
        ("gpt2", "gpt_neo"),
        ("bert", "esm"),  # pre-norm, by the names of BERT
        ("torch", "mine"),
    ],
)
def test_families_that_the_layout_was_not_written_for_are_refused(family, model_type, tmp_path):
    arrays, config, planted = make.synthetic(family)
    audit = make.measured(make.write(tmp_path, arrays, config | {"model_type": model_type}))
    found = measure_capacity(audit, base=audit)
    words = f"the layout {family} was not written for the model_type '{model_type}'"
    assert all(words in row.refused for row in found.rows)
    assert len(audit.layers) == len(planted)
    assert "does not cover" in str(found)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", None])
def test_families_that_the_layout_was_written_for_have_values(model_type, tmp_path):
    arrays, config, _ = make.synthetic("llama")
    path = make.write(tmp_path, arrays, config | {"model_type": model_type})
    assert make.measured(path).design.refused == ""


def test_a_map_says_for_which_families_it_is(tmp_path):
    arrays, config, _ = make.synthetic("llama")
    shipped = (files("finetti.audit.layouts") / "layouts.toml").read_text("utf-8")
    (text,) = (part for part in shipped.split("\n\n") if part.startswith("[llama]"))
    path = make.write(tmp_path, arrays, config | {"model_type": "twin"})
    table = tmp_path / "own.toml"
    for said, is_known in (('"mistral"', False), ('"twin"', True), ("", True)):
        table.write_text(re.sub("(?m)^model_types.*", f"model_types = [{said}]", text))
        assert (make.measured(path, layouts=table).design.refused == "") is is_known


@pytest.mark.parametrize("has_config", [True, False])
def test_weights_inside_a_layer_that_were_not_read_are_refused(has_config, tmp_path):
    arrays, config, _ = make.synthetic("llama")
    harmless = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    path = make.write(tmp_path / "known", arrays | harmless, config if has_config else None)
    assert make.measured(path, heads=make.HEADS).design.refused == ""
    names = [f"model.layers.{n}.self_attn.{each}_norm.weight" for n in (0, 1) for each in "kq"]
    more = {name: np.ones(make.HEAD_WIDTH, np.float32) for name in names}
    path = make.write(tmp_path / "new", arrays | more, config if has_config else None)
    audit = make.measured(path, heads=make.HEADS)
    found = measure_capacity(audit)
    assert all(f"{names[0]} and 3 more" in row.refused for row in found.rows)
    assert set(audit.skipped) == set(names)


def test_a_map_says_how_blocks_are_made(tmp_path):
    arrays = make.synthetic("torch")[0]
    text = """[mine]
orientation = "output_input"
layer = "encoder.layers.{n}."
fused = "self_attn.in_proj_{kind}"
output = "self_attn.out_proj.{kind}"
feed_in = "linear1.{kind}"
feed_out = "linear2.{kind}"
norms = ["norm1.{kind}"]
"""
    table = tmp_path / "own.toml"
    table.write_text(text)
    audit = make.measured(arrays, heads=4, layouts=table)
    with pytest.raises(UnsupportedError, match="give `order`"):
        block_network(audit)
    table.write_text(text + 'order = "pre"\nactivation = "relu"\nepsilon = 1e-5\n')
    audit = make.measured(arrays, heads=4, layouts=table)
    assert (audit.design.order, audit.design.assumed) == ("pre", ())
    assert block_network(audit).propagate_tokens(Sample(1, 1)).log_lipschitz > 0
    for line, words in (
        ('order = "sideways"', "should be 'pre', 'post'"),
        ("epsilon = 3.0", "between 0 and 1"),
        ('rotary = "yes"', "a valid boolean"),
    ):
        table.write_text(text + line)
        with pytest.raises(ValueError, match=words):
            make.measured(arrays, heads=4, layouts=table)


def test_huge_products_stay_in_log_space():
    _, audit = audited("bert", scale=1e15)
    network = block_network(audit)
    assert network.propagate_tokens(Sample(1, 1)).log_lipschitz / math.log(10) > 200
    found = BlocksGap(network, "stratified").samples_needed(0.1, Sample(1, 1))
    assert 1e3 < found.count < 1e15


def moved_since(base, source):
    return make.compared(source, base, heads=make.HEADS).deltas


def costs_of(base, moved):
    """What has to be covered, by layer and matrix."""
    network = tuned_network(base, moved)
    value = BlocksCovering(network, 0.1).evaluate(Sample(1, 1))
    return value, [(term.layer, term.matrix) for term in value.terms]


def test_a_fine_tuning_costs_what_moved(bert, capacity):
    base, before = bert
    rng = np.random.default_rng(7)
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    step = np.outer(rng.normal(size=make.HIDDEN), rng.normal(size=make.WIDTH)) / 100
    moved = moved_since(base, base | {name: base[name] + step})
    assert list(moved) == [("1", "feed_in")]
    value, places = costs_of(before, moved)
    assert places == [(2, "W_in"), (None, "readout")]
    assert value.value < capacity.row("smallest").covering.value
    found = measure_capacity(before, base=before, moved=moved)
    assert [row.name for row in found.rows[len(OWN) :]] == [TUNING, *PAPERS]
    assert found.row(TUNING).needed.count < found.row("smallest").needed.count
    assert costs_of(before, moved_since(base, dict(base)))[1] == [(None, "readout")]


def test_a_merged_lora_is_covered_in_full_and_as_it_was_before_rounding(bert):
    # Rounding makes Δ of full rank: the class of what is stored is larger than the adapter's.
    base, before = bert
    rng = np.random.default_rng(9)
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    step = np.outer(rng.normal(size=make.HIDDEN), rng.normal(size=make.WIDTH)) / 100
    exact = moved_since(base, base | {name: base[name].astype(float) + step})
    merged = moved_since(base, base | {name: (base[name] + step).astype(np.float32)})
    assert (exact["1", "feed_in"].rank, exact["1", "feed_in"].rank_before_rounding) == (1, None)
    assert (merged["1", "feed_in"].rank, merged["1", "feed_in"].rank_before_rounding) == (None, 1)
    adapter, stored = (measure_capacity(before, base=before, moved=x) for x in (exact, merged))
    low = stored.row(BEFORE_ROUNDING)
    assert stored.row(TUNING).needed.count > 1.2 * adapter.row(TUNING).needed.count
    assert low.needed.count == pytest.approx(adapter.row(TUNING).needed.count, rel=0.01)
    assert low.violates == (
        "Δ of rank 1 in 1 matrix, and here the rounding of stored numbers makes it larger",
    )
    assert low.label.endswith(", nearest class")
    assert stored.rows[-1] is low
    assert BEFORE_ROUNDING not in [row.name for row in adapter.rows]
    # Without a rank that is low there is no such row.
    whole = base | {name: base[name] + rng.normal(size=base[name].shape).astype(np.float32)}
    assert moved_since(base, whole)["1", "feed_in"].rank_before_rounding is None


def test_everything_that_moves_is_found(bert):
    base, before = bert
    gain = "bert.encoder.layer.0.attention.output.LayerNorm.weight"
    bias = "bert.encoder.layer.0.output.dense.bias"
    words = "bert.embeddings.word_embeddings.weight"
    moved = moved_since(base, base | {each: base[each] * 1.01 for each in (gain, bias, words)})
    assert set(moved) == {("0", "norm_1_weight"), ("0", "feed_out_bias"), ("", "word_embeddings")}
    norms = {place: delta.norm for place, delta in moved.items()}
    assert norms["0", "norm_1_weight"] == pytest.approx(0.01, rel=1e-4)
    longest = np.linalg.norm(base[words], axis=1).max() / 100
    assert norms["", "word_embeddings"] == pytest.approx(longest)
    places = costs_of(before, moved)[1]
    assert set(places) == {
        (None, "embedding 1"),
        (1, "gain"),
        (1, "bias of W_out"),
        (None, "readout"),
    }
    with pytest.raises(
        ValueError,
        match="and its base has word_embeddings",
    ):
        moved_since(base, {name: a for name, a in base.items() if name != words})


def test_the_capacity_of_a_low_rank_step_by_hand(bert):
    base = bert[1]
    rng = np.random.default_rng(8)
    left, right = rng.normal(size=(make.WIDTH, 1)), rng.normal(size=(1, make.HIDDEN))
    delta = WeightDelta(measure_matrix(left @ right / 50), rank=1)
    network = tuned_network(base, {("1", "feed_in"): delta})
    passage = network.propagate_tokens(Sample(1, 1))
    parts = [part for part in passage.parts if part.weights.trained]
    assert [part.name for part in parts] == ["W_in", "readout"]
    # ε is shared between both so that Σ a_jρ_jx_j = ε; no cover is larger than r(d₁+d₂)log(1+8B/x).
    size = spectral(left @ right / 50)
    found = network.composition(Sample(1, 1))
    log_x = found.resolutions(math.log(0.1))
    spent = sum(math.exp(x + part.log_factor) for x, part in zip(log_x, parts, strict=True))
    assert spent == pytest.approx(0.1, rel=1e-9)
    counted = 20 * math.log1p(8 * size / math.exp(log_x[0]))
    log_numbers = found.log_numbers(math.log(0.1))
    assert log_numbers[0] <= counted * (1 + 1e-9)
    with pytest.raises(ValueError, match="weights that the base has"):
        tuned_network(base, {("9", "feed_in"): delta})
    with pytest.raises(ValueError, match="Δ of shape"):
        tuned_network(base, {("1", "feed_out"): delta})


def test_no_norm_before_training_is_rounded_down():
    """With one head the parts of a matrix are all of it, and nothing is to spare."""
    arrays = make.synthetic("bert", layers=1)[0]
    heads = tuned_network(make.measured(arrays, heads=1), {}).pieces[0].piece
    for role in ("query", "key", "value"):
        matrix = arrays[f"bert.encoder.layer.0.attention.self.{role}.weight"]
        assert spectral(matrix) <= getattr(heads, role).norm <= spectral(matrix) * (1 + 1e-11)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_the_page_shows_the_spectrum_of_every_kind_of_matrix(family):
    """A gated network has one more than the others; W_O is in W_VW_O."""
    _, audit = audited(family)
    found = measure_capacity(audit)
    page = AuditReport((CheckpointReport(audit, found),)).page()
    (spectra,) = (section for section in page.sections if section.title == "Spectra")
    charts = [chart for figure in spectra.figures for chart in figure.chart["hconcat"]]
    titles = [json.dumps(chart["title"], ensure_ascii=False) for chart in charts]
    kinds = [kind for kind in audit.kinds if kind != "output"]
    assert len(kinds) == {"bert": 4, "llama": 5}[family]
    for kind, title in zip(kinds, titles, strict=True):
        assert TITLES[kind] in title


@pytest.mark.parametrize("zeros", ["LayerNorm", "attention.output.dense.weight", "bias"])
def test_zeros_are_numbers_too(zeros):
    arrays = make.synthetic("bert", layers=1)[0]
    made = {name: 0 * array if zeros in name else array for name, array in arrays.items()}
    found = measure_capacity(make.measured(made, heads=make.HEADS))
    json.dumps(found.to_dict(), allow_nan=False)
    page = AuditReport((CheckpointReport(make.measured(made, heads=make.HEADS), found),)).page()
    assert any(section.title == "How many samples" for section in page.sections)
    assert str(found)
