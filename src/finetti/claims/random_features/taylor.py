"""Taylor coefficients of the kernels on circles in the complex plane, without their series."""

import numpy as np

POINTS, DEGREE = 64, 6


def arc_cosine(u: np.ndarray) -> np.ndarray:
    """κ₁(u) = (√(1 − u²) + u(π − arccos u))/(2π) of complex u inside the unit circle."""
    return (np.sqrt(1 - u * u) + u * (np.pi - np.arccos(u))) / (2 * np.pi)


def circle(radius: float) -> np.ndarray:
    """Evenly spaced points on a circle around 0."""
    return radius * np.exp(2j * np.pi * np.arange(POINTS) / POINTS)


def attention_coefficients() -> np.ndarray:
    """κ_rs of κ₁((1 + a)(1 + b)/4)(1 + b) = Σ κ_rs a^r b^s, r and s ≤ 6."""
    radius = 0.75  # κ₁ ends at |u| = 1, which |a| = |b| = 1 would reach
    a, b = circle(radius)[:, None], circle(radius)[None, :]
    values = arc_cosine((1 + a) * (1 + b) / 4) * (1 + b)
    degrees = np.arange(DEGREE + 1)
    found = np.fft.fft2(values)[: DEGREE + 1, : DEGREE + 1].real / POINTS**2
    return found / radius ** (degrees[:, None] + degrees[None, :])


def network_coefficients(context_length: int) -> np.ndarray:
    """κ_k of κ₁((1 + s)/(N + 2)) = Σ κ_k s^k, k ≤ 6."""
    radius = 0.5 * (context_length + 1)  # half of the way to |u| = 1
    values = arc_cosine((1 + circle(radius)) / (context_length + 2))
    found = np.fft.fft(values)[: DEGREE + 1].real / POINTS
    return found / radius ** np.arange(DEGREE + 1)
