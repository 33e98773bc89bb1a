"""Theorem A.17: the capacity of a deep Transformer."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, close, within
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.instances import two_layers
from finetti.claims.sparse_variables.packing import covered, log_packing
from finetti.claims.sparse_variables.recomputed import composed, network_parts

NETWORKS, LAYERS, SEQUENCES, RESOLUTION = 200, 2, 3, 0.1


CLASSES = 60


def measure(context: Context, make: Any, factor: float = 1.0) -> tuple[Any, ...]:
    """``factor`` times the bound, for classes made by ``make``: random ones, and two layers.

    Of the two layers only W_C of the first differs, and W_V of the second is 5I.
    """
    from finetti.attention import lipschitz
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import ProjectedLayerNorms, ProjectedTransformerCovering

    names = ProjectedLayerNorms.__dataclass_fields__
    rng, worst = context.generator(CLAIM.id, "classes"), 0.0
    for trial in range(CLASSES):
        norms = 10.0 ** rng.uniform(-1, 1, size=(1 + trial % 4, 6))
        steep, readout, longest = 10.0 ** rng.uniform(-0.5, 0.5, size=3)
        network = make(
            layers=tuple(
                ProjectedLayerNorms(**dict(zip(names, each, strict=True)))
                for each in norms.tolist()
            ),
            width=6,
            head_dimension=3,
            activation_lipschitz=float(steep),
            readout_norm=float(readout),
            norm_lipschitz=1.0 + trial % 2,
        )
        sample = Sample(1000, 49, input_norm=float(longest))
        found = factor * ProjectedTransformerCovering(network, RESOLUTION).evaluate(sample).value
        worst = max(worst, abs(found / composed(network_parts(network, sample), RESOLUTION) - 1))
    first, second, readout, tokens = two_layers()
    moved = lipschitz.network_perturbation(first, second, readout, readout, tokens)
    network = make(
        layers=(
            ProjectedLayerNorms(score_norm=0.0),
            ProjectedLayerNorms(value_norm=5.0, score_norm=0.0),
        ),
        width=3,
    )
    cost = network.composition(Sample(1, 2, input_norm=0.1), "derived").matrices[1].log_cost
    # W_C of the first layer moves by 0.05; its cost is d times what that is multiplied by.
    used = float(moved.measured) / 0.05 / (math.exp(cost) / network.width)
    return (
        close(f"{CLASSES} classes: relative error of log N_∞", worst, 1e-9),
        within("two layers: change / what W_C of the first costs", used, 0.98, 1 + ROUNDING),
    )


def run(context: Context) -> Evidence:
    """The bound against the same made again layer by layer, and two layers that use up a cost.

    These are exact, but for the 36 of Lemma A.10, which is quoted. The packing of random networks
    is far below the bound, and only a floor; S-thm-A.17-chain has the inequality behind it.
    """
    import jax

    from finetti.attention.networks.projected_transformer import ProjectedTransformer
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import (
        ProjectedLayerNorms,
        ProjectedTransformerCovering,
        TransformerClass,
    )

    rng = context.generator(CLAIM.id)
    tokens = draws.tokens(rng, SEQUENCES, radius=1.0)
    layers = [draws.weights(rng, NETWORKS, spread=0.3) for _ in range(LAYERS)]
    readouts = rng.normal(size=(NETWORKS, draws.DIMENSION))

    @jax.vmap
    def outputs(weights, readout):
        network = ProjectedTransformer([draws.build(*layer) for layer in weights])
        return network(tokens)[:, 0] @ readout

    found = np.asarray(jax.jit(outputs)(layers, readouts))[..., None]
    names, norms = ProjectedLayerNorms.__dataclass_fields__, []
    for query, key, value, output in layers:
        scores = query @ key.swapaxes(1, 2)
        spectral = [np.linalg.norm(each, 2, axis=(1, 2)).max() for each in (output, value, scores)]
        columns = [np.linalg.norm(each, axis=1).max() for each in (output, value)]
        rows = np.linalg.norm(scores, axis=2).max()
        norms.append(
            ProjectedLayerNorms(**dict(zip(names, (*spectral, *columns, rows), strict=True)))
        )
    network = TransformerClass(
        layers=tuple(norms),
        width=draws.DIMENSION,
        head_dimension=draws.WIDTH,
        readout_norm=float(np.linalg.norm(readouts, axis=1).max()),
    )
    bound = ProjectedTransformerCovering(network, RESOLUTION)
    sample = Sample(SEQUENCES, draws.TOKENS - 1)
    packing = log_packing(found, 2 * RESOLUTION)
    values = [bound.evaluate(Sample(1000, 10**k - 1)).value for k in range(2, 9)]
    steps = np.diff(values)
    shares = math.fsum(term.share or 0.0 for term in bound.evaluate(sample).terms)
    return Evidence(
        (
            *measure(context, TransformerClass),
            covered(f"{NETWORKS} random networks", packing, bound.evaluate(sample).value),
            close("spread of the steps per decade of T", np.ptp(steps) / steps.mean(), 1e-6),
            close("shares of all matrices add up to 1", shares - 1, 1e-12),
        ),
        note=f"{math.exp(packing):.0f} of the networks are pairwise farther apart than 2ε.",
    )


def _tiny(context: Context) -> Evidence:
    from finetti.bounds.sparse_variables import TransformerClass

    return Evidence(measure(context, TransformerClass, factor=1e-10))


def _before(context: Context) -> Evidence:
    from finetti.bounds.covering.composition import Composition
    from finetti.bounds.sparse_variables import TransformerClass, log_amplifications

    class Wrong(TransformerClass):
        def composition(self, sample: Any, form: Any) -> Composition:
            factors = self.log_factors(sample)
            after, before = log_amplifications(factors), log_amplifications(factors, "printed")
            right = super().composition(sample, form).matrices
            return Composition(
                tuple(
                    replace(each, log_cost=each.log_cost + before[i] - after[i])
                    if (i := (each.layer or 0) - 1) >= 0
                    else each
                    for each in right
                )
            )

    return Evidence(measure(context, Wrong))


CLAIM = Claim(
    id="S-thm-A.17",
    title="the capacity of a deep Transformer",
    statement="Networks of L projected layers have log N_∞ ≤ 36(γ²/ε²) Σ_j c_j^{2/3} log(…N + 1) "
    "over all matrices of all layers, each cost multiplied by the layers after it; it is affine in "
    "the logarithm of the context length.",
    paper="S",
    label="Theorem A.17",
    run=run,
    controls=(
        Control("36·10⁻¹⁰ in the place of 36", _tiny),
        Control("costs multiplied by the layers before", _before),
    ),
)
