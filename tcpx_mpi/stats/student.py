"""Quantiles of Student's t distribution with a whole number of degrees of freedom.

For whole degrees of freedom n the distribution is a finite sum: M. Abramowitz and I. A. Stegun,
Handbook of Mathematical Functions (1964), 26.7.3 for odd n and 26.7.4 for even n. With
theta = atan(t / sqrt(n)), the probability A(t, n) of a value between -t and t is

    odd n    2 / pi * (theta + sin(theta) * (cos + 2/3 cos^3 + ... up to cos^(n - 2)))
    even n   sin(theta) * (1 + 1/2 cos^2 + 1*3/(2*4) cos^4 + ... up to cos^(n - 2))

Each term is the one before times cos^2 and a fraction. The quantile is found by bisection.
"""

from __future__ import annotations

import math


def student_quantile(freedom: int, probability: float) -> float:
    """The value that t exceeds with chance 1 - probability; infinity for a probability of 1."""
    if freedom < 1 or not 0 < probability <= 1:
        raise ValueError(f"no quantile {probability} of Student's t with {freedom} degrees")
    if probability == 1:
        return math.inf
    if probability < 0.5:
        return -student_quantile(freedom, 1 - probability)
    within = 2 * probability - 1
    # By theta, which has an end: t has none. Each step halves it, until floats have no middle.
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _between(freedom, middle) < within:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(high)


def _between(freedom: int, theta: float) -> float:
    """The probability of a value between -t and t, A(t, n)."""
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (power - 1) / power
        total += term
    return (theta + sine * total) * 2 / math.pi if odd else sine * total
