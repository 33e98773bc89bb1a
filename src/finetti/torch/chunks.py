"""The state of linear attention and of the delta rule in chunks: products, no loop over tokens.

Inside a chunk that begins with the state T₀ (D×d_v) every rule has the form T_j = A_j T₀ +
Σ_{i≤j} (A_j/A_i) k_i u_iᵀ, A_j the product of the decays so far, one number or one per channel.
Linear attention writes u_j = v_j, the delta rule u_j = step_j·(v_j − (α_j T_{j−1})ᵀk_j): one unit
lower triangular system per chunk,

(I + M)U = step·(V − (A K)T₀),  M_ji = step_j·k_jᵀ(A_j/A_i)k_i for i < j

(the WY form; Yang et al., arXiv 2406.06484, with gates 2412.06464). It is solved for all chunks at
once; what is left for the loop over chunks is two products. Ratios A_j/A_i are taken by logarithms
in float64 and never exceed 1.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Keys per chunk; with a decay per channel the ratios of a chunk are C×C×D numbers.
CHUNK, CHANNEL_CHUNK = 64, 16
# A decay below e^−200 forgets all; sums of its logarithm keep their digits.
MIN_LOG_DECAY = -200.0


class Rule(NamedTuple):
    """How pairs change the state: without ``step`` the value is added, with one the error."""

    step: Tensor | None = None  # (..., S)
    log_decay: Tensor | None = None  # (..., S) or (..., S, D), float64

    @property
    def chunk(self) -> int:
        """How many keys one chunk takes."""
        return CHUNK if self.log_decay is None or not self.per_channel else CHANNEL_CHUNK

    @property
    def per_channel(self) -> bool:
        """Whether every channel of the keys decays by itself."""
        if self.log_decay is None:
            return False
        return self.step is not None and self.log_decay.ndim > self.step.ndim


class Chunks(NamedTuple):
    """Keys in N chunks of C with their fading, and what they write: u = written − correcting·T₀."""

    keys: Tensor  # (..., N, C, D)
    log_age: Tensor | None  # (..., N, C, 1 or D): log A_j, in float64
    ratio: Tensor | None  # (..., N, C, C) or (..., N, C, C, D): A_j/A_i, 0 above the diagonal
    written: Tensor  # (..., N, C, d_v)
    correcting: Tensor | None  # (..., N, C, D)

    def fade(self, rows: Tensor) -> Tensor:
        """A_j x_j: the state before the chunk as it is read at place j."""
        return rows if self.log_age is None else rows * self.log_age.exp().to(rows.dtype)

    def scores(self, rows: Tensor) -> Tensor:
        """x_jᵀ(A_j/A_i)k_i for i ≤ j, 0 above the diagonal."""
        if self.ratio is None:
            return (rows @ self.keys.mT).tril()
        if self.ratio.ndim == self.keys.ndim:
            return (rows @ self.keys.mT) * self.ratio
        return (rows.unsqueeze(-2) * self.keys.unsqueeze(-3) * self.ratio).sum(-1)

    def states(self) -> tuple[Tensor, Tensor, Tensor]:
        """T before every chunk (..., N, D, d_v), T after the last, and all u (..., N, C, d_v)."""
        last, whole = self.keys, None
        if self.log_age is not None:
            last = last * (self.log_age[..., -1:, :] - self.log_age).exp().to(last.dtype)
            whole = self.log_age[..., -1, :, None].exp().to(last.dtype)  # (..., N, 1 or D, 1)
        if self.correcting is None and whole is None:
            sums = (last.mT @ self.written).cumsum(-3)
            before = torch.cat([torch.zeros_like(sums[..., :1, :, :]), sums[..., :-1, :, :]], -3)
            return before, sums[..., -1, :, :], self.written
        batch = torch.broadcast_shapes(last.shape[:-3], self.written.shape[:-3])
        state = last.new_zeros(*batch, last.shape[-1], self.written.shape[-1])
        before, wrote = [], []
        for n in range(last.shape[-3]):
            before.append(state)
            u = self.written[..., n, :, :]
            if self.correcting is not None:
                u = u - self.correcting[..., n, :, :] @ state
            wrote.append(u)
            kept = state if whole is None else whole[..., n, :, :] * state
            state = kept + last[..., n, :, :].mT @ u
        return torch.stack(before, -3), state, torch.stack(wrote, -3)


def in_chunks(rule: Rule, keys: Tensor, values: Tensor, places: int | None = None) -> Chunks:
    """The pairs, padded with zeros that do not fade, to ``places`` or to full chunks."""
    places = keys.shape[-2] if places is None else places
    chunk = max(1, min(rule.chunk, places))
    count = max(1, -(-places // chunk))
    keys, values = (_split(each[..., :places, :], chunk, count) for each in (keys, values))
    log_age = ratio = None
    if rule.log_decay is not None:
        decay = rule.log_decay if rule.per_channel else rule.log_decay.unsqueeze(-1)
        log_age = _split(decay[..., :places, :], chunk, count).cumsum(-2)
        ratio = _ratios(log_age, keys.dtype)
    chunks = Chunks(keys, log_age, ratio, values, None)
    if rule.step is None:
        return chunks
    step = _split(rule.step.unsqueeze(-1)[..., :places, :], chunk, count)
    right = step * torch.cat([values, chunks.fade(keys)], -1)
    # Only what is below the diagonal is read.
    solved = torch.linalg.solve_triangular(
        step * chunks.scores(keys), right, upper=False, unitriangular=True
    )
    written, correcting = solved.split([values.shape[-1], keys.shape[-1]], -1)
    return chunks._replace(written=written, correcting=correcting)


def _ratios(log_age: Tensor, dtype: torch.dtype) -> Tensor:
    """A_j/A_i for i ≤ j."""
    places = torch.arange(log_age.shape[-2], device=log_age.device)
    is_later = places > places[:, None]
    if log_age.shape[-1] == 1:
        difference = log_age - log_age.mT
    else:
        difference = log_age.unsqueeze(-2) - log_age.unsqueeze(-3)
        is_later = is_later[..., None]
    # The difference needs float64, its power does not. Above the diagonal the exponents would be
    # positive, and their powers not finite.
    return difference.to(dtype).masked_fill(is_later, -torch.inf).exp()


def last_state(rule: Rule, keys: Tensor, values: Tensor) -> Tensor:
    """T after all keys, (..., D, d_v)."""
    if rule.step is None and rule.log_decay is None:
        return keys.mT @ values
    return in_chunks(rule, keys, values).states()[1]


def read_prefixes(rule: Rule, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The query (..., G, P, D) at place t of each group reads the state after the keys 0…t."""
    places = query.shape[-2]
    if places == 0:
        return query.new_zeros(*query.shape[:-1], values.shape[-1])
    chunks = in_chunks(rule, keys, values, places)
    before, _, wrote = chunks.states()
    count, chunk = chunks.keys.shape[-3:-1]
    # One more axis, for the groups of queries that share the keys.
    each = chunks._replace(keys=chunks.keys.unsqueeze(-4))
    if chunks.log_age is not None and chunks.ratio is not None:
        axis = chunks.keys.ndim - 3
        each = each._replace(
            log_age=chunks.log_age.unsqueeze(-4), ratio=chunks.ratio.unsqueeze(axis)
        )
    asked = _split(query, chunk, count)
    out = each.fade(asked) @ before.unsqueeze(-4) + each.scores(asked) @ wrote.unsqueeze(-4)
    return out.flatten(-3, -2)[..., :places, :]


def _split(rows: Tensor, chunk: int, count: int) -> Tensor:
    """(..., S, d) to (..., N, C, d), filled up with zeros."""
    missing = count * chunk - rows.shape[-2]
    padded = torch.nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows
    return padded.unflatten(-2, (count, chunk))
