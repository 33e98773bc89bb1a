"""Theorem 4.6: deep networks, by two norms."""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from finetti.attention import lipschitz
from finetti.bounds import Sample
from finetti.bounds import sparse_variables as bounds
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, within
from finetti.claims.perturbations import RATIO_RTOL, holds, mapped
from finetti.claims.sparse_variables import covers, instances
from finetti.claims.sparse_variables.instances import balanced, first_axis, layer, two_tokens

_DRAWS, _RESOLUTION = 200, 0.1


def _uniform_value(sample: Any, **sizes: Any) -> float:
    """The bound as the package has it."""
    return bounds.UniformTransformer(resolution=_RESOLUTION, **sizes).evaluate(sample).value


def _shallower(sample: Any, spectral_norm: float = 1.0, **sizes: Any) -> float:
    """P^{2L} with P = L_σC₂² in the place of L_σC₂²(1 + 2C₂)."""
    lost = 2 * sizes["n_layers"] * math.log(1 + 2 * max(1.0, spectral_norm))
    return _uniform_value(sample, spectral_norm=spectral_norm, **sizes) / math.exp(lost)


@claim(
    id="S-thm-4.6",
    title="the capacity of a deep Transformer, by two norms",
    statement="For tokens of length B_X ≤ 1, log N_∞ ≤ (C₂L_σ)^{O(L)} B_X²B_w²d²C_∞²/ε² log(mT).",
    controls=(
        Control(
            "layers without 1 + 2C₂, the amplification by scores", changes={"value": _shallower}
        ),
    ),
)
def s_thm_4_6(context: Context, value: Formula = _uniform_value) -> Evidence:
    """The uniform bound written out, over Theorem A.17 for random norms below it, and its powers.

    Both are made again without the code of `bounds`: the first is exact, the second an inequality
    that is far from tight, since every matrix is charged for the whole depth.
    """
    rng, least, worst = context.generator(s_thm_4_6.id), math.inf, 0.0
    for _ in range(_DRAWS):
        depth, (size, column, steep) = int(rng.integers(1, 6)), 10.0 ** rng.uniform(-1, 1, size=3)
        # A spectral norm is at most √d times the longest column.
        longest = float(max(column, size))
        layers = tuple(
            instances.layer_norms(*norms, longest, longest, longest)
            for norms in size * rng.uniform(size=(depth, 3))
        )
        readout, longest_token = float(rng.uniform(0.1, 3)), float(rng.uniform(0.01, 1))
        common = {"width": 8, "activation_lipschitz": steep, "readout_norm": readout}
        network = bounds.TransformerClass(layers=layers, **common)
        sample = Sample(1000, 50, input_norm=longest_token)
        found = value(sample, n_layers=depth, spectral_norm=size, column_norm=longest, **common)
        again = covers.composed(covers.network_parts(network, sample), _RESOLUTION)
        least = min(least, found / again)
        base, matrices = max(1.0, size), 3 * depth + 1
        grown = (max(1.0, steep) * base**2 * (1 + 2 * base)) ** depth
        cost = longest_token * readout * 8 * longest * grown
        inside = np.ceil(4 * matrices * cost / _RESOLUTION * (1 - 1e-12) + 2)
        points = math.log(2 * inside * 1000 * 51 + 1)
        worst = max(worst, abs(found * _RESOLUTION**2 / (36 * matrices**3 * cost**2 * points) - 1))
    # Norms 1, L = 1, d = 2, ε = 0.1, m = T + 1 = 2: four costs c = 2·3 and N = 4, so that
    # 36·4³·6²/ε² = 8 294 400 times log(2(4·4·6/ε + 2)·4 + 1) = log 7697.
    by_hand = value(Sample(2, 1), n_layers=1, width=2) / (8_294_400 * math.log(7697))
    sample = Sample(1000, 50, input_norm=0.5)
    printed = bounds.UniformTransformer(n_layers=2, width=8, form="printed").sensitivity(sample)
    powers = max(
        abs(printed[name].exponent - 2)
        for name in ("column_norm", "readout_norm", "sample.input_norm")
    )
    return Evidence(
        close("norms 1, one layer: relative error to 8 294 400 log 7697", by_hand - 1, 1e-12),
        close(f"{_DRAWS} classes: relative error to 36(3L+1)³c²/ε² log(…)", worst, 1e-9),
        at_least("least uniform bound / Theorem A.17", least, 1.0),
        close("printed powers of B_X, B_w and C_∞, minus 2", powers, 1e-9),
        note="Derived with all constants: 3L + 1 costs c = B_XB_w d C_∞ P^L, P = L_σC₂²(1 + 2C₂).",
    )


_DEPTH, _NETWORKS = 8, 500


