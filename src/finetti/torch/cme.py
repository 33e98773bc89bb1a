"""Conditional-mean (CME) attention: kernel ridge regression over the keys, with an error bar."""

import math
from typing import Any

import torch
from torch import Tensor

from finetti.core.errors import InputError
from finetti.torch.checked import answer_checked, can_be_checked
from finetti.torch.kernel import Kernel, Number, check_parameters
from finetti.torch.kernels import check_kernel
from finetti.torch.layout import Contexts, arrange, check_ridge, may_branch, without_autocast
from finetti.torch.solve import Answer, answer_in_float64, build, cholesky_factor

DEFAULT_RIDGE = 0.1
# Entries of Gram matrices, 128 MB in float64, that masks per query have in work at once.
MAX_ENTRIES = 2**24


@without_autocast
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    kernel: Kernel | None,
    ridge: Number | None,
    ridge_per_token: Number | None,
    return_variance: bool,
    predictive: bool,
) -> Any:
    owner = "cme_attention"
    contexts = arrange(owner, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    kernel = check_kernel(kernel, owner)
    check_parameters(kernel, contexts.keys)
    if is_causal and ridge_per_token is not None:
        raise InputError(
            "The `ridge_per_token` argument of cme_attention must be None with is_causal=True, "
            "where every query reads another number of keys. Use `ridge`."
        )
    value_of_ridge = _ridge(owner, ridge, ridge_per_token, contexts)
    per_token = ridge_per_token is not None
    if contexts.per_query:
        answer, noise = _answer_each(kernel, value_of_ridge, per_token, contexts, return_variance)
    else:
        noise = _per_context(value_of_ridge, per_token, contexts)
        if not return_variance and can_be_checked(kernel, noise, contexts):
            answer = Answer(answer_checked(kernel, noise, contexts), None)
        else:
            answer = answer_in_float64(kernel, noise, contexts, return_variance)
    mean = contexts.restore(answer.mean)
    if answer.variance is None:
        return mean
    variance = answer.variance + (noise if predictive else 0.0)
    return mean, contexts.restore_variance(variance)


def cme_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    kernel: Kernel | None = None,
    ridge: Number | None = None,
    ridge_per_token: Number | None = None,
    return_variance: bool = False,
    predictive: bool = False,
) -> Any:
    """CME attention with the arguments of `torch.nn.functional.scaled_dot_product_attention`.

    attn_CME(q, K, V) = Vᵀ(K(K, K) + λI)⁻¹K(K, q)                             (4.5), zhang2022

    The posterior mean of a Gaussian process at the query. ``return_variance`` gives the pair of it
    and the variance that each of its coordinates has, K(q, q) − K(q, K)(K + λI)⁻¹K(K, q);
    ``predictive`` adds the noise λ of a newly observed value. A query that may read nothing answers
    0 with the variance K(q, q).

    A key mask, ``attn_mask`` of shape (..., 1, S), costs nothing, and ``is_causal`` is one
    factorization for all prefixes. Any other mask means one solve per query. Solved in float64
    whatever the precision of the data, or, for the mean over 256 keys and more outside of compilers
    and transforms, in float32 where a check shows that it will do, for the answer and apart from it
    for the gradient of the tokens. While the kernel or the ridge is learned all is float64.

    Args:
        query, key, value: (..., L, E), (..., S, E) and (..., S, Ev) of one floating dtype.
        attn_mask: boolean, True where a key may be read, broadcastable to (..., L, S).
        dropout_p: must be 0.
        is_causal: query t reads the keys 0…t (upper left, as in PyTorch), of those the mask allows.
        scale: the kernel sees √scale·query and √scale·key; 1/√E by default.
        enable_gqa: key heads, axis −3, are each read by several query heads.
        kernel: one of `finetti.torch`; by default RBF with ℓ = 1.
        ridge: λ, the noise variance of values in units of the kernel, 0.1 by default; a number, or
            a tensor that broadcasts against the axes before (L, E), as (H,) for one per key head.
        ridge_per_token: instead of ``ridge``: λ = ridge_per_token × (number of unmasked keys).

    >>> import torch
    >>> keys = torch.tensor([[0.0], [1.0]])
    >>> query, values = torch.tensor([[1.0]]), torch.tensor([[0.0], [1.0]])
    >>> mean, variance = cme_attention(query, keys, values, ridge=0.5, return_variance=True)
    >>> print(f"{mean.item():.3f} ± {variance.sqrt().item():.3f}")
    0.602 ± 0.548
    """
    return _attend(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
        kernel,
        ridge,
        ridge_per_token,
        return_variance,
        predictive,
    )


