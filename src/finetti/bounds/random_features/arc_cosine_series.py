"""Power series of the kernels of random-feature models, and what their coefficients cost.

A polynomial of degree (r, s) in (x₀, x) with coefficients f_rs has squared norm ‖f_rs‖²/κ_rs in the
space of a kernel Σ κ_rs ⟨x₀,x₀'⟩^r ⟨x,x'⟩^s. All numbers are logarithms.
"""

import math
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from finetti.core.arguments import as_whole
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.logspace import log_binomial, log_sum

as_degree = partial(as_whole, least=0)  # a whole number ≥ 0


@lru_cache(maxsize=64)
def log_arc_cosine_coefficients(orders: int) -> NDArray[np.float64]:
    """log c_l for l < ``orders``: κ₁(u) = Σ_l c_l u^l of two ReLUs with correlation u.

    c_0 = 1/(2π), c_1 = 1/4, c_l = ((l − 3)!!)²/(2π l!) for even l, 0 for odd l ≥ 3

    >>> np.exp(log_arc_cosine_coefficients(5)) * 48 * np.pi  # 24, 12π, 12, 0, 1
    array([24.        , 37.69911184, 12.        ,  0.        ,  1.        ])

    Reference: derived from the model of fu2023; see Cho and Saul (2009) for κ₁.
    """
    logs = np.full(max(orders, 3), -math.inf)
    logs[:3] = -math.log(2 * math.pi), -math.log(4), -math.log(4 * math.pi)
    if orders > 3:
        # c_{l+2}/c_l = (l − 1)²/((l + 1)(l + 2)): no factorials that would cancel
        even = np.arange(2, orders - 2, 2)
        steps = 2 * np.log(even - 1.0) - np.log(even + 1.0) - np.log(even + 2.0)
        logs[4:orders:2] = logs[2] + np.cumsum(steps)
    logs = logs[:orders]
    logs.flags.writeable = False
    return logs


def _orders(degree: int) -> NDArray[np.int64]:
    """The l that matter: after l = 4·degree the terms fall by more than a half each."""
    return np.arange(4 * degree + 200)


@lru_cache(maxsize=4096)
def log_kernel_coefficient(query_degree: int, key_degree: int) -> float:
    """log κ_rs: the coefficient of ⟨x₀,x₀'⟩^r ⟨x,x'⟩^s in the kernel of infinitely many heads.

    κ_rs = Σ_l c_l 4^{−l} C(l, r) C(l + 1, s), from κ₁((1 + a)(1 + b)/4)(1 + b), derived: fu2023

    >>> round(math.exp(-log_kernel_coefficient(0, 0)), 2), round(
    ...     math.exp(-log_kernel_coefficient(1, 0)), 1)
    (4.41, 13.8)
    """
    owner = "log_kernel_coefficient"
    r = as_degree(query_degree, "query_degree", owner)
    s = as_degree(key_degree, "key_degree", owner)
    orders = _orders(max(r, s))
    orders = orders[max(r, s - 1, 0) :]
    logs = log_arc_cosine_coefficients(int(orders[-1]) + 1)[orders]
    binomials = log_binomial(orders, r) + log_binomial(orders + 1, s)
    return float(log_sum(logs - orders * math.log(4) + binomials))


@lru_cache(maxsize=4096)
def log_network_coefficient(degree: int, context_length: int) -> float:
    """log κ_k of the random-feature network: the coefficient of ⟨x_{0:N}, x'_{0:N}⟩^k.

    κ_k = Σ_{l ≥ k} c_l C(l, k) (N + 2)^{−l}, from κ₁((1 + Σ_i⟨x_i, x'_i⟩)/(N + 2)), derived: fu2023

    >>> round(math.exp(-log_network_coefficient(2, 16)) / 16)  # (1/N)Σ⟨b, x_i⟩², ‖b‖ = 1
    254
    """
    owner = "log_network_coefficient"
    k = as_degree(degree, "degree", owner)
    length = as_whole(context_length, "context_length", owner)
    orders = _orders(k)[k:]
    logs = log_arc_cosine_coefficients(int(orders[-1]) + 1)[orders]
    return float(log_sum(logs + log_binomial(orders, k) - orders * math.log(length + 2)))


def log_stated_constant(degree: int) -> float:
    """log C_k of the stated norm, C_k = max(k^{4.5} 4^k, 1), fu2023.

    >>> [round(math.exp(log_stated_constant(k))) for k in range(3)]
    [1, 4, 362]
    """
    k = as_degree(degree, "degree", "log_stated_constant")
    return 0.0 if k == 0 else largest_of(0.0, 4.5 * math.log(k) + k * math.log(4))