def _nearer(diameter: float) -> float:
    """D·tanh(D²/4): how far apart tokens that were D apart can be after a layer of unit norms.

    Two queries D apart see scores that differ by up to D², up to a constant D²/2 either way; their
    weights differ by 2 tanh(D²/4) in ℓ1 (Corollary A.7), and half of that times D is the distance.
    """
    return diameter * math.tanh(diameter**2 / 4)


def _amplified(depth: int, contract: Formula = _nearer) -> float:
    """Π_i (1 + D_i/2·(1 + D_i/2)), D_1 = 2: what ``depth`` layers of unit norms multiply by.

    A deviation ε moves the values by ε, and the weights by a covariance: the scores' standard
    deviation, at most ε(1 + D/2), times that of the values, at most D/2.
    """
    total, diameter = 1.0, 2.0
    for _ in range(depth):
        total *= 1 + diameter / 2 * (1 + diameter / 2)
        diameter = contract(diameter)
    return total


def _sharp(contract: Formula = _nearer) -> tuple[Any, ...]:
    """``contract`` on the tokens ±e₁, where it is an equality, and the product that follows."""
    tokens, apart = two_tokens(), [2.0]
    for _ in range(4):
        tokens = np.asarray(layer(first_axis(1.0))(tokens))
        apart.append(float(np.linalg.norm(tokens[0] - tokens[1])))
    ratios = [after / contract(before) for before, after in pairwise(apart)]
    # 2 → 1.5232 → 0.7963 → 0.1252 → 0.0005: 3 · 2.3416 · 1.5567 · 1.0665 · 1.0002
    total = _amplified(1000, contract)
    return (
        within("±e₁: least distance / D tanh(D²/4)", min(ratios), 1 - RATIO_RTOL, 1 + RATIO_RTOL),
        within("±e₁: largest distance / D tanh(D²/4)", max(ratios), 1 - RATIO_RTOL, 1 + RATIO_RTOL),
        close("1000 layers multiply by 11.66, minus that", total - 11.66, 0.01),
    )


@claim(
    id="S-thm-4.6-depth",
    title="unit spectral norms avoid the exponential in the depth",
    statement="If the spectral norms of W_V, W_QK, W_C and L_σ are at most 1, layers bring tokens "
    "together, from D to at most D tanh(D²/4), and multiply a deviation of the tokens by less than "
    "11.7 in all, at any depth.",
    label="Theorem 4.6, the remark after it (the proof is ours)",
    controls=(
        Control("tanh(D²/2)", lambda _: Evidence(*_sharp(lambda d: d * math.tanh(d**2 / 2)))),
    ),
)
def s_thm_4_6_depth(context: Context) -> Evidence:
    """Distances between tokens and amplification of deviations, layer by layer, norms at most 1.

    The distances are sharp; the product is an upper bound that is not.
    """
    import jax
    import jax.numpy as jnp

    def moved(tokens: Any, step: Any, weights: Any) -> Any:
        def onward(tokens: Any) -> Any:
            states = [tokens]
            for each in weights:
                unit = [w / jnp.maximum(1.0, jnp.linalg.norm(w, 2)) for w in each]
                states.append(instances.relu_layer(*unit)(states[-1]))
            return jnp.stack(states)

        states, slopes = jax.jvp(onward, (tokens,), (step,))
        apart = jnp.linalg.norm(states[:, :, None] - states[:, None], axis=-1).max((1, 2))
        return apart, jnp.linalg.norm(slopes, axis=-1).max(-1)

    rng = context.generator(s_thm_4_6_depth.id)
    tokens = instances.layer_tokens(rng, _NETWORKS, radius=1.0)
    steps = instances.layer_tokens(rng, _NETWORKS, radius=1.0)
    weights = [instances.layer_weights(rng, _NETWORKS) for _ in range(_DEPTH)]
    apart, slopes = (np.asarray(each) for each in mapped(moved, tokens, steps, weights))
    distance = apart[:, 1:] / np.maximum(apart[:, :-1] * np.tanh(apart[:, :-1] ** 2 / 4), 1e-12)
    limits = [_amplified(depth) for depth in range(1, _DEPTH + 1)]
    growth = slopes[:, 1:] / slopes[:, :1] / limits
    matrix, before, after = balanced(1.0, step=1e-6, common=0.5**0.5)
    one = lipschitz.attention_token_perturbation(layer(matrix), before, after)
    grown = float(one.measured) / np.linalg.norm(after - before, axis=1).max()
    return Evidence(
        *_sharp(),
        holds(distance, "layers: distance / D tanh(D²/4)"),
        holds(growth, "depths: amplification / product"),
        at_least("one layer: amplification, so that it is not 1", grown, 2.4),
        at_most("the same against 3", grown, 3.0),
        note="Lemma A.14 alone gives 3 for every layer (5 with the printed constant): the remark "
        "does not follow from Theorem A.17, but it is true.",
    )
