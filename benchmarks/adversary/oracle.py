"""The least cost, by nested searches in extended precision: best responses, hosts' prices, bandwidth's price.

Nothing is assumed of the result: it is a dual bound at prices, whatever their origin, and the cost of rates
that are feasible. Where the two agree the least cost is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.adversary.case import Case
from benchmarks.adversary.special import Wide, wide
from tests.ground_truth.truth import where_it_falls

# Rates are sought down to this share of the source's change rate or of its part of the bandwidth; prices
# between e^{±REACH}.
LEAST = np.longdouble("1e-150")
REACH = 900.0
# Logarithms of ratios are cut here: beyond, only the sign counts.
FAR = 1e4
# Sums of the rates found may exceed their limits by this share of them.
ROUNDED = 1e-14


@dataclass(frozen=True, eq=False)
class Hosts:
    """Which sources share a limit; all others belong to one last group."""

    place: Any
    limits: Wide

    @classmethod
    def of(cls, case: Case) -> Hosts:
        """Read the hosts of a case."""
        names = list(case.limits)
        position = {name: k for k, name in enumerate(names)}
        place = np.array([position.get(int(h), len(names)) for h in case.host], dtype=np.intp)
        return cls(place, wide([case.limits[name] for name in names]))

    def totals(self, used: Wide) -> Wide:
        """Return the sums of the limited hosts."""
        sums = np.zeros(len(self.limits) + 1, dtype=np.longdouble)
        np.add.at(sums, self.place, used)
        return sums[:-1]

    def spread(self, prices: Wide) -> Wide:
        """Return each source's price; 0 without a limit."""
        return np.append(prices, np.longdouble(0))[self.place]


class Oracle:
    """Best responses and dual bounds of one case."""

    def __init__(self, case: Case) -> None:
        self.case, self.hosts = case, Hosts.of(case)
        self.cost, self.lower = case["refresh_cost"], case["min_rate"]
        self.bandwidth = wide(case.bandwidth)
        most = 2 * self.bandwidth / self.cost
        self.upper = np.maximum(np.minimum(case.upper, np.maximum(most, self.lower)), self.lower)
        least = LEAST * np.minimum(case["change_rate"], most)
        self.floor = np.minimum(np.maximum(self.lower, least), np.maximum(self.upper, least))

    def responses(self, each: Wide) -> Wide:
        """Return the rates at which −w·J' falls to what a refresh costs at each source's price."""
        paid = self.cost * each

        def excess(x: Wide) -> Wide:
            slope = self.case.slopes(np.exp(x))
            with np.errstate(all="ignore"):
                apart = np.clip(np.log(slope / paid), -FAR, FAR)
            return np.where(slope <= 0, np.where((slope == 0) & (paid == 0), 0, -FAR), apart)

        a, b = np.log(self.floor), np.log(np.maximum(self.upper, self.floor))
        at_low, at_high = excess(a) <= 0, excess(b) >= 0
        inside = ~(at_low | at_high)
        a, b = where_it_falls(lambda x: np.where(inside, excess(x), 0), np.where(inside, a, b), b)
        inner = np.clip(np.exp((a + b) / 2), self.lower, self.upper)
        return np.where(at_low, self.lower, np.where(at_high, self.upper, inner))

    def total(self, rates: Wide) -> Any:
        """Return Σ w·J."""
        return np.sum(self.case.costs(rates))

    def dual(self, price: Any, host_prices: Wide) -> Any:
        """Return the dual bound at prices; the hosts' come on top."""
        each = price + self.hosts.spread(host_prices)
        rates = self.responses(each)
        paid = np.sum(self.cost * each * rates)
        return self.total(rates) + paid - price * self.bandwidth - np.sum(host_prices * self.hosts.limits)

    def least_cost(self) -> tuple[Any, Any, Wide]:
        """Return the best dual bound found, the cost of feasible rates, and these rates."""
        zero = np.zeros(len(self.cost), dtype=np.longdouble)
        own, own_rates = zero, self.responses(zero)
        kappa = np.zeros(len(self.hosts.limits), dtype=np.longdouble)
        if len(kappa):
            kappa, rates = self._clear(
                lambda p: self.responses(self.hosts.spread(p)),
                lambda r: self.hosts.totals(self.cost * r),
                self.hosts.limits,
                self.hosts.spread,
            )
            own, own_rates = self.hosts.spread(kappa), rates

        def at(price: Wide) -> Wide:
            return np.where(own > price[0], own_rates, self.responses(zero + price[0]))

        (price,), rates = self._clear(
            at,
            lambda r: np.atleast_1d(np.sum(self.cost * r)),
            np.atleast_1d(self.bandwidth),
            lambda share: share[0],
        )
        used = self.cost * rates
        over = [np.sum(used) / self.bandwidth, *(self.hosts.totals(used) / self.hosts.limits)]
        total = self.total(rates) if max(over) <= 1 + ROUNDED else np.longdouble(np.inf)
        return self.dual(price, np.maximum(kappa - price, 0)), total, rates

    def _clear(self, rates_at: Any, used: Any, targets: Wide, spread: Any) -> tuple[Wide, Wide]:
        """Search for the prices at which the sums meet their targets; at jumps mix both sides."""
        targets = np.maximum(targets, used(self.lower))  # which may fill them but for rounding
        free = rates_at(np.zeros_like(targets))
        over = used(free) > targets

        def too_much(x: Wide) -> Wide:
            with np.errstate(all="ignore"):
                apart = np.log(used(rates_at(np.where(over, np.exp(x), 0))) / targets)
            return np.where(over, np.clip(apart, -FAR, FAR), 0)

        reach = np.where(over, np.longdouble(REACH), 0)
        a, b = where_it_falls(too_much, -reach, reach)
        generous, frugal = rates_at(np.where(over, np.exp(a), 0)), rates_at(np.where(over, np.exp(b), 0))
        more, less = used(generous), used(frugal)
        with np.errstate(all="ignore"):
            share = np.where(more > less, np.clip((targets - less) / (more - less), 0, 1), 0)
        return np.where(over, np.exp(b), 0), frugal + spread(share) * (generous - frugal)
