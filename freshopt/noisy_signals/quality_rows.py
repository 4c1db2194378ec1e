"""Rows of a quality's table: V between thresholds, with a proved error.

For one recall and precision all sources are one curve: of V(η) in η, with V' = ψ
(`freshopt.noisy_signals.expected_costs`). A row is the polynomial of degree five that has V, ψ and ψ' of both
its ends η₀ and η₁ = η₀ + h. Between them it is wrong by at most

    |V̂ − V| ≤ h⁶M/46080,    M = max |V⁽⁶⁾| = max |ψ⁽⁵⁾|,

which is Hermite's remainder.

**M is bounded, not measured.** ψ = Σ_n R_n(gτ_n)/g with c(τ_n, n) = η, so ψ⁽⁵⁾ = Σ_n D⁴(f_n r), where
f_n = e^{−gs}(gs)ⁿ/n!, r = 1/c'(s) and D = r·d/ds, at s = τ_n, which rises with η from s₀ to s₁. There
|f_n⁽ʲ⁾| ≤ gʲ Σ_i (j over i)·max f_{n−i}, and f_n has one maximum; all derivatives of c are largest at s₀ and
r at s₁, as c' is a sum of falling exponentials. Products of such bounds bound D⁴. Where n signals begin to
end cycles, at η = c(0, n), ψ⁽ⁿ⁺¹⁾ jumps: for n < 6 a row ends there.

Rows are as long as a tolerance of V allows: some 50-150 for prices from 1e-5 to 1. Thresholds are added, not
searched for: 1-10 µs each.

**Far rows.** Where cost is linear, c = b(as + pn), a cycle ends when s and signals have brought η/b, and by
Wald's identity ψ = η/b + o, where the mean overshoot o is in [0, p]. o(u) is the mean of o where u − as − pN
comes into a stretch of length p (strong Markov property), so that it stays within the range R of o on any
such stretch before u. With ao'(u) = g(o(u − p) − o(u)), samples Δ apart bound R of stretch k by their own
range and ½(gΔ/a)² times R of stretch k − 2. Once R is below rounding, V is a parabola, and rows double η.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.noisy_signals.cycle_terms import poisson_density
from freshopt.noisy_signals.expected_costs import (
    Cost,
    CostRow,
    cost_row,
    cost_slope,
    expected_cost,
    largest_cost,
    moments,
    signals_below,
    threshold,
    time_until,
)
from freshopt.numerics.arrays import Array, IntArray

# Columns of a row: η₀, h, six coefficients in t = (η − η₀)/h, ψ(η₀), the error of V, and how concave V̂ is.
ETA, WIDTH, VALUE, LENGTH, OFF, CONCAVE, COLUMNS = 0, 1, 2, 8, 9, 10, 11
# Signals up to which a row ends where they begin to end cycles.
KINKS = 6.0
# Values at ends are right to less than this, relatively.
ROUNDED = 1e-12
# Beyond its mode a density falls so fast that what is left out of M is less than 1 % of it.
NEGLIGIBLE, MARGIN = 1e-9, 1.01
# τ_n that are kept; changes in a cycle from which on more error is allowed, and how much more.
SIGNALS, LONG, LOOSE = 256, 4.0, 2.0
# Of rows: shorter ones are given up, and the next is so much longer at most.
SHORTEST, LONGER, SHORTER, SAFE = 1e-7, 2.0, 0.2, 0.9
# Stretches of which overshoots are sampled, at gΔ/a; η from which on that is tried; recall up to which it is;
# and R that is rounding, beside η.
STRETCHES, APART, FIRST, OFTEN, SETTLED = 18, 0.25, 20.0, 0.95, 4e-12
BINOMIAL = np.array([[1.0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 2, 1, 0, 0], [1, 3, 3, 1, 0], [1, 4, 6, 4, 1]])


def peak(n: float, low: float, high: float) -> float:
    """Return the largest e^{−x}xⁿ/n! between two x."""
    return poisson_density(n, min(max(n, low), high)) if n >= 0.0 else 0.0


def bound_of(n: float, low: float, high: float, q: CostRow, memory: Array) -> float:
    """Return a bound on |D⁴(f_n r)| between two times."""
    c, f, r, h = memory[0], memory[1], memory[2], memory[3]
    c[:], a, g = 0.0, q.silent, q.signals
    c[1] = q.linear * a
    for j in range(len(q.nodes)):
        z = a * q.nodes[j]
        term = q.weights[j] * math.exp(-z * low - (n * q.losses[j] if n > 0.0 else 0.0))
        for i in range(1, 6):
            term *= z
            c[i] += term
    r[0] = 1.0 / cost_slope(high, n, q)
    for j in range(5):
        if j > 0:
            r[j] = 0.0
            for i in range(1, j + 1):
                r[j] += BINOMIAL[j, i] * c[i + 1] * r[j - i] * r[0]
        f[j] = 0.0
        for i in range(j + 1):
            f[j] += BINOMIAL[j, i] * peak(n - i, g * low, g * high)
        f[j] *= g**j
    for j in range(5):
        h[j] = 0.0
        for i in range(j + 1):
            h[j] += BINOMIAL[j, i] * f[i] * r[j - i]
    for left in range(4, 0, -1):
        # D = r·d/ds of what h bounds the derivatives of.
        for j in range(left):
            c[j] = 0.0
            for i in range(j + 1):
                c[j] += BINOMIAL[j, i] * r[i] * h[j - i + 1]
        h[:left] = c[:left]
    total: float = h[0]
    return total


def fifth_derivative(low: float, high: float, q: CostRow, memory: Array, times: Array) -> float:
    """Return a bound on |ψ⁽⁵⁾| between two thresholds.

    `times` has τ_n of the first, where it is known, and gets those of the second.
    """
    n, total, before, after = signals_below(low, True, q), 0.0, 0.0, 0.0
    times[1] = math.nan
    while expected_cost(0.0, n, q) < high:
        k, kept = int(n), n < times.shape[1]
        before = times[0, k] if kept else math.nan
        if not before >= 0.0:
            before = time_until(low, n, after, q) if expected_cost(0.0, n, q) < low else 0.0
        after = time_until(high, n, before if before > 0.0 else after, q)
        if kept:
            times[1, k] = after
        more = bound_of(n, before * (1.0 - ROUNDED), after * (1.0 + ROUNDED), q, memory)
        total += more
        if n > q.signals * after + KINKS and more < NEGLIGIBLE * total:
            break
        n += 1.0
    return MARGIN * total


def write_row(row: Array, left: Array, right: Array, bend: float) -> None:
    """Write a row between two ends: η, V, ψ and ψ'."""
    h = right[0] - left[0]
    slope, turn = h * left[2], h * h * left[3]
    a = right[1] - left[1] - slope - 0.5 * turn
    b, c = h * right[2] - slope - turn, h * h * right[3] - turn
    row[ETA], row[WIDTH], row[VALUE], row[3], row[4] = left[0], h, left[1], slope, 0.5 * turn
    row[5], row[6], row[7] = (
        10.0 * a - 4.0 * b + 0.5 * c,
        -15.0 * a + 7.0 * b - c,
        6.0 * a - 3.0 * b + 0.5 * c,
    )
    row[LENGTH] = left[2]
    row[OFF] = h**6 / 46080.0 * bend + ROUNDED * right[1]
    # V̂'' in t is no less than the least of its Bernstein coefficients.
    first, rise, third = 2.0 * row[4], 2.0 * row[5], 4.0 * row[6]
    last = first + 3.0 * rise + 3.0 * third + 20.0 * row[7]
    row[CONCAVE] = max(0.0, -min(first, first + rise, first + 2.0 * rise + third, last))


