"""Random numbers of the automata, in plain arithmetic.

They are those of sfc32 [1]_: additions, shifts and exclusive ors of 32-bit words, which fit 64-bit integers
and Python's alike, so that compiled or not the same numbers come from one seed. Poisson numbers of a large
mean are drawn by transformed rejection [2]_, in constant time.

References
----------
.. [1] Doty-Humphrey, PractRand, "Small Fast Counting RNG", version 0.94, 2018.
.. [2] Hörmann, "The transformed rejection method for generating Poisson random variables", Insurance:
   Mathematics and Economics 12(1), 1993, doi:10.1016/0167-6687(93)90997-4.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.numerics.arrays import IntArray

WORD = 0xFFFFFFFF
# From this mean on the rejection is valid, and faster than one uniform number per event.
REJECTION = 10.0
# Larger means count as this one, so that no logarithm of a factorial overflows.
MOST = 1e300


def bits(noise: IntArray) -> int:
    """Return 32 random bits (sfc32)."""
    a, b, c, counter = noise[0], noise[1], noise[2], noise[3]
    drawn: int = (a + b + counter) & WORD
    noise[3] = (counter + 1) & WORD
    noise[0] = b ^ (b >> 9)
    noise[1] = (c + (c << 3)) & WORD
    noise[2] = (((c << 21) | (c >> 11)) + drawn) & WORD
    return drawn


def uniform(noise: IntArray) -> float:
    """Return a multiple of 2^-53 in [0, 1)."""
    high = bits(noise) >> 5
    return (high * 67108864.0 + (bits(noise) >> 6)) * 1.1102230246251565e-16


def exponential(noise: IntArray) -> float:
    """Return an exponential number of mean 1."""
    return -math.log(1.0 - uniform(noise))


def poisson(noise: IntArray, mean: float) -> float:
    """Return a Poisson number."""
    if mean < REJECTION:
        events, product, stop = -1.0, 1.0, math.exp(-mean)
        while True:
            events += 1.0
            product *= 1.0 - uniform(noise)
            if product <= stop:
                return events
    mean = min(mean, MOST)
    # The letters and numbers are those of algorithm PTRS.
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    log_alpha = math.log(1.1239 + 1.1328 / (b - 3.4))
    fast = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = uniform(noise) - 0.5
        v = 1.0 - uniform(noise)
        side = 0.5 - abs(u)
        if side <= 0.0:
            continue
        # numpy's floor is a float however large the number is; compiled, that of `math` is an integer.
        k = float(np.floor((2.0 * a / side + b) * u + mean + 0.43))
        if k < 0.0:
            continue
        if side >= 0.07 and v <= fast:
            return k
        if side < 0.013 and v > side:
            continue
        bound = k * math.log(mean) - mean - math.lgamma(k + 1.0)
        if math.log(v) + log_alpha - math.log(a / (side * side) + b) <= bound:
            return k
