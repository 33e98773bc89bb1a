"""A compiled rule: weights that run, save, explain themselves, and carry their certificate."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import EXACT_RTOL, Certificate, Check, describe_heads
from finetti.boolean.embeddings.weight_range import MAX_BYTES
from finetti.boolean.explanation import Explanation
from finetti.boolean.language.parser import as_function
from finetti.boolean.language.rule import BooleanFunction, as_rows, binary_array, name_bits
from finetti.boolean.network.cls_network import ClsNetwork
from finetti.boolean.network.gate_network import GateNetwork
from finetti.boolean.network.weight_file import read_network, save, save_torch
from finetti.boolean.verify.verification import OnProgress, Verifier, make_verifier, verify
from finetti.core.errors import FinettiError, InputError, bad_argument
from finetti.display.card import Card
from finetti.display.formatting import format_bytes, plural, short_text
from finetti.display.pages.run_result import RunResult

if TYPE_CHECKING:
    from finetti.boolean.network.boolean_transformer import BooleanTransformer
    from finetti.display import Document


@dataclass(frozen=True, eq=False, repr=False)
class Compiled(RunResult):
    """What `compile_rule` and `load` give: a Transformer that computes a rule, and that shows what
    is known of it."""

    network: ClsNetwork | GateNetwork  # its tokens, heads and lookups
    function: BooleanFunction  # the rule
    settings: dict[str, Any]  # how it was made: embedding, basis, width, margin, seed

    @property
    def rule(self) -> str:
        """The rule as text."""
        return str(self.function)

    @property
    def context_length(self) -> int:
        """T."""
        return self.network.context_length

    def predict(self, bits: Any, dtype: Any = np.float64) -> NDArray[Any]:
        """The network's value at every row of ``bits``, shape (m, T) or (T,), or sparse (SciPy).

        Runs through tables over the positions in blocks: thousands of rows at T = 10⁵ take seconds.

        Args:
            bits: zeros and ones of any dtype; uint8 or bool need no copy.
            dtype: np.float64, or np.float32 for the precision of a float32 network.
        """
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = repr(dtype)
        if name not in ("float32", "float64"):
            raise bad_argument("dtype", "predict", "float32 or float64", name)
        tables = self.network.float32 if name == "float32" else self.network.float64
        rows = as_rows(bits, self.context_length, "predict")
        flat = rows[None] if isinstance(rows, np.ndarray) and rows.ndim == 1 else rows
        return tables.outputs(tables.sums(flat)).reshape(rows.shape[:-1])

    @property
    def weights(self) -> dict[str, NDArray[Any]]:
        """Every matrix by name, written out over all d coordinates."""
        self._refuse_written("weights")
        return self.network.weights()

    def changed(self, block: int = 0, **matrices: Any) -> Self:
        """A copy with other matrices in one block of the network, by their names there."""
        return replace(self, network=self.network.changed(block, **matrices))

    def module(self, dtype: Any = None) -> "BooleanTransformer":
        """The network as an Equinox module with every token and every matrix written out.

        Its leaves are in JAX's default precision; a warning says so where that is float32 and the
        certificate finds float32 not usable. Bits are not checked under `jax.jit`, where they
        have no values yet: anything that is not 0 counts as 1 (the bag multiplies with it).
        """
        from finetti.boolean.network.boolean_transformer import (  # needs JAX
            BooleanTransformer,
            warn_of_single,
        )

        self._refuse_written("module")
        warn_of_single(dtype, self.check)
        return BooleanTransformer(self.network.weights(), self.network.embedding, dtype)

    def _refuse_written(self, what: str) -> None:
        size = 8 * self.network.n_parameters
        if size > MAX_BYTES:
            raise InputError(
                f"`Compiled.{what}` writes all matrices out, {format_bytes(size)} at T = "
                f"{self.context_length} and width {self.network.width}. Use `predict`, which runs "
                'through tables, or basis="random" or embedding="trained".'
            )

    @cached_property
    def _verifier(self) -> Verifier:
        return make_verifier(self.network, self.rule)

    @cached_property
    def check(self) -> Check:
        """The network against its rule."""
        return self.verify()

    def verify(
        self,
        function: BooleanFunction | str | None = None,
        tolerance: float = EXACT_RTOL,
        on_progress: OnProgress = lambda share: None,
    ) -> Check:
        """Compare the network with a rule, its own by default, up to ``tolerance`` of the rule's
        largest value; ``on_progress`` is told the share of the inputs that have been run."""
        if function is None or function is self.function:
            return verify(self._verifier, self.network.rule, tolerance, on_progress)
        rule = as_function(function, "verify")
        top = max(rule.indices, default=-1)
        if top >= self.context_length:
            has = name_bits(self.context_length)
            raise InputError(f"The rule uses x{top}, and the network has {has}.")
        return verify(self._verifier, rule, tolerance, on_progress)

    def raise_if_wrong(self, on_progress: OnProgress) -> None:
        """Raise an error if an input shows that the network is wrong."""
        vars(self)["check"] = self.verify(on_progress=on_progress)
        wrong = self.check.counterexample
        if wrong is not None:
            raise FinettiError(f"The compiled network is wrong {wrong}: choose a larger width.")

    @cached_property
    def certificate(self) -> Certificate:
        """Everything that is known of the network, measured on its weights."""
        margin, network = float(self.settings.get("margin", 1.0)), self.network
        return Certificate(
            rule=self.rule,
            indices=network.rule.indices,
            context_length=self.context_length,
            embedding=network.embedding.name,
            basis=str(self.settings.get("basis", "given")),
            heads_per_block=network.heads_per_block,
            width=network.width,
            n_parameters=network.n_parameters,
            asked_margin=margin,
            check=self.check,
            route=self._verifier.route,
            readers=self._verifier.readers,
            gates=self._verifier.reader_rows,
            norms=self._verifier.norms(margin),
            capacities=self._verifier.capacities(),
        )

    def explain(self, bits: Any = None) -> Explanation:
        """What every reader attends to on one input, by default that whose relevant bits alone are
        1.

        >>> from finetti.boolean import compile_rule
        >>> compile_rule("x1 & x4", 6).explain().attention[0].round(2).tolist()  # x0, …, x5, [CLS]
        [[0.01, 0.48, 0.01, 0.01, 0.48, 0.01, 0.01]]
        >>> compile_rule("(x1 | x2) & x3", 8, gates=True).explain().readings[1][0].rest < 0.05
        True
        """
        length = self.context_length
        if bits is None:
            bits = np.zeros(length, dtype=np.uint8)
            bits[list(self.network.rule.indices)] = 1
        requirement = f"{length} zeros and ones"
        bits = binary_array(bits, "explain", requirement)
        if bits.shape != (length,):
            raise bad_argument("bits", "explain", requirement, f"shape {bits.shape}")
        bits = bits.astype(np.uint8)
        readings, values = self._verifier.readings(bits)
        names = tuple(f"{name} = {value:.4g}" for name, value in values.items())
        return Explanation(short_text(self.rule), bits, names, readings, list(values.values())[-1])

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors, with the rule and the settings as metadata."""
        return save(path, self.network, self.function, self.settings)

    def save_torch(self, path: str | Path) -> tuple[Path, Path]:
        """Write the weights as a PyTorch state dict (.pt), and beside it a readable module (.py)
        that computes the rule from them and imports PyTorch only; return both paths."""
        return save_torch(path, self.weights, self.rule)

    def __repr__(self) -> str:
        what, bits = short_text(self.rule, 60), plural(self.context_length, "bit")
        heads = describe_heads(self.network.heads_per_block)
        return f"<Compiled of {what!r} over {bits}: {heads}, width {self.network.width}>"

    @property
    def headline(self) -> str:
        """The rule and its verdict, in one line."""
        return self.__card__().title

    @property
    def as_expected(self) -> bool:
        """Whether the certificate holds."""
        return self.certificate.holds

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain data for JSON."""
        return self.certificate.to_dict()

    def page(self, command: str = "") -> "Document":
        """The certificate, and what the readers attend to."""
        from finetti.display.pages.document import Figure, Section

        found = super().page(command)
        figure = Figure(self.explain().chart, name="attention")
        return replace(found, sections=(*found.sections, Section("Attention", figures=(figure,))))

    def __card__(self) -> Card:
        return self.certificate.__card__()


def load(path: str | Path, max_bytes: int = MAX_BYTES) -> Compiled:
    """Read what `Compiled.save` wrote; the certificate is computed again from the weights. Files of
    more than ``max_bytes`` are refused.

    >>> import tempfile
    >>> from finetti.boolean import compile_rule
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = compile_rule("x1 ^ x4", 8).save(Path(folder) / "rule.safetensors")
    ...     load(saved).verify().exact
    True
    """
    return Compiled(*read_network(path, max_bytes))