def write_end(end: Array, eta: float, q: CostRow) -> None:
    """Write η, V, ψ and ψ' of a threshold."""
    found = moments(eta, q)
    end[0], end[1], end[2], end[3] = eta, found.value, found.length, found.slope


def rows_of(
    recall: float, precision: float, low: float, high: float, tolerance: float, cost: Cost, out: Array
) -> int:
    """Write rows for values V from low to high; return how many.

    One more has the end of the last. They may end before `high` where there is no room for more.
    """
    memory, ends, times = np.empty((4, 6)), np.empty((2, 4)), np.full((2, SIGNALS), np.nan)
    q = cost_row(recall, precision, 1.5 * high + 1.0, cost)
    top = 0.999 * largest_cost(q)
    eta = threshold(low, True, q)[0] * (1.0 - SHORTEST)
    left, right, count, n = ends[0], ends[1], 0, 1.0
    write_end(left, eta, q)
    step, kink = 0.1 * eta, -1.0
    far = FIRST * max(q.linear, eta) if len(q.nodes) == 0 and recall <= OFTEN else math.inf
    while left[1] < high and count < len(out) - 1:
        while n < KINKS and kink <= left[0]:
            kink, n = expected_cost(0.0, n, q), n + 1.0
        if kink <= left[0]:
            kink = math.inf
        # Rows near a limit of all costs, as 1, come closer to it step by step.
        end = min(left[0] + step, kink, 0.5 * (left[0] + top))
        if not end > left[0] * (1.0 + SHORTEST):
            if end < kink:
                break
            end = kink
        bend = fifth_derivative(left[0], end, q, memory, times)
        allowed = tolerance * left[1] * min(LOOSE, max(1.0, left[2] / LONG))
        wrong = (end - left[0]) ** 6 / 46080.0 * bend / allowed
        factor = LONGER if wrong == 0.0 else SAFE * wrong ** (-1.0 / 6.0)
        if not wrong <= 1.0:
            step = (end - left[0]) * max(SHORTER, factor)
            continue
        write_end(right, end, q)
        write_row(out[count], left, right, bend)
        step, count = (
            max(step, (end - left[0]) * min(LONGER, factor))
            if end == kink
            else (end - left[0]) * min(LONGER, factor),
            count + 1,
        )
        left[:], times[0] = right, times[1]
        q = cost_row(recall, precision, 4.0 * left[2] + 1.0, cost)
        if left[0] >= far:
            far *= 2.0
            out[count, ETA], out[count, VALUE], out[count, LENGTH] = left[0], left[1], left[2]
            reached = far_rows(count, high, q, out)
            if reached > count:
                return reached
    out[count] = 0.0
    out[count, ETA], out[count, VALUE], out[count, LENGTH] = left[0], left[1], left[2]
    return count


