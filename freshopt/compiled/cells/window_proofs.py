"""Cost, marginal value and reach of one source with a stale-while-revalidate window.

With v = e^{−u} the costs are those of `freshopt.modelling.request_cell`, whose rises R are in
`freshopt.numerics.request_windows`:

    delay     (1 − ρ/ζ)(u/2 + κ(1 − e^{−x})) + (ρ/ζ)κ·P(2, x)
    binary    (1 − ρ/ζ)(1 − (1 − v)/u) + (ρ/ζ)((1 − v)(1 − e^{−x}) + v·(κ/(1 + κ))(P(2, x) + xe^{−x}·m(y)))

with m(y) = 1 − (1 − e^{−y})/y. **Reach**: Φ is that without a window times b, and a constant more
(`freshopt.compiled.cells.window_functions`), so that the reach is that of `request_proofs` at |m − ν|/b. Only
its farthest rate is of the price itself, and none is said here: no rate is above ζ. Harmonic staleness and
age are derived in `freshopt.compiled.cells.window_harmonic` and `window_age`.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.cells.request_proofs import ROUNDED, reach_of
from freshopt.compiled.cells.request_tables import index_and_age, index_and_ein
from freshopt.compiled.cells.window_age import bend_of, served_aged, value_and_slope
from freshopt.compiled.cells.window_functions import MANY_REQUESTS
from freshopt.compiled.cells.window_harmonic import BEND, LARGEST, in_window, inside, served_stale
from freshopt.compiled.proof_functions import Excess, ProofCell, Values
from freshopt.compiled.proof_tables import fallen
from freshopt.numerics.vector_math import fast_exp

# Sums of what is looked up twice, and of rules of ten nodes and more.
SUMMED = 2.0 * ROUNDED


def window_delay(rate: float, w: float, d: float, asked: float, window: float) -> Values:
    """Return the mean delay that requests see and its marginal value.

    Examples
    --------
    >>> [round(float(x), 6) for x in window_delay(1.0, 3.0, 1.0, 2.0, 0.0)[:3]]
    [0.125, 0.0, 1.125]
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    u, k, x = d / rate * within, d / asked, asked * window
    x = x if x < MANY_REQUESTS else MANY_REQUESTS
    fall, moment, _, _ = fallen(x)
    cost = within * (0.5 * u + k * fall) + k * (rate / asked * moment)
    marginal = (w / rate) * within * (0.5 * u + k) + (w / asked) * (k * (x * fast_exp(-x)))
    return cost if rate > 0.0 else np.inf, 0.0, marginal, ROUNDED


