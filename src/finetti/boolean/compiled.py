"""A compiled rule: weights that run, save, explain themselves, and carry their certificate."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.check import Check
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.predict import predict
from finetti.boolean.parser import as_rule
from finetti.boolean.refusals import readable_bytes
from finetti.boolean.simplification import simplify
from finetti.boolean.verification import verify
from finetti.core.errors import InputError
from finetti.show.card import Card
from finetti.show.shown import Shown

if TYPE_CHECKING:
    from finetti.boolean.certificate import Certificate
    from finetti.boolean.explanation import Explanation
    from finetti.boolean.network.module import BooleanTransformer

DENSE_BYTES = 2**31  # positions that may be written out


@dataclass(frozen=True, eq=False)
class Compiled(Shown):
    """A Transformer layer that computes ``function`` on every input of its context.

    Args:
        function: the rule.
        head: the weights below the lookup.
        lookup: the weights of the lookup.
        settings: how it was made: basis, width, coherence, margin, seed.
    """

    function: BooleanFunction
    head: HeadWeights
    lookup: Lookup
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def context_length(self) -> int:
        """T."""
        return self.head.context_length

    @property
    def rule(self) -> str:
        """The rule as text."""
        return str(self.function)

    @cached_property
    def check(self) -> Check:
        """The network against its rule: `finetti.boolean.verification.verify`."""
        return verify(self.head, self.lookup, self.function)

    @cached_property
    def certificate(self) -> "Certificate":
        """Everything that is known of the network, measured on its weights."""
        from finetti.boolean.certificate import certify

        return certify(
            self.head,
            self.lookup,
            simplify(self.function),
            self.check,
            self.rule,
            str(self.settings.get("basis", "given")),
            float(self.settings.get("margin", 1.0)),
        )

    @property
    def weights(self) -> dict[str, NDArray[np.float64]]:
        """Every matrix by name, positions written out; the tree that `save` writes."""
        self._refuse_dense("weights")
        head = self.head
        return {
            "embedding.positions": head.positions.dense(),
            "embedding.tokens": head.tokens,
            "embedding.cls": head.cls,
            "heads.query": head.query,
            "heads.key": head.key,
            "heads.value": head.value,
            "heads.output": head.output,
            **{f"lookup.{name}": array for name, array in self.lookup.arrays.items()},
        }

    def predict(self, bits: Any, dtype: Any = np.float64) -> NDArray[Any]:
        """The network's value at every row of ``bits``, shape (m, T) or (T,), or sparse (SciPy).

        Runs through tables of 2T + 1 rows in blocks: thousands of rows at T = 10⁵ take seconds.
        """
        return predict(self.head, self.lookup, bits, dtype)

    def module(self, dtype: Any = None) -> "BooleanTransformer":
        """The network as an Equinox module with all its tokens written out.

        Its leaves are in JAX's default precision; a warning says so where that is float32 and the
        certificate finds float32 not usable. Bits are not checked under `jax.jit`, where they
        have no values yet: anything that is not 0 counts as 1 (the bag multiplies with it).
        """
        from finetti.boolean.network.module import BooleanTransformer, warn_of_single

        self._refuse_dense("module")
        warn_of_single(dtype, self.check)
        return BooleanTransformer(self.head, self.lookup, dtype)

    def verify(self, function: BooleanFunction | str | None = None) -> Check:
        """Compare the network with a rule, its own by default."""
        rule = as_rule(function, self.function, self.context_length)
        return verify(self.head, self.lookup, rule, hints=self.function.indices)

    def explain(self, bits: Any = None) -> "Explanation":
        """The attention of [CLS] on one input: all relevant bits 1 by default."""
        from finetti.boolean.explanation import explain

        return explain(self, bits)

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors, with the rule and the settings as metadata."""
        from finetti.boolean.files import save

        return save(self, path)

    def _refuse_dense(self, what: str) -> None:
        size = self.head.positions.dense_bytes
        if size > DENSE_BYTES:
            raise InputError(
                f"`Compiled.{what}` writes all positions out, {readable_bytes(size)} at T = "
                f"{self.context_length} and width {self.head.width}. Use `predict`, which runs "
                'through tables, or compile with basis="random" or embedding="trained".'
            )

    def __card__(self) -> Card:
        return self.certificate.__card__()
