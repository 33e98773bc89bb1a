"""How steep the activations of real blocks are, without JAX."""

import math

# Lipschitz constants, rounded up in the last digit. All of these σ have |σ(x)| ≤ |x|.
_LIPSCHITZ = {
    "identity": 1.0,
    "relu": 1.0,
    "tanh": 1.0,
    "gelu": 1.128905,  # Φ(√2) + √2φ(√2), at x = √2
    "gelu_tanh": 1.128994,  # x/2·(1 + tanh(√(2/π)(x + 0.044715x³))), at x = 1.4185
    "silu": 1.099840,  # x/(1 + e^−x), at x = 2.3994
}
SLOPES = tuple(_LIPSCHITZ)


def log_slope(activation: str) -> float:
    """log Lip(σ) of one of `SLOPES`.

    >>> round(math.exp(log_slope("silu")), 6)
    1.09984
    """
    return math.log(_LIPSCHITZ[activation])
