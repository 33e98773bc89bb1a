"""What moved between two checkpoints."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

import checkpoints as make
from checkpoints import MINILM, TUNED, needs_checkpoints
from finetti.audit import measure_capacity
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
    found = make.compared(folders[1], folders[0])
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


def test_nothing_moved():
    old = make.synthetic("gpt2")[0]
    found = make.compared(old, old, heads=4)
    assert found.moved == ()
    assert "0 of 12 matrices" in str(found)


def test_a_base_that_was_zero_has_no_relative_change():
    new = make.synthetic("bert")[0]
    name = "bert.encoder.layer.0.attention.output.dense.weight"
    found = make.compared(new, new | {name: np.zeros_like(new[name])}, heads=4)
    assert [(each.role, each.relative) for each in found.moved] == [("output", None)]
    assert found.to_dict()["matrices"][3]["relative"] is None


def test_what_was_filled_with_zeros_is_no_base():
    new = make.synthetic("bert")[0]
    name = "bert.encoder.layer.1.attention.self.key.weight"
    zeros = new | {name: np.zeros_like(new[name])}
    for pair in ((new, zeros), (zeros, new)):
        with pytest.raises(InputError, match=f"{name} in layer 1 is all zero"):
            make.compared(*pair, heads=4)


def test_networks_that_are_not_alike():
    bert = make.synthetic("bert")[0]
    for other in (make.synthetic("vit")[0], make.synthetic("bert", layers=3)[0]):
        with pytest.raises(InputError, match="are not alike"):
            make.compared(bert, other, heads=4)


def test_a_number_of_heads_is_checked_here_too():
    bert = make.synthetic("bert")[0]
    with pytest.raises(InputError, match=r"`heads` argument of the audit .* whole number ≥ 1"):
        make.compared(bert, bert, heads=0)


def test_whole_numbers_beside_the_layers_are_compared_as_stored(tmp_path):
    old, config, _ = make.synthetic("bert")
    name = "bert.embeddings.position_ids"
    paths = []
    for shift, kind in ((0, np.int64), (0, np.int64), (1, np.int64), (0, np.int32)):
        arrays = old | {name: np.arange(shift, shift + 4, dtype=kind)[None]}
        paths.append(make.write(tmp_path / f"{len(paths)}", arrays, config).parent)
    found = [make.compared(path, paths[0]).elsewhere for path in paths]
    assert found == [(), (), (name,), (name,)]


@needs_checkpoints
def test_a_real_fine_tuning():
    # All 36 matrices of the layers moved, by at most 2.5 %.
    found = make.compared(TUNED, MINILM)
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
    audit = make.measured(moved, heads=make.HEADS)
    found = make.compared(moved, arrays, heads=make.HEADS)
    assert float(re.search(r"certain to (\S+) of itself", str(audit))[1]) < 1e-9
    section = _moved(found, measure_capacity(audit))
    (chart,) = (figure.chart for figure in section.figures)
    shown = re.findall(r'"percent": ([\d.e-]+)', json.dumps(chart))
    assert [float(number) for number in shown] == pytest.approx([25.0] * len(found.matrices))
