"""Steps and small problems solved over again, by bracketing alone. Nothing here imports freshopt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

mp = mpmath.MPContext()
mp.dps = 50


@dataclass(frozen=True, eq=False)
class StepCase:
    """The arguments of a step, in its own order."""

    rates: Floats
    gradient: Floats
    bandwidth: float
    min_rate: Floats
    max_rate: Floats
    learning_rate: float
    host: Ints | None = None  # position in host_limits, or their number for no limit
    host_limits: Floats | None = None

    def arguments(self) -> tuple[Floats, Floats, float, Floats, Floats, float, Ints | None, Floats | None]:
        return (
            self.rates,
            self.gradient,
            self.bandwidth,
            self.min_rate,
            self.max_rate,
            self.learning_rate,
            self.host,
            self.host_limits,
        )

    def limited(self) -> list[tuple[Bools, float]]:
        """The sources of each limited host, and its limit."""
        if self.host is None or self.host_limits is None:
            return []
        return [(self.host == h, float(limit)) for h, limit in enumerate(self.host_limits)]


@st.composite
def step_cases(draw: st.DrawFn, decades: int, largest: int = 7, hosts: int = 0) -> StepCase:
    """Draw steps whose rates and gradients span 2·decades: ties, caps at inf, floors at 0, equal bounds."""

    def room() -> float:
        share = draw(st.sampled_from([1e-6, 0.1, 1.0, 30.0]))
        return float(share * 10.0 ** draw(st.integers(-decades, decades)))

    n = draw(st.integers(1, largest))

    def powers() -> Floats:
        whole = draw(st.lists(st.integers(-decades, decades), min_size=n, max_size=n))
        part = draw(st.lists(st.sampled_from([1.0, 1.7, 3.1, 8.9]), min_size=n, max_size=n))
        return np.array([p * 10.0**e for p, e in zip(part, whole, strict=True)])

    def choose(some: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
        pick = draw(st.lists(st.booleans(), min_size=n, max_size=n))
        return np.where(pick, some, others)

    gradient = powers() * choose(-1.0, 1.0) - draw(st.sampled_from([0.0, 0.0, 10.0**decades]))
    lower = choose(0.0, powers())
    upper = choose(np.inf, lower + choose(0.0, powers()))
    upper = np.where(upper == 0.0, 1.0, upper)  # a rate of 0 is not in the domain of the log barrier
    rates = powers()
    bandwidth = float(np.sum(lower)) * (1 + 1e-9) + room()
    eta = draw(st.sampled_from([0.03, 1.0, 7.0]))
    if not hosts:
        return StepCase(rates, gradient, bandwidth, lower, upper, eta)
    host = np.array(draw(st.lists(st.integers(0, hosts), min_size=n, max_size=n)))
    needed = np.array([float(np.sum(lower[host == h])) for h in range(hosts)])
    limits = needed * (1 + 1e-9) + np.array([room() for _ in range(hosts)])
    return StepCase(rates, gradient, bandwidth, lower, upper, eta, host, limits)


def relative_map(q: Any, slope: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    """The rate of a mirror step for slope s: 1/r = 1/q + s."""
    inverse = 1 / q + slope
    return 1 / inverse if inverse > 0 else mp.inf


def straight_map(q: Any, slope: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    """The rate of a gradient step."""
    return q - slope


def exact_step(case: StepCase, at: Callable[[Any, Any], Any], digits: int = 40) -> Floats:
    """Search for the multiplier in 50 digits, and for each host's own within it, on top of it.

    `at(q, s)` is the unconstrained rate for slope s = ηg + λ.
    """
    rows = [
        [mp.mpf(float(x)) for x in row]
        for row in zip(case.rates, case.gradient, case.min_rate, case.max_rate, strict=True)
    ]
    eta, bandwidth = mp.mpf(case.learning_rate), mp.mpf(case.bandwidth)
    hosts = [(np.flatnonzero(members).tolist(), mp.mpf(limit)) for members, limit in case.limited()]

    def rates(multiplier: Any) -> list[Any]:  # noqa: ANN401
        found = [min(max(at(q, eta * g + multiplier), low), high) for q, g, low, high in rows]
        for members, limit in hosts:
            inside = _meet([rows[k] for k in members], eta, multiplier, limit, at, digits)
            for k, rate in zip(members, inside, strict=True):
                found[k] = rate
        return found

    return np.array(_fill(rates, bandwidth, digits), dtype=float)


def _meet(rows: Any, eta: Any, outer: Any, limit: Any, at: Callable[[Any, Any], Any], digits: int) -> Any:  # noqa: ANN401
    def rates(multiplier: Any) -> list[Any]:  # noqa: ANN401
        return [min(max(at(q, eta * g + outer + multiplier), low), high) for q, g, low, high in rows]

    return _fill(rates, limit, digits)


def _fill(rates: Callable[[Any], list[Any]], amount: Any, digits: int) -> list[Any]:  # noqa: ANN401
    """Return the rates at the smallest multiplier ≥ 0 at which they add up to no more than an amount."""
    low, high = mp.mpf(0), mp.mpf(1)
    if sum(rates(low)) <= amount:
        return rates(low)
    while sum(rates(high)) > amount:
        low, high = high, high * 64
    return rates(_crossing(lambda x: sum(rates(x)) - amount, low, high, digits))


def _crossing(excess: Callable[[Any], Any], low: Any, high: Any, digits: int) -> Any:  # noqa: ANN401
    """Where a falling function stops being above 0, by interpolation or bisection (Chandrupatla 1997).

    Whatever is interpolated, the answer lies in a bracket that is narrower than the digits asked for, at the
    end of it where the function is not above 0.
    """
    x1, x2, f1, f2, t = high, low, excess(high), excess(low), mp.mpf(1) / 2
    while abs(x2 - x1) > max(x1, x2) * mp.mpf(10) ** -digits:
        x = x1 + t * (x2 - x1)
        f = excess(x)
        if (f > 0) == (f1 > 0):
            x1, x3, f1, f3 = x, x1, f, f1
        else:
            x1, x2, x3, f1, f2, f3 = x, x1, x2, f, f1, f2
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2) if f3 != f2 else mp.mpf(2)
        t = mp.mpf(1) / 2
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:
            t = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
        least = max(x1, x2) * mp.mpf(10) ** -digits / (4 * abs(x2 - x1))
        t = min(max(t, least), 1 - least)
    return max(x1, x2)


def require_feasible(case: StepCase, rates: Floats) -> None:
    """Bounds exactly; bandwidth and host limits to rounding."""
    if not np.all((rates >= case.min_rate) & (rates <= case.max_rate)):
        raise AssertionError(f"{rates} leave the bounds of {case}")
    for members, limit in [(np.full(len(rates), True), case.bandwidth), *case.limited()]:
        if not np.sum(rates[members]) <= limit * (1 + 1e-12):
            raise AssertionError(f"{rates} exceed the limit {limit} of {case}")


def worst_exchange(case: StepCase, rates: Floats, wish: Floats, noise: Floats) -> float:
    """Return by how much, in units of rounding noise, a small feasible change of the rates would be better.

    `wish` is how each rate still wants to grow (minus the slope of the step's objective); optimal rates
    leave nothing to gain by lowering one, by raising one where bandwidth and its host's limit leave room, or
    by an exchange of two in which the raised one's host has room or is the host of both. Budgets inside a
    budget: every feasible change of the rates is a sum of these three.
    """
    rise, fall, room = rates < case.max_rate, rates > case.min_rate, np.full(len(rates), True)
    same = np.full((len(rates), len(rates)), False)
    for members, limit in case.limited():
        if np.sum(rates[members]) >= limit * (1 - 1e-12):
            room &= ~members
            same |= members[:, None] & members
    gains = [(-wish / noise)[fall]]
    if np.sum(rates) < case.bandwidth * (1 - 1e-12):
        gains.append((wish / noise)[rise & room])
    pairs = (wish[:, None] - wish) / (noise[:, None] + noise)
    allowed = rise[:, None] & fall & (room[:, None] | same)
    return float(np.max(np.concatenate([*gains, pairs[allowed]]), initial=0.0))


Marginal = Callable[[Floats], Floats]


def best_rates(marginal: Marginal, bandwidth: float, lower: Floats, upper: Floats, cost: Floats) -> Floats:
    """Bisect the price, and each rate at each price, on logarithms; marginals strictly falling."""

    def rates(price: float) -> Floats:
        a, b = np.full(len(cost), -60.0), np.full(len(cost), 20.0)
        for _ in range(70):
            x = (a + b) / 2
            rising = marginal(np.exp(x)) > price * cost
            a, b = np.where(rising, x, a), np.where(rising, b, x)
        found = np.where(a <= -60.0, 0.0, np.exp(b))
        return np.clip(found, lower, upper)

    a, b = -80.0, 80.0
    for _ in range(70):
        x = (a + b) / 2
        a, b = (x, b) if float(np.sum(cost * rates(np.exp(x)))) > bandwidth else (a, x)
    return rates(np.exp(b))