def window_binary(rate: float, w: float, d: float, asked: float, window: float) -> Values:
    """Return shares of requests, stale and fresh, and the marginal value.

    Examples
    --------
    >>> [round(float(x), 6) for x in window_binary(1.0, 3.0, 1.0, 2.0, 0.0)[:3]]
    [0.106531, 0.893469, 0.860816]
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    k, x = d / asked, asked * window
    x = x if x < MANY_REQUESTS else MANY_REQUESTS
    u = d / rate * within
    stale, index, mean, share = fallen(u)
    expired, moment, _, _ = fallen(x)
    changed, _, late, _ = fallen(d * window)
    left, fetched = fast_exp(-x), rate / asked if rate < asked else 1.0
    load = k * left
    bend, fresh = bent(k, load * (1.0 - changed)), fast_exp(-u)
    risen = k / (1.0 + k) * (moment + x * left * late)
    cost = within * mean + fetched * (stale * expired + fresh * risen)
    # 1 − e^{−x−y}, of which each sees a part.
    kept = fresh * ((expired + left * changed) / (1.0 + k))
    gain = within * share + fetched * (left + kept)
    return cost, gain, (w / d) * (load * changed + bend * (index + k * stale)), ROUNDED


def window_harmonic(rate: float, w: float, d: float, asked: float, window: float) -> Values:
    """Return the harmonic cost of a request and its marginal value.

    Examples
    --------
    >>> [round(float(x), 6) for x in window_harmonic(1.0, 3.0, 1.0, 2.0, 0.0)[:3]]
    [0.11539, 0.0, 0.985355]
    """
    within, u, ratio, x, y = in_window_of(rate, d, asked, window)
    k = inside(ratio)
    index, ein = index_and_ein(u)
    mean = ein - index / u if u > 0.0 else 0.0
    finite = u if u < LARGEST else LARGEST
    left = fast_exp(-x)
    slope = in_window(finite, k, left, y)
    cost = within * mean + (rate / asked if rate < asked else 1.0) * served_stale(finite, k, x, y, slope)
    late = finite * slope + left * index_and_ein(finite + y)[1]
    return cost if rate > 0.0 else np.inf, 0.0, (w / d) * (index + k * late), SUMMED


def window_age(rate: float, w: float, d: float, asked: float, window: float) -> Values:
    """Return the mean age that requests see and its marginal value.

    Examples
    --------
    >>> [round(float(x), 6) for x in window_age(0.5, 3.0, 1.0, 1.0, 0.0)[:3]]
    [0.06606, 0.0, 1.810915]
    """
    within, u, k, x, y = in_window_of(rate, d, asked, window)
    index, index_of_age = index_and_age(u)
    mean = index - index_of_age / u if u > 0.0 else 0.0
    fetched = rate / asked if rate < asked else 1.0
    cost = (within * mean + fetched * served_aged(u, k, x, y)) / d
    first = k * (fast_exp(-x) * index_and_age(y)[0])
    marginal = (w / d) * ((first + value_and_slope(u, k, bend_of(k, x, y))[0]) / d)
    return cost if rate > 0.0 else np.inf, 0.0, marginal, ROUNDED


def reach_of_window_delay(
    rate: float, w: float, excess: Excess, d: float, _asked: float, _window: float
) -> float:
    """Return the reach of accumulated delay, with a window."""
    off, _, _, _ = excess
    return reach_of(rate, (off * (rate / w)) * (rate / d), True, np.inf, excess)


def reach_of_window_binary(
    rate: float, w: float, excess: Excess, d: float, asked: float, window: float
) -> float:
    """Return the reach of binary freshness, with a window."""
    off, _, _, _ = excess
    within = (asked - rate) / asked if rate < asked else 0.0
    k, x = d / asked, asked * window
    load = k * fast_exp(-(x if x < MANY_REQUESTS else MANY_REQUESTS))
    bend = bent(k, load * (1.0 - fallen(d * window)[0]))
    apart = off / (bend * fast_exp(-(d / rate * within)))
    x = (apart * (rate / w)) * (rate / d)
    near = apart * (d / w) <= 0.5 * (1.0 + d / rate)
    return reach_of(rate, x, near, np.inf, excess)


def reach_of_window_harmonic(
    rate: float, w: float, excess: Excess, d: float, asked: float, window: float
) -> float:
    """Return the reach of harmonic staleness, with a window."""
    off, _, _, _ = excess
    _, u, k, x, _ = in_window_of(rate, d, asked, window)
    # 1/S is less.
    mean = 1.0 / (1.0 + (u if u < LARGEST else LARGEST) + inside(k) * fallen(x)[0])
    apart = BEND * (off / mean) * (rate / w)
    return reach_of(rate, apart * (rate / d), apart <= 1.0 + u, np.inf, excess)


def reach_of_window_age(
    rate: float, w: float, excess: Excess, d: float, asked: float, window: float
) -> float:
    """Return the reach of age, with a window."""
    off, _, rises, falls = excess
    within, u, k, x, y = in_window_of(rate, d, asked, window)
    value, slope = value_and_slope(u, k, bend_of(k, x, y))
    apart = (off * (d / w)) * d
    share = within * (apart / value if apart < value else 1.0)
    up = rate * (share / (1.0 - share)) if rises else 0.0
    less = ((off / slope) * (rate / w)) * rate
    down = rate * (less if less < 1.0 else 1.0) if falls else 0.0
    return down if down > up else up


def in_window_of(
    rate: float, d: float, asked: float, window: float
) -> tuple[float, float, float, float, float]:
    """Return 1 − ρ/ζ, u, κ, x and y."""
    within = (asked - rate) / asked if rate < asked else 0.0
    x, y = asked * window, d * window
    most, largest = (x if x < MANY_REQUESTS else MANY_REQUESTS), (y if y < LARGEST else LARGEST)
    return within, d / rate * within, d / asked, most, largest


def bent(k: float, load: float) -> float:
    """Return b = (1 + κe^{−x−y})/(1 + κ)."""
    return (1.0 + load) / (1.0 + k)


WINDOW_DELAY = ProofCell(window_delay, reach_of_window_delay)
WINDOW_BINARY = ProofCell(window_binary, reach_of_window_binary)
WINDOW_HARMONIC = ProofCell(window_harmonic, reach_of_window_harmonic)
WINDOW_AGE = ProofCell(window_age, reach_of_window_age)
