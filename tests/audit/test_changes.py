"""What moved between two checkpoints."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

import checkpoints as make
from checkpoints import MINILM, TUNED, needs_checkpoints
from finetti.audit import (
    compare_checkpoints,
    leading_angle,
    measure_capacity,
    measure_checkpoint,
)
from finetti.audit.audit_page import _moved
from finetti.core.errors import InputError

MOVED = {
    "bert.encoder.layer.0.attention.self.query.weight": ("0", "query", 1),
    "bert.encoder.layer.1.attention.self.value.weight": ("1", "value", 2),
    "bert.encoder.layer.1.output.dense.weight": ("1", "feed_out", 1),
}


def test_exactly_what_moved_is_found_with_its_rank(tmp_path):
    rng = np.random.default_rng(0)
    old, config, _ = make.synthetic("bert")
    new, expected = dict(old), {}
    for name, (layer, role, rank) in MOVED.items():
        rows, columns = old[name].shape
        step = 0.01 * rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
        new[name] = (old[name] + step).astype(np.float32)  # rounding makes Δ of full rank
        difference = new[name].astype(float) - old[name]
        expected[layer, role] = np.linalg.norm(difference) / np.linalg.norm(old[name].astype(float))
    folders = [make.write(tmp_path / n, a, config).parent for n, a in (("old", old), ("new", new))]
    found = compare_checkpoints(folders[1], folders[0])
    assert len(found.matrices) == 2 * 6
    moved = {(each.layer, each.role): each for each in found.moved}
    assert set(moved) == set(expected)
    for name, (layer, role, rank) in MOVED.items():
        change = moved[layer, role]
        assert change.rank == rank < change.delta.rank, name
        assert change.relative == pytest.approx(expected[layer, role], rel=1e-12)
    assert "3 of 12 matrices" in str(found)
    sizes = [each.relative for each in found.moved]
    assert sizes == sorted(sizes, reverse=True)


def test_the_angle_of_leading_subspaces_against_plain_svd():
    rng = np.random.default_rng(0)
    for shape in ((9, 5), (5, 9)):
        old = make.planted_matrix(rng, *shape, 1.0)[0]
        new = old + 0.3 * rng.normal(size=shape)
        values = np.linalg.svd(old, compute_uv=False)
        count = round((values**2).sum() / values[0] ** 2)
        assert 1 < count < 5
        pairs = [np.linalg.svd(each) for each in (new, old)]
        sides = [(p[0][:, :count], p[2].T[:, :count]) for p in pairs]
        cosines = [np.linalg.svd(sides[0][i].T @ sides[1][i])[1].min() for i in (0, 1)]
        expected = np.degrees(np.arccos(min(cosines)))
        assert leading_angle(new, old) == pytest.approx(expected, rel=1e-9)
    # A planted turn: the leading direction of one side by 30 degrees, that of the other stays.
    turn = np.radians(30)
    old = np.outer([1.0, 0, 0], [0, 2.0])
    new = np.outer([np.cos(turn), np.sin(turn), 0], [0, 5.0])
    assert leading_angle(new, old) == pytest.approx(30, rel=1e-12)


def test_nothing_moved():
    old = make.synthetic("gpt2")[0]
    found = compare_checkpoints(old, old, heads=4)
    assert found.moved == ()
    assert "0 of 12 matrices" in str(found)


def test_a_base_that_was_zero_has_no_relative_change():
    new = make.synthetic("bert")[0]
    name = "bert.encoder.layer.0.attention.output.dense.weight"
    found = compare_checkpoints(new, new | {name: np.zeros_like(new[name])}, heads=4)
    assert [(each.role, each.relative) for each in found.moved] == [("output", None)]
    assert found.to_dict()["matrices"][3]["relative"] is None


def test_what_was_filled_with_zeros_is_no_base():
    new = make.synthetic("bert")[0]
    name = "bert.encoder.layer.1.attention.self.key.weight"
    zeros = new | {name: np.zeros_like(new[name])}
    for pair in ((new, zeros), (zeros, new)):
        with pytest.raises(InputError, match=f"{name} in layer 1 is all zero"):
            compare_checkpoints(*pair, heads=4)


def test_networks_that_are_not_alike():
    bert = make.synthetic("bert")[0]
    for other in (make.synthetic("vit")[0], make.synthetic("bert", layers=3)[0]):
        with pytest.raises(InputError, match="are not alike"):
            compare_checkpoints(bert, other, heads=4)


def test_a_number_of_heads_is_checked_here_too():
    bert = make.synthetic("bert")[0]
    with pytest.raises(InputError, match=r"`heads` argument of the audit .* whole number ≥ 1"):
        compare_checkpoints(bert, bert, heads=0)


def test_whole_numbers_beside_the_layers_are_compared_as_stored(tmp_path):
    old, config, _ = make.synthetic("bert")
    name = "bert.embeddings.position_ids"
    paths = []
    for shift, kind in ((0, np.int64), (0, np.int64), (1, np.int64), (0, np.int32)):
        arrays = old | {name: np.arange(shift, shift + 4, dtype=kind)[None]}
        paths.append(make.write(tmp_path / f"{len(paths)}", arrays, config).parent)
    found = [compare_checkpoints(path, paths[0]).elsewhere for path in paths]
    assert found == [(), (), (name,), (name,)]


@needs_checkpoints
def test_a_real_fine_tuning():
    # All 36 matrices of the layers moved, by at most 2.5 %.
    found = compare_checkpoints(TUNED, MINILM)
    assert len(found.matrices) == len(found.moved) == 36
    assert (found.moved[0].layer, found.moved[0].role) == ("5", "feed_out")
    old, new = (load_file(each / "model.safetensors") for each in (MINILM, TUNED))
    name = "encoder.layer.5.output.dense.weight"
    before, after = old[name].astype(float), new[name].astype(float)
    relative = np.linalg.norm(after - before) / np.linalg.norm(before)
    assert found.moved[0].relative == pytest.approx(relative, rel=1e-12)
    assert 0.025 < relative < 0.0252


def test_the_page_has_what_moved_in_percent():
    arrays = make.synthetic("bert", layers=1)[0]
    moved = {name: np.float32(1.25) * array for name, array in arrays.items()}
    audit = measure_checkpoint(moved, heads=make.HEADS)
    found = compare_checkpoints(moved, arrays, heads=make.HEADS)
    assert float(re.search(r"certain to (\S+) of itself", str(audit))[1]) < 1e-9
    section = _moved(found, measure_capacity(audit))
    (chart,) = (figure.chart for figure in section.figures)
    shown = re.findall(r'"percent": ([\d.e-]+)', json.dumps(chart))
    assert [float(number) for number in shown] == pytest.approx([25.0] * len(found.matrices))
