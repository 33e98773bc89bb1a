"""F-chain-blocks: how far a deviation, or an error of any weight, is carried by real blocks."""

import math
from dataclasses import replace
from typing import Any

from finetti.bounds import ours
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence
from finetti.claims.ours.block_cases import KINDS, chain_use
from finetti.claims.ours.block_constants import tight
from finetti.claims.perturbations import holds


class _ScoresOnce(ours.ProductHeadPiece):
    """Without the 2: as if only the key moved, and not the query."""

    def through(self, log_radius: float) -> Any:
        half = replace(self.score, norm=self.score.norm / 2)
        return super(_ScoresOnce, replace(self, score=half)).through(log_radius)


class _NoRadius(ours.ProductHeadPiece):
    """Scores as if tokens had length 1."""

    def through(self, log_radius: float) -> Any:
        found = super().through(log_radius)
        scores, *others = found.parts
        free = replace(scores, log_multiplier=scores.log_factor - 2 * log_radius, log_radius=0.0)
        return replace(found, parts=(free, *others))


class _NoRoot(ours.NormalizationPiece):
    """max|g| in the place of max|g|/√ε."""

    def through(self, log_radius: float) -> Any:
        found = super().through(log_radius)
        return replace(found, log_lipschitz=found.log_lipschitz + math.log(self.epsilon) / 2)


class _OpenGate(ours.GatedPiece):
    """A gate that does not move."""

    def through(self, log_radius: float) -> Any:
        found = super().through(log_radius)
        return replace(found, log_lipschitz=found.log_lipschitz - math.log(2))


class _NoSkip(ours.ResidualPiece):
    """Lip(f) without the 1 of the residual."""

    def through(self, log_radius: float) -> Any:
        found = super().through(log_radius)
        return replace(found, log_lipschitz=self.piece.through(log_radius).log_lipschitz)


class _FlatActivation(ours.FeedForwardPiece):
    """Every activation as if it were 1-Lipschitz."""

    def through(self, log_radius: float) -> Any:
        return super(_FlatActivation, replace(self, activation="relu")).through(log_radius)


class _ByQuery(ours.RotaryHeadPiece):
    """W_K multiplied as if the query had no bias."""

    def through(self, log_radius: float) -> Any:
        mute = ours.RowWeights(rows=1, columns=self.query.columns, norm=0.0)
        return super(_ByQuery, replace(self, query_bias=mute)).through(log_radius)


def _with(**pieces: Any) -> Any:
    return lambda context: Evidence(*tight(**pieces))


@claim(
    id="F-chain-blocks",
    title="the chain for real blocks",
    statement="On inputs in a ball of radius ρ, LayerNorm and RMSNorm are max|g|/√ε-Lipschitz, a "
    "head with biases ‖W_VW_O‖(1 + ρ(2‖M‖ρ + ‖c‖)), heads add, feed-forward parts are "
    "Lip(σ)‖W₁‖‖W₂‖, gated ones ‖W_down‖(‖W_up‖·sup|gate| + Lip(σ)‖W_gate‖·sup|up|), a residual "
    "adds 1, and constants multiply along the depth: an error x_j of every weight moves the output "
    "by at most Σ_j a_jρ_jx_j.",
    formula=r"|out − \hat{out}| ≤ Σ_j a_j ρ_j x_j,  Lip(LN) = \frac{max|g|}{\sqrt{ε}},  Lip(head) "
    "= ‖W_V W_O‖ (1 + ρ (2 ‖M‖ ρ + ‖c‖))",
    label="the chain for real blocks",
    controls=(
        Control("scores that move with one token only", _with(head=_ScoresOnce)),
        Control("an error of M without ρ²", _with(head=_NoRadius)),
        Control("LayerNorm without 1/√ε", _with(normalization=_NoRoot)),
        Control("a gate that does not move", _with(gated=_OpenGate)),
        Control("a residual that adds nothing", _with(residual=_NoSkip)),
        Control("activations that are 1-Lipschitz", _with(feed_forward=_FlatActivation)),
        Control("rotary keys without the bias of the query", _with(rotary=_ByQuery)),
    ),
)
def f_chain_blocks(context: Context) -> Evidence:
    """Random small blocks of each kind whose tokens and weights move, and tight instances.

    Forward passes are plain NumPy; both the change of the output against the chain and the length
    of the output against its radius.
    """
    count = context.pick(quick=500, paper=10_000)
    found = []
    for kind in KINDS:
        rng = context.generator(f_chain_blocks.id, kind.name)
        used, reached = chain_use(kind, rng, count)
        found += [holds(used, f"{kind.name}: change"), holds(reached, f"{kind.name}: radius")]
    return Evidence(*found, *tight())
