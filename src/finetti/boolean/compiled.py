"""A compiled rule: weights that run, save, explain themselves, and carry their certificate."""

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.check import EXACT_RTOL, Check
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.network.rows import as_rows, is_single
from finetti.boolean.network.runner import Runner, Trials
from finetti.boolean.parser import as_rule
from finetti.boolean.refusals import readable_bytes
from finetti.boolean.verification import InputBound, verify
from finetti.boolean.words import counted, short_text
from finetti.core.errors import FinettiError, InputError
from finetti.show.card import Card
from finetti.show.shown import Shown

if TYPE_CHECKING:
    from finetti.boolean.certificate import Certificate, ReaderProof
    from finetti.boolean.embeddings.base import Embedding
    from finetti.boolean.explanation import Explanation, Reading
    from finetti.boolean.network.module import BooleanTransformer
    from finetti.boolean.network.positions import BitPositions
    from finetti.boolean.norms import NormBound
    from finetti.bounds.value import BoundValue

MAX_WRITTEN_BYTES = 2**31  # of all matrices in float64


class Compiled(Shown):
    """A Transformer that computes ``function`` on every input of its context.

    Blocks read with the tokens of readers: [CLS] (`LayerNetwork`), or one token per gate
    (`GateNetwork`). ``settings`` says how it was made.
    """

    function: BooleanFunction
    settings: dict[str, Any]

    # What a network is.

    @property
    @abstractmethod
    def embedding(self) -> "Embedding":
        """How bits become tokens."""

    @property
    @abstractmethod
    def positions(self) -> "BitPositions":
        """Of the bits."""

    @property
    @abstractmethod
    def heads_per_block(self) -> tuple[int, ...]:
        """H of every block."""

    @property
    @abstractmethod
    def readers(self) -> str:
        """Which tokens read, in words."""

    @property
    @abstractmethod
    def width(self) -> int:
        """d."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Numbers in all matrices, written out."""

    @property
    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file has of it beside the positions, by name."""

    @abstractmethod
    def written(self) -> dict[str, NDArray[Any]]:
        """Every matrix by name, over all d coordinates."""

    # How it runs.

    @property
    @abstractmethod
    def work(self) -> int:
        """Multiplications that one input takes after the sums over its bits."""

    @abstractmethod
    def runner(self, dtype: Any) -> Runner:
        """It in float64 or float32."""

    # What is known of it.

    @abstractmethod
    def comparable(self, function: BooleanFunction) -> BooleanFunction:
        """A rule in the form that it is compared with."""

    @abstractmethod
    def trials(self, function: BooleanFunction) -> Trials:
        """What is run against a rule, where not all inputs can be."""

    @abstractmethod
    def bound(self, function: BooleanFunction, tried: tuple[int, ...] | None) -> InputBound:
        """The error against a rule on all inputs; ``tried`` bits were set in trials, if any."""

    @property
    @abstractmethod
    def route(self) -> str:
        """The lemmas that built it."""

    @abstractmethod
    def proofs(self) -> "tuple[ReaderProof, ...]":
        """What each reader reads, over all inputs."""

    @abstractmethod
    def norms(self, margin: float) -> "tuple[NormBound, ...]":
        """Every norm beside its bound."""

    @abstractmethod
    def capacities(self) -> "tuple[BoundValue, ...]":
        """Of the classes that the heads of each block come from, at ε = δ of its lookup."""

    @abstractmethod
    def readings(
        self, bits: NDArray[np.uint8]
    ) -> "tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]":
        """What is read on one input, block by block; and the readers with their values, the last
        of which is the network's."""

    # What all networks do.

    @cached_property
    def double(self) -> Runner:
        """It in float64."""
        return self.runner(np.float64)

    @cached_property
    def single(self) -> Runner:
        """It in float32."""
        return self.runner(np.float32)

    @property
    def context_length(self) -> int:
        """T."""
        return self.positions.count

    @property
    def depth(self) -> int:
        """L, the number of blocks."""
        return len(self.heads_per_block)

    @property
    def rule(self) -> str:
        """The rule as text."""
        return str(self.function)

    def predict(self, bits: Any, dtype: Any = np.float64) -> NDArray[Any]:
        """The network's value at every row of ``bits``, shape (m, T) or (T,), or sparse (SciPy).

        Runs through tables over the positions in blocks: thousands of rows at T = 10⁵ take seconds.

        Args:
            bits: zeros and ones of any dtype; uint8 or bool need no copy. Sparse ones cost their
                number of ones.
            dtype: np.float64, or np.float32 for the precision of a float32 network.
        """
        runner = self.single if is_single(dtype, "predict") else self.double
        rows = as_rows(bits, self.context_length, "predict")
        if not isinstance(rows, np.ndarray):
            return runner.outputs(runner.states(rows))
        flat = rows.reshape(-1, self.context_length)
        return runner.outputs(runner.states(flat)).reshape(rows.shape[:-1])

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
        from finetti.boolean.network.module import BooleanTransformer, warn_of_single

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
        self, function: BooleanFunction | str | None = None, tolerance: float = EXACT_RTOL
    ) -> Check:
        """Compare the network with a rule, its own by default, up to ``tolerance`` of the rule's
        largest value."""
        return verify(self, as_rule(function, self.function, self.context_length), tolerance)

    def raise_if_wrong(self) -> None:
        """Raise an error if an input shows that the network is wrong."""
        if not self.check.exact:
            raise FinettiError(
                f"The compiled network is wrong {self.check.counterexample}: choose a larger width."
            )

    @cached_property
    def certificate(self) -> "Certificate":
        """Everything that is known of the network, measured on its weights."""
        from finetti.boolean.certificate import certify

        return certify(self)

    def explain(self, bits: Any = None) -> "Explanation":
        """What every reader attends to on one input: all relevant bits 1 by default."""
        from finetti.boolean.explanation import explain

        return explain(self, bits)

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors, with the rule and the settings as metadata."""
        from finetti.boolean.saving import save

        return save(self, path)

    def __repr__(self) -> str:
        heads = " + ".join(map(str, self.heads_per_block))
        return (
            f"<{type(self).__name__} of {short_text(self.rule, 60)!r} over "
            f"{counted(self.context_length, 'bit')}: {counted(self.depth, 'block')}, {heads} "
            f"{'head' if heads == '1' else 'heads'}, width {self.width}>"
        )

    def __card__(self) -> Card:
        return self.certificate.__card__()