@without_autocast
def _log_density(
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    kernel: Kernel | None,
    ridge: Number | None,
    ridge_per_token: Number | None,
    scale: float | None,
) -> Tensor:
    owner = "log_marginal_likelihood"
    mask = None if key_mask is None else key_mask.unsqueeze(-2)
    contexts = arrange(owner, key[..., :1, :], key, value, mask, 0.0, False, scale, False)
    kernel = check_kernel(kernel, owner)
    check_parameters(kernel, contexts.keys, more_axes=True)
    ridge_value = _ridge(owner, ridge, ridge_per_token, contexts)
    noise = _per_context(ridge_value, ridge_per_token is not None, contexts)
    keys, values = contexts.keys.double(), contexts.values.double()
    system = build(kernel, keys, contexts.key_mask, noise, contexts.scale)
    width, counted = values.shape[-1], torch.ones_like(values[..., 0])
    if contexts.key_mask is not None:
        counted = contexts.key_mask.to(counted.dtype)
    factor = cholesky_factor(system.gram, system.noise)
    log_determinant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    if system.log_scale is not None:
        # N(v; 0, DAD) = N(D⁻¹v; 0, A)/|D|
        values = values * torch.exp(-system.log_scale)[..., None]
        log_determinant = log_determinant + (system.log_scale * counted).sum(-1)
    values = values.expand(*factor.shape[:-2], *values.shape[-2:])
    half = torch.linalg.solve_triangular(factor, values, upper=False)
    # A masked key has a 1 on the diagonal and the value 0: it adds nothing to either term.
    constant = 0.5 * math.log(2 * math.pi) * counted.sum(-1)
    density = -0.5 * (half * half).sum((-2, -1)) - width * (log_determinant + constant)
    known = contexts.known
    return density if known is None else torch.where(known[..., 0], density, torch.nan)


def log_marginal_likelihood(
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None = None,
    *,
    kernel: Kernel | None = None,
    ridge: Number | None = None,
    ridge_per_token: Number | None = None,
    scale: float | None = None,
) -> Tensor:
    """log p(V | K) = Σ_j log N(v_j; 0, K(K, K) + λI), one float64 number per context.

    Differentiable in the kernel's parameters and the ridge: maximize it to learn them. Masked keys,
    False in ``key_mask`` (..., S), do not count. The other arguments are those of `cme_attention`.
    """
    return _log_density(key, value, key_mask, kernel, ridge, ridge_per_token, scale)


def _ridge(
    owner: str, ridge: Number | None, ridge_per_token: Number | None, contexts: Contexts
) -> Tensor:
    """The ridge that was given, (..., 1) in float64."""
    if ridge is not None and ridge_per_token is not None:
        raise InputError(
            f"{owner} takes `ridge` (4.5) or `ridge_per_token` (A.3), not both. Got {ridge} and "
            f"{ridge_per_token}."
        )
    name = "ridge" if ridge_per_token is None else "ridge_per_token"
    given = ridge if ridge_per_token is None else ridge_per_token
    given = DEFAULT_RIDGE if given is None else given
    return check_ridge(owner, name, given, contexts.keys)


def _per_context(ridge: Tensor, per_token: bool, contexts: Contexts) -> Tensor:
    """λ of each context, (..., 1)."""
    if not per_token:
        return ridge
    if contexts.key_mask is None:
        return ridge * contexts.keys.shape[-2]
    return ridge * contexts.key_mask.sum(-1, keepdim=True)


def _answer_each(
    kernel: Kernel, ridge: Tensor, per_token: bool, contexts: Contexts, wants_variance: bool
) -> tuple[Answer, Tensor]:
    """One solve per query: every query is a context of its own, some of them at a time."""
    assert contexts.mask is not None
    *batch, queries, _ = contexts.query.shape
    span = contexts.keys.shape[-2]
    # In front of all axes: parameters of the kernel may be one per head.
    query = contexts.query.movedim(-2, 0).unsqueeze(-2)
    masks = contexts.mask.expand(*batch, queries, span).movedim(-2, 0).unsqueeze(-2)
    together = max(1, MAX_ENTRIES // max(1, math.prod(batch) * span**2))
    means, variances, noises = [], [], []
    for start in range(0, queries, together):
        rows = slice(start, start + together)
        count, some = len(query[rows]), slice(None)
        if may_branch(masks):
            # With a sliding window none of these queries reads what stands before or behind it.
            read = masks[rows].flatten(0, -2).any(0).nonzero()
            some = slice(int(read[0]), int(read[-1]) + 1) if len(read) else slice(0, 1)
        keys, values = (
            each[..., some, :].expand(count, *batch, -1, -1)
            for each in (contexts.keys, contexts.values)
        )
        mask = masks[rows][..., some]
        one = contexts._replace(query=query[rows], keys=keys, values=values, mask=mask)
        noise = _per_context(ridge, per_token, one).expand(count, *batch, 1)
        found = answer_in_float64(kernel, noise, one, wants_variance)
        means.append(found.mean)
        variances.append(found.variance)
        noises.append(noise)
    mean = torch.cat(means).squeeze(-2).movedim(0, -2)
    noise = torch.cat(noises).squeeze(-1).movedim(0, -1)
    if not wants_variance:
        return Answer(mean, None), noise
    return Answer(mean, torch.cat(variances).squeeze(-1).movedim(0, -1)), noise
