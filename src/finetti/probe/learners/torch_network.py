"""PyTorch modules as learners (extra ``torch``).

PyTorch is imported only where it is needed: who has no module of it need not have it.
"""

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import InputError
from finetti.core.numbers import as_whole
from finetti.probe.learners.base import TrainedLearner
from finetti.probe.learners.given_network import LOGITS, Inputs, check_inputs, has_decay
from finetti.probe.learners.recipe import Recipe


@final
@dataclass(frozen=True, kw_only=True)
class TorchNetwork(TrainedLearner):
    """A module that is called with a batch (m, T), trained by AdamW on all samples at once.

    Args:
        recipe: of what it is built.
        inputs: the bits arrive as int64 ("integers", for embeddings) or float32 ("floats").
        optimizer_options: learning_rate, weight_decay (decoupled, of tensors with two axes or more,
            embeddings excepted) and clip_norm of AdamW.
    """

    recipe: Recipe
    inputs: Inputs = "integers"
    optimizer_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_inputs(self.inputs, self.recipe.reference)
        for name in ("iterations", "check_every"):
            as_whole(getattr(self, name), name, self.recipe.reference)

    def settings(self) -> dict[str, Any]:
        """Of the training, of the optimizer, and of the factory; as options they give it again."""
        names = ("iterations", "check_every", "inputs")
        own = {name: getattr(self, name) for name in names}
        return {**own, **self.optimizer_options, **self.recipe.all_options()}

    def init(self, context_length: int) -> Any:
        """Draw a new module, by PyTorch's own generator."""
        return self.recipe.build(context_length=context_length)

    def apply(self, network: Any, bits: NDArray[Any]) -> Any:
        """The logits (m, 2), a tensor; an output with ``.logits``, as of Hugging Face, gives these.

        In training or in evaluation mode: as the module is.
        """
        import torch  # pyright: ignore[reportMissingImports]

        dtype = np.int64 if self.inputs == "integers" else np.float32
        found = network(torch.from_numpy(bits.astype(dtype)))
        found = getattr(found, "logits", found)
        rows = len(bits)
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else None
        if shape not in ((rows, 2), (rows, 1), (rows,)) or not found.is_floating_point():
            got = f"a {type(found).__name__}"
            if shape is not None:
                got = f"{str(found.dtype).removeprefix('torch.')}{list(shape)}"
            raise InputError(
                f"The learner {self.recipe.reference} must return {LOGITS}, real numbers, or an "
                f"output with these as `.logits`. For bits {list(bits.shape)} it returned {got}."
            )
        if shape == (rows, 2):
            return found
        one = found.reshape(rows)
        return torch.stack([torch.zeros_like(one), one], dim=1)

    def check(self, context_length: int) -> None:
        """Run a new module on three sequences, so that wrong ones are refused before any trial."""
        import torch  # pyright: ignore[reportMissingImports]

        with torch.random.fork_rng(devices=[]):
            network = self.init(context_length)
            bits = np.zeros((3, context_length), np.uint8)
            for training in (False, True):
                logits = self.apply(network.train(training), bits)
        if not logits.requires_grad:
            raise InputError(
                f"The learner {self.recipe.reference} has no parameter that can be trained: its "
                "logits depend on none that has `requires_grad`."
            )

    def optimizer(self, network: Any) -> Any:
        """AdamW with decay on weights only."""
        import torch  # pyright: ignore[reportMissingImports]

        named = [each for each in network.named_parameters() if each[1].requires_grad]
        groups = [
            {
                "params": [each for name, each in named if has_decay(name, each.ndim) is decayed],
                "weight_decay": self.optimizer_options["weight_decay"] if decayed else 0.0,
            }
            for decayed in (True, False)
        ]
        return torch.optim.AdamW(groups, lr=self.optimizer_options["learning_rate"])

    def step(self, network: Any, optimizer: Any, bits: NDArray[Any], labels: NDArray[Any]) -> float:
        """Make one step, after the norm of the gradient was clipped; the loss before it."""
        import torch  # pyright: ignore[reportMissingImports]

        optimizer.zero_grad()
        logits = self.apply(network, bits)
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels.astype(np.int64)))
        loss.backward()
        if self.optimizer_options["clip_norm"]:
            torch.nn.utils.clip_grad_norm_(
                network.parameters(), self.optimizer_options["clip_norm"]
            )
        optimizer.step()
        return loss.item()
