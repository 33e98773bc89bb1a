"""Every formula of paper E again, from the specification, in 40 digits."""

import mpmath as mp
import numpy as np
import pytest

from finetti.bounds import exchangeability as bounds
from finetti.bounds.value import Sample


@pytest.fixture(autouse=True)
def enough_digits():
    with mp.workdps(40):
        yield


RNG = np.random.default_rng(7)
SAMPLE = Sample(3_000_000, 17, input_norm=1.3, loss_lipschitz=4.0, loss_bound=5.0, delta=0.02)
FORMS = ["printed", "derived"]


def draw_network(n_layers, n_heads, *, skips=True, outer=True, **options):
    def norm():
        return float(10 ** RNG.uniform(-0.7, 0.7))

    layers = []
    for _ in range(n_layers):
        heads = tuple(bounds.FullHeadNorms(*(norm() for _ in range(6))) for _ in range(n_heads))
        second = (norm(), norm()) if outer else (None, None)
        layers.append(
            bounds.FullLayerNorms(heads, norm(), second[0], norm(), second[1], skips, skips),
        )
    return bounds.FullTransformer(6, 9, 2, tuple(layers), **options)


NETWORKS = [
    draw_network(1, 1),
    draw_network(3, 2),
    draw_network(2, 3, skips=False, bandwidth=0.7),
    draw_network(2, 1, skips=False, outer=False),
]


def head_sums(layer, reach, network, form):
    """Σω_v, ρ and R^mha: Lemmas C.11–C.13 head by head; printed (C.5) and (C.10)."""
    width = 2 * mp.sqrt(network.head_dimension)
    width = width if network.bandwidth is None else mp.mpf(network.bandwidth)
    c = 1 if form == "printed" else 1 / width  # Lemma F.1
    q, k, v, rq, rk, rv = (
        [mp.mpf(getattr(head, f"{name}norm")) for head in layer.heads]
        for name in ("query_", "key_", "value_", "query_mixed_", "key_mixed_", "value_mixed_")
    )
    pairs = [a + b for a, b in zip(q, k, strict=True)]
    sizes = [a + b for a, b in zip(rq, rk, strict=True)]
    if form == "printed":
        pairs, sizes, v, rv = [sorted(pairs)[-1]], [sum(sizes)], [sum(v)], [sum(rv)]
    drop = [1] * len(v) if form == "printed" else v  # erratum 5
    rho = sum(v) + c * reach**2 * sum(p**2 * w for p, w in zip(pairs, v, strict=True))
    scores = sum(w * p * s for w, p, s in zip(drop, pairs, sizes, strict=True))
    return sum(v), rho, sum(rv) + c * reach**2 * scores


def chain(network, form):
    """(α̃, ω̃, ρ̃, a, R^mha) of every layer, and R_T."""
    found, radius = [], mp.mpf(SAMPLE.input_norm)
    for layer in network.layers:
        inner, size = mp.mpf(layer.inner_norm), mp.mpf(layer.inner_mixed_norm)
        if layer.outer_norm is None:
            growth, a = inner, size
        else:
            outer, outer_size = mp.mpf(layer.outer_norm), mp.mpf(layer.outer_mixed_norm)
            growth, a = inner * outer, inner * outer_size + outer * size
        growth += int(layer.feed_forward_skip)
        reach = radius if form == "printed" else growth * radius
        total, rho, mha = head_sums(layer, reach, network, form)
        skip = int(layer.attention_skip)
        found.append((growth, total + skip, rho + skip, a, mha))
        radius = radius * growth * (total + skip)
    return found, radius


def deviation(network, form):
    """R_T^trans R_T: the product from τ = t, in print from τ = t + 1."""
    found, last = chain(network, form)
    total = mp.mpf(0)
    for t, (growth, _, rho, a, mha) in enumerate(found):
        start = t + 1 if form == "printed" else t
        total += (mha / rho + a / growth) * mp.fprod(link[2] / link[1] for link in found[start:])
    return total * last


def dimensions(network, form):
    d, p, s = network.dimension, network.head_dimension, network.hidden_dimension
    outer = network.layers[0].outer_norm is not None
    heads, depth = len(network.layers[0].heads), len(network.layers)
    if form == "printed":
        return (4 + heads) * (max(d, p, s) if outer else max(d, p)) ** 2 * depth
    return depth * ((2 * d * s if outer else d * d) + heads * (2 * d * p + d * d))


