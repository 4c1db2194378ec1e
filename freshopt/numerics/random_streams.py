"""Keyed, order-independent random streams.

A random number depends on what it is for, not on when it is drawn: the exponential number of event j of
source k is a hash of (seed, k, j). So a source changes at the same times whoever observes it, in whatever
order and batches, and two policies that run on one seed meet the same changes (common random numbers). The
hash is SplitMix64's finaliser [1]_, applied twice under two keys per source, so that two sources' numbers do
not become one sequence where their counters happen to meet.

The logarithm is written out in elementary operations, each of them exactly rounded: compiled loops and NumPy
then agree to the last bit, which their own libraries' logarithms do not.

Cost: three multiplications of integers twice, one division and ten multiplications; 10 ns.

References
----------
.. [1] Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
   doi:10.1145/2660193.2660195.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, IntArray

Words: TypeAlias = npt.NDArray[np.uint64]
# An array here, a number in compiled loops.
Data: TypeAlias = Any

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_OTHER = np.uint64(0xD1B54A32D192ED03)
_S12, _S27, _S30, _S31 = np.uint64(12), np.uint64(27), np.uint64(30), np.uint64(31)

_ROOT_HALF = 0.7071067811865476
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Remez polynomial of (log(1+f) − f + f²/2)/s in s², s = f/(2+f), |f| ≤ √2 − 1: error below 2^-58
_L1, _L2, _L3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
_L4, _L5, _L6, _L7 = (
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def mix(word: Data) -> Data:
    """Return SplitMix64's finaliser of 64-bit words."""
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


def stream(seed: Data, source: Data) -> Data:
    """Return the key of a source's random stream."""
    return mix(seed + mix((source + _OTHER) * _GOLDEN))


def word(key: Data, number: Data) -> Data:
    """Return the number-th 64 random bits of a stream."""
    return mix(mix(key + number * _GOLDEN) ^ mix(key ^ _OTHER))


def unit(bits: Data) -> Data:
    """Return a number in (0, 1), an odd multiple of 2^-53."""
    return ((bits >> _S12) + 0.5) * 2.220446049250313e-16


def minus_log(mantissa: Data, exponent: Data) -> Data:
    """Return −log(mantissa·2^exponent) for a mantissa in [½, 1)."""
    low = mantissa < _ROOT_HALF
    power = exponent - 1.0 * low
    f = mantissa * (1.0 + 1.0 * low) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    r = z * (_L1 + w * (_L3 + w * (_L5 + w * _L7))) + w * (_L2 + w * (_L4 + w * _L6))
    half = 0.5 * f * f
    return -(power * _LN2_HIGH - ((half - (s * (half + r) + power * _LN2_LOW)) - f))


def exponentials(seed: int, source: IntArray, number: IntArray) -> Array:
    """Return the exponential random numbers (mean 1) of events.

    - `source` (m,)
    - `number` (m,): Which of the source's numbers, 0 or more.

    Examples
    --------
    >>> import numpy as np
    >>> drawn = exponentials(1, np.zeros(4, dtype=np.int64), np.arange(4))
    >>> same = exponentials(1, np.zeros(2, dtype=np.int64), np.array([3, 1]))
    >>> bool((same == drawn[[3, 1]]).all())
    True
    """
    return minus_log(*np.frexp(uniforms(seed, source, number)))  # type: ignore[no-any-return]


def uniforms(seed: int, source: IntArray, number: IntArray) -> Array:
    """Return uniform random numbers in (0, 1), keyed like `exponentials`."""
    keys = stream(np.full(1, seed, dtype=np.uint64), source.astype(np.uint64))
    return unit(word(keys, number.astype(np.uint64)))  # type: ignore[no-any-return]
