"""Decoding: a state that a key and its value are appended to, and that a query reads.

| state | append | read |
|---|---|---|
| `ConditionalMeanState`: the factor of the keys, L×L, in float64 | O(L²) | O(L²) |
| `FastWeightState`: S, D×d_v | O(D·d_v) | O(D·d_v) |

For inference: states are changed in place and hold no graph.
"""

from typing import Any

import torch
from torch import Tensor

from finetti.core.errors import UnsupportedError, bad_argument
from finetti.torch.chunks import last_state
from finetti.torch.cme import DEFAULT_RIDGE
from finetti.torch.fast_weights import make_rule, unit_pairs
from finetti.torch.kernel import Kernel, Number, check_parameters
from finetti.torch.kernels import check_kernel
from finetti.torch.layout import check_ridge, check_scale, check_tensor
from finetti.torch.solve import at_least_floor


class ConditionalMeanState:
    """CME attention over the keys so far: G with GGᵀ = K + λI, and U = G⁻¹V.

    A new key is a new row of G by one forward substitution; the query reads WᵀU with the variance
    K(q, q) − ‖W‖², W = G⁻¹K(K, q).

    Args:
        key, value: the prompt, (..., L, E) and (..., L, Ev); L may be 0.
        kernel, ridge, scale: those of `finetti.torch.cme_attention`; a kernel of bounded growth.

    >>> import torch
    >>> state = ConditionalMeanState(torch.zeros(0, 2), torch.zeros(0, 1), ridge=0.1)
    >>> state.append(torch.zeros(2), torch.ones(1))
    >>> mean, variance = state.read(torch.zeros(2))
    >>> f"{mean.item():.3f} ± {variance.sqrt().item():.3f}"
    '0.909 ± 0.302'
    """

    @torch.no_grad()
    def __init__(
        self,
        key: Tensor,
        value: Tensor,
        *,
        kernel: Kernel | None = None,
        ridge: Number = DEFAULT_RIDGE,
        scale: float | None = None,
    ):
        owner = type(self).__name__
        self.kernel = check_kernel(kernel, owner)
        if self.kernel.grows:
            raise UnsupportedError(
                f"{owner} needs a kernel of bounded growth, and {type(self.kernel).__name__} grows "
                "exponentially. Use RBF, Matern, Linear or Polynomial, or call cme_attention with "
                "all keys."
            )
        _check_pairs(owner, key, value)
        check_parameters(self.kernel, key)
        self.scale = check_scale(owner, scale, key.shape[-1])
        self.ridge = check_ridge(owner, "ridge", ridge, key)
        self.dtype, self.length = key.dtype, 0
        *batch, length, width = key.shape
        capacity = max(16, 2 * length)
        options = {"dtype": torch.float64, "device": key.device}
        self._keys = torch.zeros(*batch, capacity, width, **options)
        self._factor = torch.eye(capacity, **options).expand(*batch, -1, -1).contiguous()
        self._half_values = torch.zeros(*batch, capacity, value.shape[-1], **options)
        if length:
            keys, values = key.double(), value.double()
            gram = self.kernel(keys, scale=self.scale)
            diagonal = gram.diagonal(dim1=-2, dim2=-1)
            noise = self.ridge.expand_as(diagonal)
            noise = at_least_floor(noise, diagonal, width)
            factor = torch.linalg.cholesky(gram + torch.diag_embed(noise))
            self._keys[..., :length, :] = keys
            self._factor[..., :length, :length] = factor
            half = torch.linalg.solve_triangular(factor, values, upper=False)
            self._half_values[..., :length, :] = half
            self.length = length

    @torch.no_grad()
    def append(self, key: Tensor, value: Tensor) -> None:
        """Add one key (..., E) and its value (..., Ev)."""
        _check_token(self, "key", key, self._keys)
        _check_token(self, "value", value, self._half_values)
        if self.length == self._keys.shape[-2]:
            self._grow()
        n, key = self.length, key.double().unsqueeze(-2)
        half = self._half(key)
        prior = self.kernel.diagonal(key, scale=self.scale)
        noise = at_least_floor(self.ridge.expand_as(prior), prior, key.shape[-1])
        # Never below the noise: rounding must not make a pivot negative.
        pivot = torch.maximum(prior + noise - (half * half).sum(-2), noise).sqrt()
        read = half.mT @ self._half_values[..., :n, :]
        self._keys[..., n, :] = key[..., 0, :]
        self._factor[..., n, :n] = half[..., 0]
        self._factor[..., n, n] = pivot[..., 0]
        self._half_values[..., n, :] = (value.double() - read[..., 0, :]) / pivot
        self.length = n + 1

    @torch.no_grad()
    def read(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (..., Ev) and variance (...) at a query (..., E)."""
        _check_token(self, "query", query, self._keys)
        query = query.double().unsqueeze(-2)
        half = self._half(query)
        mean = half.mT @ self._half_values[..., : self.length, :]
        prior = self.kernel.diagonal(query, scale=self.scale)
        variance = (prior - (half * half).sum(-2)).clamp_min(0.0)
        return mean[..., 0, :].to(self.dtype), variance[..., 0].to(self.dtype)

    def _half(self, tokens: Tensor) -> Tensor:
        """G⁻¹K(K, token), (..., L, 1)."""
        n = self.length
        if n == 0:
            return tokens.new_zeros(*tokens.shape[:-2], 0, 1)
        columns = self.kernel(self._keys[..., :n, :], tokens, scale=self.scale)
        factor = self._factor[..., :n, :n]
        return torch.linalg.solve_triangular(factor, columns, upper=False)

    def _grow(self) -> None:
        """Twice the capacity."""
        n = self.length
        pad = torch.nn.functional.pad
        self._keys = pad(self._keys, (0, 0, 0, n))
        self._half_values = pad(self._half_values, (0, 0, 0, n))
        self._factor = pad(self._factor, (0, n, 0, n))


class FastWeightState:
    """S of linear attention, or of the delta rule where a ``step`` is given, transposed.

    Args:
        key, value: the prompt, (..., L, E) and (..., L, Ev); L may be 0.
        step: None for linear attention; else the step of the delta rule, as in
            `delta_rule_attention`, for the prompt.
        decay: α of the delta rule, likewise.

    >>> import torch
    >>> state = FastWeightState(torch.ones(1, 1), torch.tensor([[2.0]]), step=0.5)
    >>> state.append(torch.ones(1), torch.tensor([4.0]), step=0.5)
    >>> state.read(torch.ones(1))                                        # 0 → 1 → 2.5
    tensor([2.5000])
    """

    @torch.no_grad()
    def __init__(
        self,
        key: Tensor,
        value: Tensor,
        *,
        step: Number | None = None,
        decay: Number | None = None,
    ):
        _check_pairs(type(self).__name__, key, value)
        if step is None and decay is not None:
            advice = "For the delta rule give a `step`, 1.0 for whole steps."
            owner = type(self).__name__
            raise bad_argument("decay", owner, "None in linear attention", decay, advice)
        self.is_delta, self.dtype = step is not None, key.dtype
        wide = torch.float32 if torch.finfo(key.dtype).bits < 32 else key.dtype
        keys, values = key.to(wide), value.to(wide)
        self.state = keys.new_zeros(*key.shape[:-2], key.shape[-1], value.shape[-1])
        if key.shape[-2] == 0:
            return
        if step is None:
            self.state = keys.mT @ values
        else:
            rule = make_rule(keys, step, decay, None)
            self.state = last_state(rule, *unit_pairs(keys, values))

    @torch.no_grad()
    def append(
        self,
        key: Tensor,
        value: Tensor,
        *,
        step: Number | None = None,
        decay: Number | None = None,
    ) -> None:
        """Add one key (..., E) and its value (..., Ev); the gates are those of this token, by
        default a whole step and no decay."""
        _check_token(self, "key", key, self.state.mT)
        _check_token(self, "value", value, self.state)
        keys = key.to(self.state.dtype).unsqueeze(-2)
        values = value.to(self.state.dtype).unsqueeze(-2)
        if not self.is_delta:
            for name, gate in (("step", step), ("decay", decay)):
                if gate is not None:
                    owner = type(self).__name__
                    raise bad_argument(name, owner, "None in linear attention", gate)
            self.state = self.state + keys.mT @ values
            return
        step = 1.0 if step is None else step
        if isinstance(step, Tensor):
            step = step.unsqueeze(-1)
        if isinstance(decay, Tensor):  # per channel it has as many axes as the key
            decay = decay.unsqueeze(-2 if decay.ndim == key.ndim else -1)
        rule = make_rule(keys, step, decay, None)
        keys, values = unit_pairs(keys, values)
        state = self.state
        if rule.log_decay is not None:
            alpha = rule.log_decay.exp().to(state.dtype)
            state = (alpha.mT if rule.per_channel else alpha.unsqueeze(-1)) * state
        assert rule.step is not None
        written = rule.step.unsqueeze(-1) * (values - keys @ state)
        self.state = state + keys.mT @ written

    @torch.no_grad()
    def read(self, query: Tensor) -> Tensor:
        """S q at a query (..., E)."""
        _check_token(self, "query", query, self.state.mT)
        asked = query.to(self.state.dtype).unsqueeze(-2)
        return (asked @ self.state)[..., 0, :].to(self.dtype)


def _check_pairs(owner: str, key: Tensor, value: Tensor) -> None:
    check_tensor(owner, "key", key)
    check_tensor(owner, "value", value)
    if key.ndim < 2:
        raise bad_argument("key", owner, "of shape (..., L, E)", f"shape {tuple(key.shape)}")
    if value.shape[:-1] != key.shape[:-1]:
        got = f"{tuple(value.shape)} for keys {tuple(key.shape)}"
        raise bad_argument("value", owner, "one per key, (..., L, Ev)", got)
    if value.device != key.device:
        raise bad_argument("value", owner, f"on the keys' device, {key.device}", value.device)
    if key.device.type == "mps":
        raise UnsupportedError(
            f"{owner} computes in float64, which MPS has not. Move the tensors to the CPU."
        )


def _check_token(state: Any, name: str, token: Tensor, like: Tensor) -> None:
    """Refuse what is not one token of those in ``like``, (..., L, d)."""
    owner, wanted = type(state).__name__, (*like.shape[:-2], like.shape[-1])
    check_tensor(owner, name, token)
    if tuple(token.shape) != wanted:
        requirement = f"of shape {wanted}"
        raise bad_argument(name, owner, requirement, f"shape {tuple(token.shape)}")
    if token.device != like.device:
        raise bad_argument(name, owner, f"on the device of the keys, {like.device}", token.device)
