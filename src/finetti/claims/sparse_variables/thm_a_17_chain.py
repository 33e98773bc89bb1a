"""The chain behind Theorem A.17: a layer's error is amplified by the layers after it."""

import numpy as np

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.perturbations import attained, holds, nearby
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.instances import two_layers
from finetti.core.forms import Form

FORMS: tuple[Form, ...] = ("derived", "printed")
NETWORKS = 2000  # of each depth from 1 to 4 a quarter


def chain_ratios(context: Context) -> dict[Form, np.ndarray]:
    """measured / bound in both forms on random pairs of networks of 1 to 4 layers."""
    import jax

    from finetti.attention.networks.projected_transformer import ProjectedTransformer
    from finetti.attention.networks.self_attention import TokenReadout

    def lemma(tokens, read, other_read, weights, moved):
        network, other = (
            ProjectedTransformer([draws.build(*layer) for layer in layers])
            for layers in (weights, moved)
        )
        readout, other_readout = TokenReadout(read), TokenReadout(other_read)
        arguments = (network, other, readout, other_readout, tokens)
        return [lipschitz.network_perturbation(*arguments, form).ratio for form in FORMS]

    found = []
    for depth in (1, 2, 3, 4):
        rng = context.generator(CLAIM.id, depth)
        count = NETWORKS // 4
        weights = [draws.weights(rng, count, spread=0.5) for _ in range(depth)]
        # Half of the networks differ in their first layer only and hardly look at scores: there
        # the order matters most.
        first_only = (np.arange(count) % 2 == 0)[:, None, None]
        for layer in weights:
            layer[0] = np.where(first_only, 0.01 * layer[0], layer[0])
        moved = [nearby(rng, weights[0])]
        for layer in weights[1:]:
            near = nearby(rng, layer)
            moved.append([np.where(first_only, a, b) for a, b in zip(layer, near, strict=True)])
        read = rng.normal(size=(2, count, draws.DIMENSION))
        read[1] = np.where(first_only[:, 0], read[0], read[1])
        tokens = draws.tokens(rng, count, radius=0.5)
        found.append(np.asarray(jax.jit(jax.vmap(lemma))(tokens, *read, weights, moved)))
    return dict(zip(FORMS, np.concatenate(found, axis=1), strict=True))


def run(context: Context) -> Evidence:
    """Both sides on 2 000 random pairs of networks, and on two layers without scores."""
    found = chain_ratios(context)["derived"]
    first, second, readout, tokens = two_layers()
    tight = lipschitz.network_perturbation(first, second, readout, readout, tokens)
    return Evidence(
        (holds(found, "networks"), attained("two layers", tight)),
        note=f"Two layers: moved {float(tight.measured):.3g}, bound {float(tight.bound):.3g}. The "
        f"median ratio of the random networks is {np.median(found):.2g}.",
    )


CLAIM = Claim(
    id="S-thm-A.17-chain",
    title="a layer's error is amplified by the layers after it",
    statement="|out − ôut| ≤ ‖w‖ Σ_i A_i e_i + |(w − ŵ)ᵀĝ_[CLS]|, where e_i is layer i's own error "
    "and A_i = Π_{j>i} L_σB_CB_V(1 + 2B_QK r_j²).",
    paper="S",
    label="Theorem A.17",
    run=run,
)