def complexity(network, form):
    """b·R̂ of loss ∘ network: Dudley's integral from the best ξ on, or the printed closed form."""
    n, b, slope = SAMPLE.n_samples, mp.mpf(SAMPLE.loss_bound), mp.mpf(SAMPLE.loss_lipschitz)
    size, p = 2 * deviation(network, form) * slope / b, dimensions(network, form)
    front = 12 * mp.sqrt(mp.mpf(p) / n)
    if form == "printed":
        return b * front * (2 + mp.sqrt(mp.log(1 + size)))
    best = size / mp.expm1(mp.mpf(n) / (9 * p))  # p·log(1 + size/ξ) = n/9
    # ε = e^−u: the root is smooth in u, and beyond 60 nothing is left.
    last = min(mp.mpf(60), -mp.log(best))
    panels = [u for u in (0, 1, 4, 16) if u < last]
    area = mp.quad(lambda u: mp.sqrt(mp.log(1 + size * mp.exp(u))) * mp.exp(-u), [*panels, last])
    return b * min(mp.mpf(1), 4 * best + front * area)


def agrees(bound, expected):
    found = bound.evaluate(SAMPLE)
    assert found.sign == 1
    assert abs(found.log_value - mp.log(expected)) <= 1e-12 * max(1, abs(mp.log(expected)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_covering_number(network, form):
    covered = dimensions(network, form) * mp.log(1 + 2 * deviation(network, form) / mp.mpf(0.05))
    agrees(bounds.FullTransformerCovering(network, resolution=0.05, form=form), covered)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_complexity_gap_and_risk(network, form):
    rademacher = complexity(network, form)
    n, delta, b = SAMPLE.n_samples, mp.mpf(SAMPLE.delta), mp.mpf(SAMPLE.loss_bound)
    agrees(bounds.TransformerComplexity(network, form=form), rademacher)
    gap = 2 * rademacher + 3 * b * mp.sqrt(mp.log(2 / delta) / (2 * n))
    agrees(bounds.FullTransformerGap(network, form=form), gap)
    if form == "derived":
        risk = 2 * rademacher + 3 * b * mp.sqrt(mp.log(4 / delta) / (2 * n))
        risk += b * mp.sqrt(mp.log(2 / delta) / (2 * n))
        agrees(bounds.TransformerRisk(network), risk)
        post_hoc = mp.mpf(7.5)
        risk = 2 * rademacher + 3 * b * mp.sqrt((mp.log(4 / delta) + post_hoc) / (2 * n))
        risk += b * mp.sqrt((mp.log(2 / delta) + post_hoc) / (2 * n))
        agrees(bounds.TransformerRisk(network, post_hoc=7.5), risk)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_rate_of_theorem_c_4(network, form):
    gamma, kappa, zeta = mp.mpf(0), mp.mpf(0), mp.mpf(0)
    for layer in network.layers:
        single = layer.outer_norm is None
        alpha = mp.mpf(layer.inner_norm) * mp.mpf(1 if single else layer.outer_norm)
        a = mp.mpf(layer.inner_mixed_norm) * (1 if single else mp.mpf(layer.outer_norm))
        a += 0 if single else mp.mpf(layer.inner_norm) * mp.mpf(layer.outer_mixed_norm)
        omega = sum(mp.mpf(h.value_norm) for h in layer.heads)
        size = sum(mp.mpf(h.value_mixed_norm) for h in layer.heads)
        pair = max(mp.mpf(h.query_norm) + mp.mpf(h.key_norm) for h in layer.heads)
        pair_size = sum(mp.mpf(h.query_mixed_norm) + mp.mpf(h.key_mixed_norm) for h in layer.heads)
        tilde_a, tilde_v = alpha + layer.feed_forward_skip, omega + layer.attention_skip
        last = pair_size / pair / (omega if form == "printed" else 1)
        gamma = max(gamma, alpha, omega)
        kappa = max(kappa, a / tilde_a, size / tilde_v, last)
        zeta = max(zeta, pair**2 * (size if form == "printed" else omega) / tilde_v)
    depth, n_heads = len(network.layers), len(network.layers[0].heads)
    radius = mp.mpf(SAMPLE.input_norm)
    steep = zeta * (radius if form == "printed" else radius**2)
    wide = kappa / (zeta if form == "printed" else mp.sqrt(zeta))
    base = (2 if network.skips else 1) + gamma
    bracket = (
        depth * mp.sqrt(mp.log(base))
        + mp.sqrt(depth) * mp.sqrt(mp.log(1 + steep))
        + mp.sqrt(mp.log(1 + wide))
    )
    n, largest = SAMPLE.n_samples, network.largest_dimension
    rate = largest * mp.sqrt(mp.mpf(n_heads * depth) / n) * bracket
    rate += mp.sqrt(mp.log(1 / mp.mpf(SAMPLE.delta)) / n)
    agrees(bounds.TransformerRate(network, form=form), rate)
    inside = 1 + steep * (1 + gamma) ** (4 * depth)
    limit = (
        2 * kappa / zeta * inside ** (depth + 3)
        if form == "printed"
        else 2 * kappa / mp.sqrt(zeta) * mp.sqrt(depth) * inside ** (depth + 1)
    )
    found = bounds.log_product_limit(network, SAMPLE.input_norm, form)
    assert abs(found - mp.log(limit)) <= 1e-12 * abs(mp.log(limit))


@pytest.mark.parametrize("form", FORMS)
def test_theorem_5_3(form):
    omega, size, alpha, inner = (mp.mpf(x) for x in ("0.7", "2.5", "1.2", "3.1"))
    bound = bounds.SingleRate(bounds.SingleAttention(5, 8, 0.7, 2.5, 1.2, 3.1), form=form)
    gamma, kappa = max(alpha, omega), max(inner / alpha, size / omega)
    radius, zeta = mp.mpf(SAMPLE.input_norm), omega**2
    bracket = mp.sqrt(mp.log(1 + gamma))
    if form == "printed":
        kappa, zeta = max(kappa, size / omega**2), omega * size
        bracket += mp.sqrt(mp.log(1 + zeta * radius)) + mp.sqrt(mp.log(1 + kappa / zeta))
    else:
        bracket += mp.sqrt(mp.log(1 + zeta * radius**2))
        bracket += mp.sqrt(mp.log(1 + kappa / mp.sqrt(zeta)))
    n = SAMPLE.n_samples
    agrees(bound, 8 / mp.sqrt(n) * bracket + mp.sqrt(mp.log(1 / mp.mpf(SAMPLE.delta)) / n))


@pytest.mark.parametrize("ridge", [1e-4, 0.03, 5.0])
def test_proposition_4_1(ridge):
    lam, length, delta = mp.mpf(ridge), SAMPLE.context_length, mp.mpf(SAMPLE.delta)
    spread = 2 / (lam * length) + mp.sqrt(mp.mpf(3.7) / (lam * length))
    deviation_part = (2 + lam ** mp.mpf(-0.5)) * spread * mp.log(4 / delta)
    bound = bounds.ConditionalMeanError(ridge, 3.7, 2.0, 0.6)
    agrees(bound, 2 * deviation_part + lam * mp.mpf(0.6))
    stated = mp.log(1 / delta) / mp.sqrt(length) + lam
    agrees(bounds.ConditionalMeanError(ridge, 3.7, form="printed"), stated)


def test_approximation_errors():
    eps = [mp.mpf(x) for x in (0.3, 0.2, 0.15, 0.05, 1.7)]
    agrees(bounds.SurrogateApproximation(0.3, 0.2), 2 * eps[0] ** 2 + 2 * eps[1] ** 2)
    excess, transfer, latent, aggregation, mu = eps
    pretraining = mu * (excess + transfer**2)
    derived = 3 * aggregation**2 + 6 * pretraining + 3 * latent**2
    agrees(bounds.TransferApproximation(0.3, 0.2, 0.15, 0.05, 1.7), derived)
    printed = aggregation**2 + pretraining + latent**2
    agrees(bounds.TransferApproximation(0.3, 0.2, 0.15, 0.05, 1.7, form="printed"), printed)
