"""A compiled rule: weights that run, save, explain themselves, and carry their certificate."""

from abc import ABC
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import Certificate, certify
from finetti.boolean.check import EXACT_RTOL, Check
from finetti.boolean.explanation import Explanation, explain
from finetti.boolean.functions.base import BooleanFunction, as_rows
from finetti.boolean.network.base import Network
from finetti.boolean.parser import as_function
from finetti.boolean.refusals import readable_bytes
from finetti.boolean.saving import save
from finetti.boolean.verification import OnProgress, verify
from finetti.boolean.words import bits_of, counted, counted_heads, short_text
from finetti.core.errors import FinettiError, InputError, bad_argument
from finetti.show.card import Card

if TYPE_CHECKING:
    from finetti.boolean.network.module import BooleanTransformer

MAX_WRITTEN_BYTES = 2**31  # of all matrices in float64


class Compiled(Network, ABC):
    """What `compile`, `compose` and `load` give: a network that runs, and that shows what is known
    of it."""

    def predict(self, bits: Any, dtype: Any = np.float64) -> NDArray[Any]:
        """The network's value at every row of ``bits``, shape (m, T) or (T,), or sparse (SciPy).

        Runs through tables over the positions in blocks: thousands of rows at T = 10⁵ take seconds.

        Args:
            bits: zeros and ones of any dtype; uint8 or bool need no copy. Sparse ones cost their
                number of ones.
            dtype: np.float64, or np.float32 for the precision of a float32 network.
        """
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = repr(dtype)
        if name not in ("float32", "float64"):
            raise bad_argument("dtype", "predict", "float32 or float64", name)
        runner = self.single if name == "float32" else self.double
        rows = as_rows(bits, self.context_length, "predict")
        flat = rows[None] if isinstance(rows, np.ndarray) and rows.ndim == 1 else rows
        return runner.outputs(runner.tables.sums(flat)).reshape(rows.shape[:-1])

    @property
    def weights(self) -> dict[str, NDArray[Any]]:
        """Every matrix by name, written out over all d coordinates."""
        self._refuse_written("weights")
        return self.written()

    def module(self, dtype: Any = None) -> "BooleanTransformer":
        """The network as an Equinox module with every token and every matrix written out.

        Its leaves are in JAX's default precision; a warning says so where that is float32 and the
        certificate finds float32 not usable. Bits are not checked under `jax.jit`, where they
        have no values yet: anything that is not 0 counts as 1 (the bag multiplies with it).
        """
        from finetti.boolean.network.module import BooleanTransformer, warn_of_single  # needs JAX

        self._refuse_written("module")
        warn_of_single(dtype, self.check)
        return BooleanTransformer(self, dtype)

    def _refuse_written(self, what: str) -> None:
        size = 8 * self.n_parameters
        if size > MAX_WRITTEN_BYTES:
            raise InputError(
                f"`Compiled.{what}` writes all matrices out, {readable_bytes(size)} at T = "
                f"{self.context_length} and width {self.width}. Use `predict`, which runs through "
                'tables, or basis="random" or embedding="trained".'
            )

    @cached_property
    def check(self) -> Check:
        """The network against its rule."""
        return verify(self, self.function)

    def verify(
        self,
        function: BooleanFunction | str | None = None,
        tolerance: float = EXACT_RTOL,
        on_progress: OnProgress = lambda share: None,
    ) -> Check:
        """Compare the network with a rule, its own by default, up to ``tolerance`` of the rule's
        largest value; ``on_progress`` is told the share of the inputs that have been run."""
        rule = self.function if function is None else as_function(function, "verify")
        top = max(rule.indices, default=-1)
        if function is not None and top >= self.context_length:
            has = bits_of(self.context_length)
            raise InputError(f"The rule uses x{top}, and the network has {has}.")
        return verify(self, rule, tolerance, on_progress)

    def raise_if_wrong(self, on_progress: OnProgress) -> None:
        """Raise an error if an input shows that the network is wrong."""
        vars(self)["check"] = verify(self, self.function, on_progress=on_progress)
        wrong = self.check.counterexample
        if wrong is not None:
            raise FinettiError(f"The compiled network is wrong {wrong}: choose a larger width.")

    @cached_property
    def certificate(self) -> Certificate:
        """Everything that is known of the network, measured on its weights."""
        return certify(self, self.check)

    def explain(self, bits: Any = None) -> Explanation:
        """What every reader attends to on one input: all relevant bits 1 by default."""
        return explain(self, bits)

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors, with the rule and the settings as metadata."""
        return save(self, path)

    def __repr__(self) -> str:
        what, bits = short_text(self.rule, 60), counted(self.context_length, "bit")
        network = f"{counted_heads(self.heads_per_block)}, width {self.width}"
        return f"<{type(self).__name__} of {what!r} over {bits}: {network}>"

    def __card__(self) -> Card:
        return self.certificate.__card__()
