"""PyTorch modules as learners (extra ``torch``): trained here, and asked for labels at the end.

PyTorch is imported only where it is needed: who has no module of it need not have it.
"""

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import FinettiError, InputError
from finetti.core.numbers import as_whole
from finetti.probe.learners.base import FitLearner, Predictor
from finetti.probe.learners.given_network import LOGITS, Inputs, check_inputs, has_decay
from finetti.probe.learners.recipe import Recipe

CHUNK = 2048  # rows that are asked for at once


@final
@dataclass(frozen=True, kw_only=True)
class TorchNetwork(FitLearner):
    """A module that is called with a batch (m, T), trained by AdamW on all samples at once.

    Args:
        recipe: of what it is built.
        inputs: the bits arrive as int64 ("integers", for embeddings) or float32 ("floats").
        iterations: steps of the optimizer; there is no validation between them.
        optimizer_options: learning_rate, weight_decay (decoupled, of tensors with two axes or more,
            embeddings excepted) and clip_norm of AdamW.
    """

    recipe: Recipe
    inputs: Inputs = "integers"
    iterations: int = 1000
    optimizer_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_inputs(self.inputs, self.recipe.reference)
        as_whole(self.iterations, "iterations", self.recipe.reference)

    def settings(self) -> dict[str, Any]:
        """Of the training, of the optimizer, and of the factory; as options they give it again."""
        own = {"iterations": self.iterations, "inputs": self.inputs}
        return {**own, **self.optimizer_options, **self.recipe.all_options()}

    def fit(self, bits: NDArray[Any], labels: NDArray[Any], seed: int) -> Predictor:
        """Build, and train for all iterations."""
        import torch  # pyright: ignore[reportMissingImports]

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self.recipe.build(context_length=bits.shape[1])
            self._train(network, bits, torch.from_numpy(labels.astype(np.int64)))
        return TorchPredictor(self, network)

    def logits(self, network: Any, bits: NDArray[Any]) -> Any:
        """The logits (m, 2) of one batch, a tensor."""
        import torch  # pyright: ignore[reportMissingImports]

        dtype = np.int64 if self.inputs == "integers" else np.float32
        found = network(torch.from_numpy(bits.astype(dtype)))
        rows = len(bits)
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else None
        if shape == (rows, 2):
            return found
        if shape not in ((rows, 1), (rows,)):
            got = type(found).__name__ if shape is None else f"shape {list(shape)}"
            raise InputError(
                f"The learner {self.recipe.reference} must return {LOGITS}. "
                f"For bits {list(bits.shape)} it returned {got}."
            )
        one = found.reshape(rows)
        return torch.stack([torch.zeros_like(one), one], dim=1)

    def _train(self, network: Any, bits: NDArray[Any], labels: Any) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        named = [each for each in network.named_parameters() if each[1].requires_grad]
        groups = [
            {
                "params": [each for name, each in named if has_decay(name, each.ndim) is decayed],
                "weight_decay": self.optimizer_options["weight_decay"] if decayed else 0.0,
            }
            for decayed in (True, False)
        ]
        optimizer = torch.optim.AdamW(groups, lr=self.optimizer_options["learning_rate"])
        clip_norm = self.optimizer_options["clip_norm"]
        network.train()
        for step in range(self.iterations):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.logits(network, bits), labels)
            if not torch.isfinite(loss):
                raise FinettiError(
                    f"The loss of the learner {self.recipe.reference} is {loss.item()} "
                    f"at step {step}. Lower `learning_rate`."
                )
            loss.backward()
            if clip_norm:
                torch.nn.utils.clip_grad_norm_([each for _, each in named], clip_norm)
            optimizer.step()
        network.eval()


@final
@dataclass(frozen=True)
class TorchPredictor:
    """A trained module, in evaluation mode."""

    learner: TorchNetwork
    network: Any

    def predict(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        """The label of the larger logit."""
        import torch  # pyright: ignore[reportMissingImports]

        parts = np.split(bits, range(CHUNK, len(bits), CHUNK))
        with torch.no_grad():
            logits = torch.cat([self.learner.logits(self.network, part) for part in parts])
        if not torch.isfinite(logits).all():
            raise FinettiError(
                f"The learner {self.learner.recipe.reference} returned logits that are not finite."
            )
        return logits.argmax(dim=1).numpy().astype(np.uint8)
