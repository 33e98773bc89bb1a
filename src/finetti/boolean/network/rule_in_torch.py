"""A compiled Boolean rule as a PyTorch module. Needs PyTorch, and its .pt file beside it.

The tokens are the readers ([CLS], or one per gate) and one per bit. A block is heads of softmax
attention and a ReLU lookup. Each block's attention, (..., heads, readers, tokens), passes through
`blocks[i].pattern`: a forward hook there sees it, and what the hook returns takes its place.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

BESIDE = Path(__file__).with_suffix(".pt")


class RuleBlock(nn.Module):
    """Heads softmax(x W_Q (X W_K)ᵀ) X W_V W_C, summed, and a lookup by one or two ReLU layers."""

    query: Tensor  # (heads, d, k), and so is the key
    key: Tensor
    value: Tensor  # (heads, d, v)
    output: Tensor  # (heads, v, features)
    inner: Tensor
    inner_bias: Tensor
    middle: Tensor  # may be absent
    middle_bias: Tensor
    outer: Tensor

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        for name, tensor in weights.items():
            self.register_parameter(name, nn.Parameter(tensor))
        self.pattern = nn.Identity()

    def attend(self, readers: Tensor, tokens: Tensor) -> Tensor:
        """What readers (..., R, d) read of tokens (..., N, d)."""
        readers, tokens = readers.unsqueeze(-3), tokens.unsqueeze(-3)
        scores = (readers @ self.query) @ (tokens @ self.key).mT
        pattern = self.pattern(scores.softmax(-1))
        return (pattern @ (tokens @ self.value) @ self.output).sum(-3)

    def look_up(self, features: Tensor) -> Tensor:
        """The value of a reader, or what is added to its token."""
        hidden = torch.relu(features @ self.inner + self.inner_bias)
        if hasattr(self, "middle"):
            hidden = torch.relu(hidden @ self.middle + self.middle_bias)
        return hidden @ self.outer


class RuleModule(nn.Module):
    """With gates x ← x + attend(x), x ← x + look_up(x) in every block, and coordinate 1 of the last
    gate is the value; without, [CLS] reads once and looks its value up."""

    def __init__(self, state: dict[str, Tensor]):
        super().__init__()
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            part, _, short = name.rpartition(".")
            parts.setdefault(part, {})[short] = tensor
        self.embedding = nn.ParameterDict(parts.pop("embedding"))
        self.blocks = nn.ModuleList(RuleBlock(parts[f"blocks.{i}"]) for i in range(len(parts)))

    def embed(self, bits: Tensor) -> Tensor:
        """Readers, then the token of every bit: E_b + p, or b·p where E = 0 (a bag of vectors)."""
        e, bits = self.embedding, bits.long()
        tokens = e["tokens"][bits] + e["positions"]
        if not bool(e["tokens"].any()):
            tokens = bits.unsqueeze(-1) * e["positions"]
        return torch.cat([e["readers"].expand(*bits.shape[:-1], -1, -1), tokens], -2)

    def forward(self, bits: Tensor) -> Tensor:
        """The values (...) of zeros and ones (..., T)."""
        x = self.embed(bits)
        for block in self.blocks:
            assert isinstance(block, RuleBlock)
            if block.outer.ndim == 1:  # [CLS] reads
                return block.look_up(block.attend(x[..., :1, :], x)[..., 0, :])
            x = x + block.attend(x, x)
            x = x + block.look_up(x)
        return x[..., len(self.embedding["readers"]) - 1, 1]


def load_rule(path: str | Path = BESIDE) -> RuleModule:
    """The rule whose weights are the state dict at ``path``."""
    return RuleModule(torch.load(path, weights_only=True))