def overshoot(eta: float, q: CostRow) -> tuple[float, float]:
    """Return middle and range of later overshoots, of linear costs."""
    ratio, precision = q.signals / q.silent, q.precision
    many = math.ceil(precision * ratio / APART)
    factor = 0.5 * (precision / many * ratio) ** 2
    before, last, middle = precision, precision, 0.0
    for k in range(STRETCHES - 1, -1, -1):
        low, high = math.inf, 0.0
        for i in range(many + 1):
            at = eta - q.linear * precision * (k + i / many)
            found = moments(at, q).length - at / q.linear
            low, high = min(low, found), max(high, found)
        before, last, middle = last, min(last, high - low + factor * before), 0.5 * (low + high)
    return middle, last


def far_rows(count: int, high: float, q: CostRow, out: Array) -> int:
    """Write rows that double η up to a value; return their number.

    None are added before overshoots are settled. They go on beyond the η up to which cycles are summed.
    """
    eta, value = out[count, ETA], out[count, VALUE]
    middle, off = overshoot(eta, q)
    if not off <= SETTLED * eta / q.linear:
        return count
    begin = eta
    while value < high and count < len(out) - 1:
        row, h = out[count], eta
        slope, turn = h * (eta / q.linear + middle), 0.5 * h * h / q.linear
        row[:] = 0.0
        row[ETA], row[WIDTH], row[VALUE], row[3], row[4] = eta, h, value, slope, turn
        row[LENGTH] = eta / q.linear + middle
        eta, value, count = eta + h, value + slope + turn, count + 1
        row[OFF] = off * (eta - begin) + ROUNDED * value
        out[count, ETA], out[count, VALUE], out[count, LENGTH] = eta, value, eta / q.linear + middle
    return count


def tables(
    begin: int,
    end: int,
    recall: Array,
    precision: Array,
    low: Array,
    high: Array,
    tolerance: float,
    cost: Cost,
    out: Array,
    counts: IntArray,
) -> None:
    """Write the rows of qualities, and their numbers."""
    for k in range(begin, end):
        counts[k] = rows_of(recall[k], precision[k], low[k], high[k], tolerance, cost, out[k])
