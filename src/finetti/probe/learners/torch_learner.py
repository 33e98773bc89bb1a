"""PyTorch modules as learners: their logits, and their training by AdamW."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import InputError
from finetti.models.answers import check_shape, named_errors
from finetti.probe.learners.learner import LOGITS
from finetti.probe.learners.network_learner import UserLearner, has_decay


@final
@dataclass(frozen=True, kw_only=True)
class TorchLearner(UserLearner):
    """A PyTorch module that is called with a batch (m, T), trained by AdamW on all samples at once.

    Weight decay is decoupled, of tensors with two axes or more, embeddings excepted.
    """

    def init(self, context_length: int) -> Any:
        """Draw a new module, by PyTorch's own generator."""
        return self.model.factory.build(np.zeros((1, context_length), self._dtype))

    def apply(self, network: Any, bits: NDArray[Any]) -> Any:
        """The logits (m, 2), a tensor; an output with ``.logits``, as of Hugging Face, gives these.

        In training or in evaluation mode: as the module is.
        """
        import torch  # pyright: ignore[reportMissingImports]

        found = network(torch.from_numpy(bits.astype(self._dtype)))
        found = getattr(found, "logits", found)
        rows = len(bits)
        what = f"{LOGITS}, or an output with these as `.logits`"
        check_shape(self.model.label, found, ((rows, 2), (rows, 1), (rows,)), what, bits)
        if tuple(found.shape) == (rows, 2):
            return found
        one = found.reshape(rows)
        return torch.stack([torch.zeros_like(one), one], dim=1)

    def check_shapes(self, context_length: int) -> None:
        """Run a new module on three sequences, so that wrong ones are refused before any trial."""
        import torch  # pyright: ignore[reportMissingImports]

        with torch.random.fork_rng(devices=[]):
            network = self.init(context_length)
            bits = np.zeros((3, context_length), np.uint8)
            for training in (False, True):
                with named_errors(self.label, "fails on inputs of shape", [bits]):
                    logits = self.apply(network.train(training), bits)
        if not logits.requires_grad:
            raise InputError(
                f"{self.label} has no parameter that can be trained: its logits depend on none "
                "that has `requires_grad`."
            )

    @property
    def _dtype(self) -> Any:
        return np.int64 if self.inputs == "integers" else np.float32

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
