"""Renewal cycle with noisy signals, for any cost of missed changes.

Let c(m) be what a copy costs that missed m changes, e.g. [m ≥ 1], H(m) or m. After a time s with n signals
the number missed is M = Poisson(as) + Binomial(n, p), whenever the signals came, a the rate of changes that
have no signal and p the precision; so that the copy costs c(s, n) = E c(M) now, which no signal lowers. At
the price ν the least of E ∫₀ᵀ (c − η) dt + ν over all stopping times T is then reached path by path: by
crawling as soon as c(s, n) ≥ η. For binary freshness that is the threshold on the probability of being stale
(`freshopt.noisy_signals.renewal_cycle`). With τ_n the time at which c(s, n) = η and g the rate of signals,

    ψ(η) = E T = Σ_n R_n(gτ_n)/g,    R_n(x) = P(Poisson(x) > n),
    V(η) = E ∫₀ᵀ (η − c) dt = ∫₀^η ψ = Σ_n ∫₀^{τ_n} R_n(gt)·∂c/∂t dt/g.

A rate ρ is the threshold with ψ(η) = 1/ρ; it costs J = η − ρV, and V is its marginal value: J is convex, as V
rises with η. At a jump of ψ, where all changes are announced, two thresholds alternate and J is linear.

An objective is a row: c(m) = L·m + Σ_j W_j(1 − (1 − y_j)^m), with

========  =====================================================================================
binary    L = 0, one node y = 1 of weight 1
delay     L = 1, no nodes
harmonic  L = 0, Gauss nodes of ∫₀¹ (1 − (1 − y)^m)/y dy: H(m) to 1e-14 up to m = 100, 1e-8 to 1000
========  =====================================================================================

All terms are positive. Time is in units of 1/Δ. Cost: some 3 µs for every number of signals that a cycle may
have, 10-100 µs a source and price; precisions below `LEAST_PRECISION` are refused, as cycles would have
thousands of signals of negligible information.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.noisy_signals.cycle_terms import NOTHING, growth, poisson_density, surely_over, tail_series
from freshopt.noisy_signals.expected_age import Moments, age_moments, near_age
from freshopt.numerics.arrays import Array, read_only

LEAST_PRECISION = 0.01
# Nodes of a panel, and how many standard errors of a Poisson time it covers.
PANEL_NODES, PANEL_WEIGHTS = (values for values in np.polynomial.legendre.leggauss(10))
PANEL = 2.5
# Newton's steps take five, bisection where they fail 60.
STEPS = 100
# Thresholds below which differences would lose more than five bits.
SMALL = 0.05
ULP = 4e-16
# A step's square is below an ulp.
CLOSE = 1e-8
# Nats that one step moves a threshold at most.
LONGEST = 2.0
# Longer cycles are no longer summed: their V goes on as a power of ψ.
MOST_SIGNALS, MOST_CHANGES = 4000.0, 10_000.0


# Plain Gauss nodes for so many changes a cycle, to 3e-15 of ∫₀¹ (1 − e^{−uy})/y dy; nodes y = v⁴ beyond.
FEW_CHANGES, FEW_NODES = (3.0, 10.0, 30.0), (8, 12, 20)
MANY_NODES, MANY_WEIGHTS = (values for values in np.polynomial.legendre.leggauss(32))


def harmonic_nodes() -> tuple[Array, Array]:
    """Return nodes and weights of ∫₀¹ f(y)/y dy, set after set."""
    nodes, weights = list[Array](), list[Array]()
    for many in FEW_NODES:
        points, own = np.polynomial.legendre.leggauss(many)
        y = 0.5 * (points + 1.0)
        nodes.append(y)
        weights.append(0.5 * own / y)
    v = 0.5 * (MANY_NODES + 1.0)
    nodes.append(v**4)
    weights.append(2.0 * MANY_WEIGHTS / v)
    return read_only(np.concatenate(nodes)), read_only(np.concatenate(weights))


class Cost(NamedTuple):
    """Cost of changes missed (L, y and W, read-only), or of age."""

    linear: float
    nodes: Array
    weights: Array
    of_age: bool = False


class CostRow(NamedTuple):
    """Cost at one source.

    a, p, g, L, y, W, −log(1 − p·y), and whether it is of age.
    """

    silent: float
    precision: float
    signals: float
    linear: float
    nodes: Array
    weights: Array
    losses: Array
    of_age: bool


def cost_row(recall: float, precision: float, changes: float, cost: Cost) -> CostRow:
    """Return the cost at a source of given quality.

    Its nodes are those for so many changes a cycle.
    """
    nodes, weights = cost.nodes, cost.weights
    if len(nodes) > len(MANY_NODES):
        first = 0
        for j in range(len(FEW_CHANGES)):
            if changes <= FEW_CHANGES[j]:
                nodes, weights = nodes[first : first + FEW_NODES[j]], weights[first : first + FEW_NODES[j]]
                break
            first += FEW_NODES[j]
        if changes > FEW_CHANGES[-1]:
            nodes, weights = nodes[first:], weights[first:]
    losses = np.empty(len(nodes))
    for j in range(len(nodes)):
        share = precision * nodes[j]
        losses[j] = -math.log1p(-share) if share < 1.0 else math.inf
    return CostRow(
        1.0 - recall, precision, recall / precision, cost.linear, nodes, weights, losses, cost.of_age
    )


def expected_cost(s: float, n: float, q: CostRow) -> float:
    """Return c(s, n)."""
    total = q.linear * (q.silent * s + q.precision * n)
    for j in range(len(q.nodes)):
        loss = q.silent * q.nodes[j] * s + (n * q.losses[j] if n > 0.0 else 0.0)
        total -= q.weights[j] * math.expm1(-loss)
    return total


def cost_slope(s: float, n: float, q: CostRow) -> float:
    """Return ∂c/∂s."""
    total = q.linear
    for j in range(len(q.nodes)):
        loss = q.silent * q.nodes[j] * s + (n * q.losses[j] if n > 0.0 else 0.0)
        total += q.weights[j] * q.nodes[j] * math.exp(-loss)
    return q.silent * total


def time_until(eta: float, n: float, start: float, q: CostRow) -> float:
    """Return the s ≥ 0 with c(s, n) = η.

    c is concave: Newton's steps stay below the root once they are there.
    """
    s, low, high = start, 0.0, math.inf
    for _ in range(STEPS):
        missing, slope = eta - q.linear * (q.silent * s + q.precision * n), q.linear
        for j in range(len(q.nodes)):
            loss = q.silent * q.nodes[j] * s + (n * q.losses[j] if n > 0.0 else 0.0)
            gone = math.expm1(-loss)
            missing += q.weights[j] * gone
            slope += q.weights[j] * q.nodes[j] * (1.0 + gone)
        slope *= q.silent
        # Where s is short beside what the signals cost, rounding decides its last digits.
        if abs(missing) <= 0.25 * ULP * eta:
            return s
        low, high = (s, high) if missing > 0.0 else (low, s)
        onward = s + missing / slope if slope > 0.0 else math.inf
        if not low <= onward < high:
            onward = 0.5 * (low + high) if high < math.inf else 2.0 * s + 1.0
        if abs(onward - s) <= ULP * onward or low >= high * (1.0 - ULP):
            return onward
        s = onward
    return s


def before_end(n: float, end: float, eta: float, density: float, reached: float, q: CostRow) -> float:
    """Return what n signals add to V.

    ∫₀^τ e^{−gt}(gt)ⁿ/n!·(η − c(t, n)) dt for τ = end, where c is η, is
    ηR_n/g less terms as of thinned signals; where that is small, ∫ R_n·∂c/∂t/g of positive terms.
    """
    a, g, total = q.silent, q.signals, 0.0
    if eta > SMALL:
        lasting = reached / g
        cost = 0.0
        if q.linear > 0.0:
            further = tail_series(n + 1.0, g * end, density * g * end / (n + 1.0))
            cost = q.linear * (q.precision * n * lasting + a * (n + 1.0) * further / (g * g))
        for j in range(len(q.nodes)):
            y = q.nodes[j]
            decay = a * y * end
            kept = math.exp(-n * q.losses[j]) if n > 0.0 else 1.0
            if kept > NOTHING:
                slower = math.exp(-n * math.log1p(a * y / g)) / (g + a * y)
                own = density * math.exp(-decay + n * math.log1p(a * y / g))
                kept *= slower * tail_series(n, g * end + decay, own)
            cost += q.weights[j] * (lasting - kept)
        return eta * lasting - cost
    t = max(0.0, min(end, (n - 9.5 * math.sqrt(n)) / g))
    while t < end:
        # c bends on the scale of 1/a + t.
        half = 0.5 * min(PANEL * math.sqrt(n + 1.0) / g, 1.0 / a + t, end - t)
        for k in range(len(PANEL_NODES)):
            at = t + half * (1.0 + PANEL_NODES[k])
            before = tail_series(n, g * at, poisson_density(n, g * at))
            total += half * PANEL_WEIGHTS[k] * before * cost_slope(at, n, q)
        t = end if t + 2.0 * half >= end * (1.0 - ULP) else t + 2.0 * half
    return total / g


def waited_for(many: float, eta: float, q: CostRow) -> tuple[float, float]:
    """Return length and V of the first numbers of signals.

    So many surely come. In the time with n signals E (1 − y)^M = (g/(g + ay))·((1 − py)g/(g + ay))ⁿ. Before
    the first one that is 1 but for little, which its sum keeps to all digits.
    """
    a, g = q.silent, q.signals
    cost = q.linear * many * (0.5 * q.precision * (many - 1.0) + 0.5 * a / g * (many + 1.0))
    for j in range(len(q.nodes)):
        y = q.nodes[j]
        decay = many * (q.losses[j] + math.log1p(a * y / g)) if many > 0.0 else 0.0
        ended = -math.expm1(-decay)
        later = many - (g + a * y) * ended / y if many > 1.0 else 0.0
        cost += q.weights[j] * (a * ended + later)
    return many / g, (eta * many - cost) / g


def signals_below(eta: float, surely: bool, q: CostRow) -> float:
    """Return how many n have c(0, n) < η.

    Or, surely, c(s, n) < η when the next signal comes.
    """
    low, high, step = 0.0, math.inf, 1.0
    while high - low > 1.0:
        n = low + step if high == math.inf else math.floor(0.5 * (low + high))
        s = surely_over(n - 1.0) / q.signals if surely else 0.0
        enough = expected_cost(s, n - 1.0, q) < eta
        low, high, step = (n, high, 2.0 * step) if enough else (low, n, step)
    return low


def moments(eta: float, q: CostRow) -> Moments:
    """Return the moments of a cycle that ends at η."""
    g, surely = q.signals, q.silent > 0.0
    if q.of_age:
        return age_moments(eta, q.silent, g, q.precision)
    n = signals_below(eta, surely, q)
    length, value = waited_for(n, eta, q)
    slope, tau = 0.0, 0.0
    while surely and expected_cost(0.0, n, q) < eta:
        tau = time_until(eta, n, tau, q)
        density = poisson_density(n, g * tau)
        reached = tail_series(n, g * tau, density)
        length += reached / g
        value += before_end(n, tau, eta, density, reached, q)
        slope += density / cost_slope(tau, n, q)
        if reached < NOTHING * g * length:
            break
        n += 1.0
    return Moments(length, value, slope)


def largest_cost(q: CostRow) -> float:
    """Return the η up to which cycles are summed."""
    if q.of_age:
        return math.inf
    until = min(MOST_CHANGES, MOST_SIGNALS / q.signals)
    return expected_cost(until, q.signals * until, q)


def threshold(target: float, of_value: bool, q: CostRow) -> tuple[float, Moments]:
    """Return the η with V or ψ on target, and moments.

    It is at most `largest_cost`.
    """
    top = largest_cost(q)
    eta, low, high = min(math.sqrt(2.0 * target) if of_value else target, 0.5 * top), 0.0, top
    if q.of_age:
        eta = near_age(target, of_value, q.silent, q.signals, q.precision)
    found = Moments(0.0, 0.0, 0.0)
    for _ in range(STEPS):
        found = moments(eta, q)
        here, slope = (found.value, found.length) if of_value else (found.length, found.slope)
        low, high = (low, eta) if here > target else (eta, high)
        if here == target or low >= high * (1.0 - ULP):
            break
        missing = math.log(target / here) if here > 0.0 else math.inf
        step = missing * here / (eta * slope) if slope > 0.0 else math.copysign(1.0, missing)
        move = eta * math.expm1(min(LONGEST, max(-LONGEST, step)))
        # Where nearly all changes are announced ψ all but jumps: not the step alone has to be small.
        if abs(step) < CLOSE and abs(missing) < CLOSE:
            length, value = found.length + move * found.slope, found.value + move * found.length
            return eta + move, Moments(length, value, found.slope)
        eta = eta + move if low < eta + move < high else 0.5 * (low + high)
    return eta, found


def elasticity(found: Moments) -> float:
    """Return d log V/d log ψ, which longer cycles keep."""
    return found.length * found.length / (found.value * found.slope) if found.slope > 0.0 else 2.0


def cost_and_value(rate: float, recall: float, precision: float, cost: Cost) -> tuple[float, float]:
    """Return J and V at a rate per change."""
    if rate <= 0.0:
        return math.inf, math.inf
    q = cost_row(recall, precision, 1.5 / rate + 1.0, cost)
    if rate == math.inf or (q.silent == 0.0 and rate >= q.signals):
        return 0.0, 0.0
    eta, found = threshold(1.0 / rate, False, q)
    beyond = 1.0 / (rate * found.length)
    if eta < largest_cost(q) * (1.0 - CLOSE) or beyond <= 1.0:
        return eta - rate * found.value, found.value
    e, paid = elasticity(found), found.value / found.length
    more = math.log(beyond) if e == 1.0 else math.expm1((e - 1.0) * math.log(beyond)) / (e - 1.0)
    return eta - paid + paid * more, found.value * beyond**e


def response(value: float, recall: float, precision: float, cost: Cost) -> float:
    """Return the rate per change whose marginal value is V > 0."""
    q = cost_row(recall, precision, 1.5 * value + 1.0, cost)
    found = threshold(value, True, q)[1]
    if value <= found.value * (1.0 + CLOSE):
        return 1.0 / found.length
    share: float = (found.value / value) ** (1.0 / elasticity(found))
    return share / found.length


def inverse(
    begin: int, end: int, value: Array, recall: Array, precision: Array, cost: Cost, rate: Array
) -> None:
    """Write the rates per change of given marginal values V."""
    for k in range(begin, end):
        rate[k] = response(value[k], recall[k], precision[k], cost)


def evaluate(
    begin: int, end: int, rate: Array, recall: Array, precision: Array, cost: Cost, lost: Array, value: Array
) -> None:
    """Write costs and marginal values at given rates per change."""
    for k in range(begin, end):
        lost[k], value[k] = cost_and_value(rate[k], recall[k], precision[k], cost)


def waits(
    begin: int, end: int, rate: Array, recall: Array, precision: Array, cost: Cost, times: Array
) -> None:
    """Write the times τ_n of crawls, or the age η.

    In units of 1/Δ; 0 from some number n of signals on.
    """
    for k in range(begin, end):
        times[k] = 0.0
        if cost.of_age:
            q = cost_row(recall[k], precision[k], 1.0, cost)
            if q.signals == 0.0:
                times[k, 0] = growth(1.0 / rate[k])
            elif q.silent > 0.0 or rate[k] < q.signals:
                times[k, 0] = threshold(1.0 / rate[k], False, q)[0]
            continue
        if recall[k] == 0.0:
            times[k, 0] = 1.0 / rate[k]
            continue
        q, tau = cost_row(recall[k], precision[k], 1.5 / rate[k] + 1.0, cost), 0.0
        if q.silent == 0.0:
            # The least whole number of signals in the mean gap, at least one.
            enough = min(max(1.0, np.floor(q.signals / rate[k] * (1.0 + CLOSE))), float(times.shape[1]))
            times[k, : int(enough)] = math.inf
            continue
        eta = threshold(1.0 / rate[k], False, q)[0]
        for n in range(times.shape[1]):
            if expected_cost(0.0, n, q) >= eta:
                break
            tau = time_until(eta, n, tau, q)
            times[k, n] = tau
