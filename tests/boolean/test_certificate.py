import json
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from finetti.boolean import compile_rule
from finetti.boolean.compiler import cls_compiler
from finetti.boolean.embeddings import token_embedding
from finetti.boolean.verify import cls_proof
from finetti.bounds import Sample
from finetti.bounds.sparse_variables import (
    HeadClass,
    HeadCovering,
    MultiHeadClass,
    MultiHeadCovering,
)
from finetti.core.errors import InputError
from finetti.core.numerics.extremes import smallest_of


def test_a_certificate_is_plain_data_and_a_picture():
    compiled = compile_rule("x3 & (x7 | ~x9)", 12)
    document = json.loads(json.dumps(compiled.certificate.to_dict(), allow_nan=False))
    assert document["holds"] is True
    assert document["sparsity"] == 3
    assert document["check"]["method"] == "all 2^12 = 4096 inputs"
    assert document["check"]["proven"] is True
    assert document["check"]["counterexample"] is None
    assert document["check"]["error_float64"] < 1e-12 < document["check"]["error_float32"] < 1e-5
    shown = str(compiled)
    for words in (
        "x3 & (x7 | ~x9)",
        "proven",
        "all 2^12 inputs",
        "‖W_Q‖_F",
        "Lemma B.8",
        "3 heads",
    ):
        assert words in shown
    assert "<table" in compiled._repr_html_()


def test_the_rule_is_reduced_once_and_the_positions_are_measured_once(monkeypatch):
    calls = Counter()

    def count(module, name):
        function = getattr(module, name)

        def counted(*arguments):
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)

    for module in (cls_compiler, cls_proof):
        count(module, "simplify")
    for module in (cls_compiler, token_embedding):
        count(module, "measure_geometry")
    compiled = compile_rule("x3 & (x7 | ~x9)", 40)
    assert compiled.certificate.holds
    assert compiled.verify().proven
    compiled.explain()
    assert calls == {"simplify": 1, "measure_geometry": 1}


@pytest.mark.parametrize("embedding", ["deterministic", "bag"])
def test_attention_mass_is_the_least_over_all_inputs(embedding):
    compiled = compile_rule("x1 & x4", 8, embedding, "random")
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    least = 1.0
    for row in bits:
        weights = compiled.explain(row).attention[0][0]
        meant = [1, 4] if embedding == "deterministic" else [8] + [i for i in (1, 4) if row[i]]
        least = smallest_of(least, weights[meant].sum())
    assert compiled.certificate.attention_mass == pytest.approx(least, abs=1e-12)


def test_score_gap_is_R_times_the_gap():
    certificate = compile_rule("x1 & x4", 8).certificate
    assert certificate.score_gap == pytest.approx(certificate.score_scale)
    assert certificate.score_scale == pytest.approx(math.log(8 * 8 / 1.0))


def test_capacity_is_that_of_the_written_out_head():
    for rule, covering, kind in (
        ("x1 & x4", HeadCovering, HeadClass),
        ("x1 & ~x4", MultiHeadCovering, MultiHeadClass),
    ):
        compiled = compile_rule(rule, 8)
        weights = compiled.weights
        arrays = {name: weights[f"blocks.0.{name}"] for name in ("query", "key", "value", "output")}
        if kind is HeadClass:
            arrays = {name: array[0] for name, array in arrays.items()}
        described = kind.from_arrays(**arrays, query_norm=1.0, class_token=True)
        sample = Sample(1000, 8, input_norm=2**0.5)
        wanted = covering(described, compiled.certificate.tolerance).evaluate(sample)
        assert compiled.certificate.capacities[0].log_value == pytest.approx(wanted.log_value)


def test_capacity_grows_with_log_T_for_a_random_basis():
    made = [compile_rule("x1 & x4", 10**k, "trained") for k in (1, 3, 5)]
    values = [each.certificate.capacities[0].log_value for each in made]
    assert values[2] - values[1] < values[1] - values[0] < 3


@pytest.mark.parametrize(("gates", "length"), [(False, 12), (False, 30), (True, 30)])
def test_progress_is_the_share_of_the_inputs_that_have_been_run(gates, length):
    shares = []
    compile_rule("(x1 | x2) & x4", length, gates=gates).verify(on_progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_explanation_shows_what_is_read(tmp_path):
    compiled = compile_rule("x3 & (x7 | ~x9)", 1000)
    seen = compiled.explain()
    np.testing.assert_allclose(seen.attention[0].sum(axis=1), 1)
    assert seen.attention[0][:, [3, 7, 9]].argmax(axis=1).tolist() == [0, 1, 2]
    assert [reading.places for reading in seen.readings[0]] == [(3,), (7,), (9,)]
    assert seen.value == pytest.approx(compiled.function(seen.bits))
    assert seen.columns(0)[-1][0] == "997 other tokens"  # but three bits and the strongest
    assert sum(column[0] for _, column in seen.columns(0)) == pytest.approx(1)
    path = seen.save(tmp_path / "seen.svg")
    assert "x7 = 1" in path.read_text(encoding="utf-8")
    short = compile_rule("x1 & x4", 6).explain([1, 0, 0, 0, 1, 0])
    assert [name for name, _ in short.columns(0)][:2] == ["x0 = 1", "x1 = 0"]
    assert short.columns(0)[-1][0] == "[CLS] = 0"
    assert short.value == pytest.approx(0)
    for wrong in ([1, 0], [2] * 6):
        with pytest.raises(InputError, match="6 zeros and ones"):
            compile_rule("x1 & x4", 6).explain(wrong)


def test_heads_are_drawn_in_the_order_of_their_numbers(tmp_path):
    """Twelve heads: as text, "10" would come before "2"."""
    rule = "x0 & ~x1 | " + " & ".join(f"x{i}" for i in range(2, 12))
    compiled = compile_rule(rule, 14)
    assert compiled.certificate.n_heads == 12
    seen = compiled.explain()
    layer = seen.chart["vconcat"][0]["layer"][0]["encoding"]["y"]
    assert layer["sort"] == [f"[CLS], head {head}" for head in range(1, 13)]
    picture = seen.save(tmp_path / "seen.svg").read_text(encoding="utf-8")
    labels = [int(text) for text in re.findall(r">\[CLS\], head (\d+)</text>", picture)]
    assert labels == list(range(1, 13))
    assert [reading.head for reading in seen.readings[0]] == list(range(12))


@pytest.mark.parametrize("margin", [1.0, 3.0, 1e4])
@pytest.mark.parametrize("embedding", ["deterministic", "trained", "bag"])
@pytest.mark.parametrize("rule", ["x1 & x4 & x6", "x1 & (x4 | ~x6)"])
def test_the_margin_is_the_one_asked_for(rule, embedding, margin):
    certificate = compile_rule(rule, 60, embedding, "random", margin=margin).certificate
    assert certificate.asked_margin == margin
    assert certificate.margin >= margin
    assert certificate.holds
    assert certificate.to_dict()["asked_margin"] == margin
    assert not replace(certificate, asked_margin=2 * certificate.margin).holds
