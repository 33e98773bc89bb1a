import pytest

from finetti.bounds import BoundSettings, Sample, SweepVariable, load_bounds
from finetti.bounds import sweep as swept
from finetti.core.errors import InputError

REGISTRY = load_bounds()


def test_a_sweep_says_where_it_is_vacuous_and_draws_the_line():
    found = swept([load_bounds()["S-lemma-2.2"]], "n", [100, 10**4, 10**6])
    assert found.notes() == (
        "S-lemma-2.2 is vacuous at 2 of 3 values, 100 to 10000: it exceeds the largest possible "
        "loss.",
    )
    styles = [layer["mark"].get("style") for layer in found.chart()["layer"]]
    assert "reference" in styles
    capacity = swept([load_bounds()["S-cor-4.4"]], "n", [100, 1000])
    assert capacity.notes() == ()


def test_a_goal_is_reached_at_every_point():
    gap = REGISTRY["S-lemma-2.2"]
    found = swept([gap], "output_range", [1.0, 2.0], solve="samples", gap=0.1)
    for point in found.points:
        at = Sample(point.value.count, 1000), Sample(point.value.count - 1, 1000)
        assert point.bound.evaluate(at[0]).value <= 0.1 < point.bound.evaluate(at[1]).value
    with pytest.raises(InputError, match="both sweep and solve"):
        swept([gap], "n_samples", [10, 20], solve="samples", gap=0.1)


def test_a_sweep_that_applies_nowhere_is_an_error():
    with pytest.raises(InputError, match="assumes H > 1/δ"):
        swept([REGISTRY["R-thm-risk"]], "n", [100, 200])


def test_every_bound_says_what_a_usual_transformer_leaves():
    for name in ("S-thm-A.17", "S-cor-4.4", "E-thm-C.5", "R-thm-risk", "parameter-count-gap"):
        assert any("usual Transformer" in words for words in REGISTRY[name].assumes)
    head = " ".join(REGISTRY["S-cor-4.4"].assumes)
    for words in ("one layer", "one head", "no residual", "no LayerNorm", "positions are fixed"):
        assert words in head


def test_a_theorem_that_ends_on_the_way_says_why_and_the_others_go_on():
    bounds = [load_bounds()[name] for name in ("S-thm-A.17-gap", "E-thm-C.5")]
    found = swept(bounds, "n_heads", [1, 2], BoundSettings(n_layers=2, width=8))
    refused = [point.refused for point in found.points]
    assert [bool(text) for text in refused] == [False, False, True, False]
    assert "Nearest bound: E-thm-C.5" in refused[2]
    assert found.table().rows[1][1] is None
    with pytest.raises(InputError, match="'nonsense'"):
        swept(bounds, "nonsense", [1.0], BoundSettings(width=8))
    with pytest.raises(InputError, match="at least one value"):
        swept(bounds, "n_heads", [])


def test_grids_have_round_numbers():
    assert SweepVariable.named("hidden-dimension").grid(64, 256, 3) == [64, 128, 256]
    assert SweepVariable.named("n").grid(1e4, 1e18, 8) == [10 ** (4 + 2 * k) for k in range(8)]
