"""Theorems A.17 and 4.6: deep networks, matrix by matrix and by two norms."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from finetti import attention
from finetti.attention import lipschitz
from finetti.bounds import Sample
from finetti.bounds import sparse_variables as bounds
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, within
from finetti.claims.perturbations import RATIO_RTOL, attained, holds, mapped, nearby
from finetti.claims.sparse_variables import covers, instances
from finetti.claims.sparse_variables.instances import AXES, balanced, first_axis, layer, two_tokens
from finetti.claims.wrong import looser
from finetti.core.forms import Form
from finetti.core.numbers import largest_of, smallest_of


class _Before(bounds.TransformerClass):
    """Costs multiplied by the layers before, as printed."""

    def composition(self, sample: Any, form: Any) -> Any:
        factors = np.exp(self.log_factors(sample)).tolist()
        right = super().composition(sample, form)
        before, after = (lipschitz.amplifications(factors, each) for each in ("printed", "derived"))
        extra = [0.0, *np.log(np.divide(before, after))]
        return replace(
            right,
            matrices=tuple(
                replace(each, log_cost=each.log_cost + extra[each.layer or 0])
                for each in right.matrices
            ),
        )


@claim(
    id="S-thm-A.17",
    title="the capacity of a deep Transformer",
    statement="Networks of L projected layers have log N_∞ ≤ 36(γ²/ε²) Σ_j c_j^{2/3} log(…N + 1) "
    "over all matrices of all layers, each cost multiplied by the layers after it; it is affine in "
    "the logarithm of the context length.",
    formula=r"log N_∞ ≤ 36 \frac{γ^2}{ε^2} Σ_j c_j^{2/3} log(2 ⌈\frac{4 γ c_j^{1/3}}{\sqrt{d_j} "
    "ε} + 2⌉ N_j + 1)",
    controls=(
        Control("36·10⁻¹⁰ in the place of 36", changes={"factor": 1e-10}),
        Control("costs multiplied by the layers before", changes={"make": _Before}),
    ),
)
def s_thm_a_17(
    context: Context, make: Any = bounds.TransformerClass, factor: float = 1.0
) -> Evidence:
    """The bound against the same made again layer by layer, and two layers that use up a cost.

    These are exact, but for the 36 of Lemma A.10, which is quoted; S-thm-A.17-chain has the
    inequality behind it.
    """
    classes = 60
    rng, worst = context.generator(s_thm_a_17.id, "classes"), 0.0
    for trial in range(classes):
        norms = 10.0 ** rng.uniform(-1, 1, size=(1 + trial % 4, 6))
        steep, readout, longest = (10.0 ** rng.uniform(-0.5, 0.5, size=3)).tolist()
        network = make(
            layers=tuple(instances.layer_norms(*each) for each in norms.tolist()),
            activation_lipschitz=steep,
            readout_norm=readout,
            width=6,
            head_dimension=3,
            norm_lipschitz=1.0 + trial % 2,
        )
        sample = Sample(1000, 49, input_norm=longest)
        found = factor * bounds.ProjectedTransformerCovering(network, 0.1).evaluate(sample).value
        again = covers.composed(covers.network_parts(network, sample), 0.1)
        worst = largest_of(worst, abs(found / again - 1))
    layers = (
        bounds.ProjectedLayerNorms(score_norm=0.0),
        bounds.ProjectedLayerNorms(value_norm=5.0, score_norm=0.0),
    )
    costs = make(layers=layers, width=3).composition(Sample(1, 2, input_norm=0.1), "derived")
    # W_C of the first layer moves by 0.05; its cost is d = 3 times what that is multiplied by.
    moved = float(instances.two_layers().measured)
    used = moved / 0.05 / (math.exp(costs.matrices[1].log_cost) / 3)

    network = bounds.TransformerClass(layers=layers, width=3)
    bound = bounds.ProjectedTransformerCovering(network, 0.1)
    value = bound.evaluate(Sample(3, 4))
    values = [bound.evaluate(Sample(1000, 10**k - 1)).value for k in range(2, 9)]
    steps = np.diff(values)
    shares = math.fsum(term.share or 0.0 for term in value.terms)
    return Evidence(
        close(f"{classes} classes: relative error of log N_∞", worst, 1e-9),
        within("two layers: change / what W_C of the first costs", used, 0.98, 1 + RATIO_RTOL),
        close("spread of the steps per decade of T", np.ptp(steps) / steps.mean(), 1e-6),
        close("shares of all matrices add up to 1", shares - 1, 1e-12),
    )


_FORMS: tuple[Form, ...] = ("derived", "printed")


def chain_ratios(context: Context) -> dict[Form, np.ndarray]:
    """measured / bound in both forms on random pairs of networks of 1 to 4 layers."""

    def lemma(tokens, read, other_read, weights, moved):
        networks = instances.relu_network(weights), instances.relu_network(moved)
        readouts = attention.TokenReadout(read), attention.TokenReadout(other_read)
        arguments = (*networks, *readouts, tokens)
        return [lipschitz.network_perturbation(*arguments, form).ratio for form in _FORMS]

    found = []
    for depth in (1, 2, 3, 4):
        rng = context.generator(s_thm_a_17_chain.id, depth)
        count = 500
        weights = [instances.layer_weights(rng, count, spread=0.5) for _ in range(depth)]
        # Half of the networks differ in their first layer only and hardly look at scores: there
        # the order matters most.
        first_only = (np.arange(count) % 2 == 0)[:, None, None]
        for each in weights:
            each[0] = np.where(first_only, 0.01 * each[0], each[0])
        moved = [nearby(rng, weights[0])]
        for each in weights[1:]:
            near = nearby(rng, each)
            moved.append([np.where(first_only, a, b) for a, b in zip(each, near, strict=True)])
        read = rng.normal(size=(2, count, instances.LAYER_DIMENSION))
        read[1] = np.where(first_only[:, 0], read[0], read[1])
        tokens = instances.layer_tokens(rng, count, radius=0.5)
        found.append(np.asarray(mapped(lemma, tokens, *read, weights, moved)))
    return dict(zip(_FORMS, np.concatenate(found, axis=1), strict=True))


def _as_printed(right: Any) -> Any:
    """The chain in its printed form, whatever is asked for."""
    return lambda *given: right(*given[:5], "printed")


@claim(
    id="S-thm-A.17-chain",
    title="a layer's error is amplified by the layers after it",
    statement="|out − ôut| ≤ ‖w‖ Σ_i A_i e_i + |(w − ŵ)ᵀĝ_[CLS]|, where e_i is layer i's own error "
    "and A_i = Π_{j>i} L_σB_CB_V(1 + 2B_QK r_j²).",
    formula=r"|out − \hat{out}| ≤ ‖w‖ Σ_i e_i ∏_{j>i} L_σ B_C B_V (1 + 2 B_{QK} r_j^2) + |(w − "
    r"\hat{w})^⊤ \hat{g}|",
    controls=(
        Control(
            "the layers before, as printed",
            breaks={"finetti.attention.lipschitz.network_perturbation": _as_printed},
        ),
    ),
)
def s_thm_a_17_chain(context: Context) -> Evidence:
    """Both sides on 2 000 random pairs of networks, and on two layers without scores."""
    found = chain_ratios(context)["derived"]
    tight = instances.two_layers()
    return Evidence(
        holds(found, "networks"),
        attained("two layers", tight),
        note=f"Two layers: moved {float(tight.measured):.3g}, bound {float(tight.bound):.3g}. The "
        f"median ratio of the random networks is {np.median(found):.2g}.",
    )


@claim(
    id="S-erratum-2",
    title="printed: the layers before a layer amplify its error",
    statement="|out − ôut| ≤ Σ_i α_i e_i + |(w − ŵ)ᵀĝ_[CLS]| with α_i = Π_{j<i} p_j and without "
    "‖w‖.",
    formula=r"|out − \hat{out}| ≤ ‖w‖ Σ_i e_i ∏_{j>i} p_j + |(w − \hat{w})^⊤ \hat{g}|",
    printed=r"|out − \hat{out}| ≤ Σ_i e_i ∏_{j<i} p_j + |(w − \hat{w})^⊤ \hat{g}|",
    label="Theorem A.17",
    erratum="The recursion of Lemma A.15 multiplies the error of layer i by the layers after it, "
    "and the output by ‖w‖.",
    controls=(
        Control(
            "bounds 25 % too large",
            breaks={"finetti.attention.lipschitz.network_perturbation": looser(1.25)},
        ),
    ),
)
def s_erratum_2(context: Context) -> Evidence:
    """Both orders on two layers without scores, and on the networks of S-thm-A.17-chain."""
    printed, derived = instances.two_layers("printed"), instances.two_layers()
    ratios = chain_ratios(context)
    found = ratios["printed"]
    return Evidence(
        at_most("two layers: change of the output", printed.measured, printed.bound),
        at_most(f"largest ratio on {found.size} random networks", found.max(), 1 + RATIO_RTOL),
        derived=(attained("two layers", derived), holds(ratios["derived"], "networks")),
        note=f"{np.mean(found > 1):.1%} of the random networks violate the printed order.",
    )


@claim(
    id="S-erratum-10",
    title="printed: Lemma A.13 for the first layer, W_C without L_σ",
    statement="In Theorem A.17 Lemma A.13, ‖f(Z;W) − f(Z;Ŵ)‖ ≤ 2‖W_V‖‖(M − M̂)Zᵀ‖ + …, serves the "
    "first layer too, whose tokens have length B_X, and an error of W_C is multiplied by 1.",
    formula=r"‖f(Z;W) − f(Z;\hat{W})‖ ≤ ‖W_V‖ B_X^2 ‖(M − \hat{M}) Z^⊤‖ + …,  c_C ∝ L_σ",
    printed=r"‖f(Z;W) − f(Z;\hat{W})‖ ≤ 2 ‖W_V‖ ‖(M − \hat{M}) Z^⊤‖ + …,  c_C ∝ 1",
    label="Theorem A.17",
    erratum="Lemma A.13 is for tokens of length ≤ 1; for length r its first term carries r², so "
    "that the QK term of the first layer needs B_X³. W_C reads σ(…), of length up to L_σ.",
    controls=(Control("C = 2", changes={"constant": 2.0}),),
)
def s_erratum_10(context: Context, constant: float = 1.0) -> Evidence:
    """One layer: tokens of length 2 while M leaves 0, and σ(x) = 3x while W_C does."""
    step, longest, steep = 0.05, 2.0, 3.0

    def change(layers: Any, tokens: np.ndarray) -> float:
        """How far two networks of one layer are apart, read along e₁, per unit of ``step``."""
        networks = [attention.ProjectedTransformer([each]) for each in layers]
        outputs = [float(attention.TokenReadout(AXES[0])(each(tokens))) for each in networks]
        return abs(outputs[1] - outputs[0]) / step

    def cost(matrix: int, form: Form, length: float, steepness: float) -> float:
        # W_C is the first matrix after w, W_QK the second; a cost is d times the multiplier.
        network = bounds.TransformerClass(
            layers=(bounds.ProjectedLayerNorms(),),
            width=3,
            activation_lipschitz=steepness,
            norm_lipschitz=constant,
        )
        matrices = network.composition(Sample(1, 2, input_norm=length), form).matrices
        return math.exp(matrices[matrix].log_cost) / 3

    scored = layer(first_axis(0.0)), layer(first_axis(step))
    of_scores = change(scored, two_tokens(longest))
    lemma = lipschitz.attention_weight_perturbation(*scored, two_tokens(longest), "printed")
    tripled = attention.Activation("tripled", lambda x: steep * x, steep)
    weights = first_axis(0.0), AXES, AXES
    steeper = [
        attention.ProjectedLayer(*weights, size * AXES, activation=tripled) for size in (0.0, step)
    ]
    of_outputs = change(steeper, AXES[:1])
    uses = {
        "M": of_scores / cost(2, "derived", longest, 1.0),
        "W_C": of_outputs / cost(1, "derived", 1.0, steep),
    }
    return Evidence(
        at_most("B_X = 2: change / ‖M − M̂‖", of_scores, float(lemma.bound) / step),
        at_most("L_σ = 3: change / ‖W_C − Ŵ_C‖", of_outputs, cost(1, "printed", 1.0, steep)),
        derived=tuple(
            within(f"{name}: change / derived cost", used, 0.98, 1 + RATIO_RTOL)
            for name, used in uses.items()
        ),
        note="Lemma A.13 itself is printed for tokens of length ≤ 1, and is true there.",
    )


_DRAWS, _RESOLUTION = 200, 0.1


def _uniform_value(sample: Any, **sizes: Any) -> float:
    """The bound as the package has it."""
    return bounds.UniformTransformer(resolution=_RESOLUTION, **sizes).evaluate(sample).value


def _shallower(sample: Any, spectral_norm: float = 1.0, **sizes: Any) -> float:
    """P^{2L} with P = L_σC₂² in the place of L_σC₂²(1 + 2C₂)."""
    lost = 2 * sizes["n_layers"] * math.log(1 + 2 * largest_of(1.0, spectral_norm))
    return _uniform_value(sample, spectral_norm=spectral_norm, **sizes) / math.exp(lost)


@claim(
    id="S-thm-4.6",
    title="the capacity of a deep Transformer, by two norms",
    statement="For tokens of length B_X ≤ 1, log N_∞ ≤ (C₂L_σ)^{O(L)} B_X²B_w²d²C_∞²/ε² log(mT).",
    formula=r"log N_∞ ≤ (C_2 L_σ)^{O(L)} \frac{B_X^2 B_w^2 d^2 C_∞^2}{ε^2} log(m T),  B_X ≤ 1",
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
        longest = largest_of(column, size)
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
        least = smallest_of(least, found / again)
        base, matrices = largest_of(1.0, size), 3 * depth + 1
        grown = (largest_of(1.0, steep) * base**2 * (1 + 2 * base)) ** depth
        cost = longest_token * readout * 8 * longest * grown
        inside = np.ceil(4 * matrices * cost / _RESOLUTION * (1 - 1e-12) + 2)
        points = math.log(2 * inside * 1000 * 51 + 1)
        worst = largest_of(
            worst, abs(found * _RESOLUTION**2 / (36 * matrices**3 * cost**2 * points) - 1)
        )
    # Norms 1, L = 1, d = 2, ε = 0.1, m = T + 1 = 2: four costs c = 2·3 and N = 4, so that
    # 36·4³·6²/ε² = 8 294 400 times log(2(4·4·6/ε + 2)·4 + 1) = log 7697.
    by_hand = value(Sample(2, 1), n_layers=1, width=2) / (8_294_400 * math.log(7697))
    sample = Sample(1000, 50, input_norm=0.5)
    printed = bounds.UniformTransformer(n_layers=2, width=8, form="printed").sensitivity(sample)
    powers = largest_of(
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
        within(
            "±e₁: least distance / D tanh(D²/4)",
            smallest_of(ratios),
            1 - RATIO_RTOL,
            1 + RATIO_RTOL,
        ),
        within(
            "±e₁: largest distance / D tanh(D²/4)",
            largest_of(ratios),
            1 - RATIO_RTOL,
            1 + RATIO_RTOL,
        ),
        close("1000 layers multiply by 11.66, minus that", total - 11.66, 0.01),
    )


@claim(
    id="S-thm-4.6-depth",
    title="unit spectral norms avoid the exponential in the depth",
    statement="If the spectral norms of W_V, W_QK, W_C and L_σ are at most 1, layers bring tokens "
    "together, from D to at most D tanh(D²/4), and multiply a deviation of the tokens by less than "
    "11.7 in all, at any depth.",
    formula=r"D ↦ D tanh(\frac{D^2}{4}),  ∏_i p_i < 11.7",
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
