"""What must hold of a solution, checked in extended precision."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.adversary.case import Case
from tests.ground_truth.cell_truth import Wide, wide
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


# Sums of float64 terms may be off by this share of the sum of their sizes.
ROUNDING = 1e-13
# Sums of rates may exceed a limit by this share of it.
FEASIBLE = 1e-14
TOLERANCE = 1e-6
# Costs below this are none.
NOTHING = 1e-290
# The nested search is trusted where its own bound and cost agree to this share.
PROVED = 1e-12
# Larger cases are judged by the dual bound at freshopt's own prices.
SEARCHED = 300


@dataclass(frozen=True)
class Finding:
    """One condition that a solution violates, and the numbers."""

    kind: str
    words: str


def judge(case: Case) -> tuple[str, list[Finding]]:
    """Solve a case; return what became of it, and what is wrong with that."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            solution = case.solve()
    except fo.InfeasibleProblemError as error:
        return "infeasible", _feasible_after_all(case, str(error))
    except fo.FreshoptError as error:
        return "refused", [Finding("refused", str(error))]
    except Exception as error:
        return "crashed", [Finding("crashed", f"{type(error).__name__}: {error}")]
    return solution.status.value, examine(case, solution)


def examine(case: Case, solution: Any) -> list[Finding]:
    """Return what is wrong with a solution."""
    proof, status = solution.certificate, solution.status
    if proof is None:
        if status is fo.Status.INFEASIBLE:
            return _feasible_after_all(case, solution.note)
        good = status is fo.Status.REFUSED or case.solver != "None"
        return [] if good else [Finding("no answer", f"{status.value}: {solution.note}")]
    if not math.isfinite(proof.value) or not np.all(np.isfinite(solution.rates)):
        claimed = status is fo.Status.OPTIMAL or math.isfinite(proof.gap)
        wrong = claimed or case.solver == "None"
        return [Finding("not finite", f"{status.value}, value {proof.value}")] if wrong else []
    judged = case.per_bandwidth()
    rates = wide(solution.rates) if judged is case else case.used(wide(solution.rates))
    return [*_infeasible(judged, rates), *_dishonest(judged, rates, solution)]


def _infeasible(case: Case, rates: Wide) -> list[Finding]:
    oracle = Oracle(case)
    used, found = oracle.cost * rates, []
    outside = np.flatnonzero((rates < case["min_rate"]) | (rates > case.upper))
    if len(outside):
        found.append(Finding("bounds", f"rates outside their bounds: {outside[:5].tolist()}"))
    over = float(np.sum(used) / oracle.bandwidth - 1)
    if over > FEASIBLE:
        found.append(Finding("bandwidth", f"exceeded by {over:.3g} of it"))
    if len(oracle.hosts.limits):
        worst = float(np.max(oracle.hosts.totals(used) / oracle.hosts.limits)) - 1
        if worst > FEASIBLE:
            found.append(Finding("host limit", f"exceeded by {worst:.3g} of it"))
    return found


def _dishonest(case: Case, rates: Wide, solution: Any) -> list[Finding]:
    """Compare value, bound, gap and status with the adversary's own."""
    oracle, proof = Oracle(case), solution.certificate
    price = wide(solution.price)
    mu = wide([solution.host_prices[name] for name in case.limits])
    each = case.costs(rates)
    cost = np.sum(each)
    half = abs(case.costs(rates / 2))
    # Terms may cancel, or cost nothing here: what they are made of is larger.
    size = np.sum(abs(each)) + np.sum(half[np.isfinite(half)])
    paid = price * oracle.bandwidth + np.sum(mu * oracle.hosts.limits)
    noise = ROUNDING * (size + paid) + NOTHING
    found = []
    offset = abs(case.value(wide(0.0)))  # freshness is a difference of two sums
    off = abs(case.value(cost) - proof.value)
    if off > noise + ROUNDING * offset:
        found.append(Finding("value", f"{proof.value!r} instead of {float(case.value(cost))!r}"))
    if not (price >= 0 and np.all(mu >= 0)):
        return [*found, Finding("price", f"prices {float(price)}, {mu.astype(float).tolist()}")]
    gap = cost - oracle.dual(price, mu)
    if gap > proof.gap * (1 + 1e-9) + noise:
        found.append(Finding("gap", f"{proof.gap:.3g}, but {float(gap):.3g} at its own prices"))
    lost, scale = gap, abs(cost) + paid
    if len(case) <= SEARCHED:
        least, upper, _ = oracle.least_cost()
        if abs(upper - least) > PROVED * (abs(upper) + size + paid) + NOTHING:
            return [*found, Finding("oracle", f"bound {float(least)!r}, cost {float(upper)!r}")]
        lost = cost - least
        if lost < -noise - 1e-15 * float(np.sum(case["importance"])):  # a kink's rate is off by an ulp
            found.append(Finding("oracle", f"cost {float(cost)!r} below the least, {float(least)!r}"))
        if cost - proof.gap > least + noise + 1e-9 * proof.gap:
            found.append(Finding("bound", f"gap {proof.gap:.3g}, but {float(lost):.3g} from the least cost"))
    true = lost / scale if scale > 0 else lost
    weights = float(np.sum(case["importance"]))
    small = lost <= 1e-12 * (weights + float(size)) or lost <= noise
    if true > proof.relative_gap * (1 + 1e-6) + 1e-12 and not small:
        found.append(Finding("relative gap", f"{proof.relative_gap:.3g} instead of {float(true):.3g}"))
    if solution.status is fo.Status.OPTIMAL and true > TOLERANCE * (1 + 1e-6) and not small:
        found.append(Finding("status", f"optimal, but off by {float(true):.3g}"))
    if solution.status is not fo.Status.OPTIMAL and case.solver == "None":
        found.append(
            Finding(
                "not proved", f"{solution.status.value}: {proof.relative_gap:.3g}; truly {float(true):.3g}"
            )
        )
    return found


def _feasible_after_all(case: Case, words: str) -> list[Finding]:
    """Return a finding if rates of finite cost exist, by a margin."""
    case = case.per_bandwidth()
    lower, upper = case["min_rate"], case.upper
    oracle = Oracle(case)
    needed = oracle.cost * lower
    room = [float(np.sum(needed) / oracle.bandwidth)]
    room += (oracle.hosts.totals(needed) / oracle.hosts.limits).tolist()
    with np.errstate(all="ignore"):
        closed = np.any((upper == 0) & ~np.isfinite(case.costs(np.zeros_like(upper))))
    if max(room) < 1 - 1e-9 and np.all(lower <= upper) and not closed:
        return [Finding("infeasible", f"feasible with {1 - max(room):.3g} to spare, but: {words}")]
    return []


def same_answer(one: Any, other: Any, factor: float = 1.0) -> Finding | None:
    """Compare two certified solutions of one problem in other units or another order."""
    if one.status is not other.status:
        return Finding("other status", f"{one.status.value} and {other.status.value}")
    a, b = one.certificate, other.certificate
    if a is None or b is None or not (math.isfinite(a.value) and math.isfinite(b.value)):
        return None
    # A budget is filled to a few ulp, and those have their price.
    scale = abs(a.value) * factor + abs(b.value) + b.price * other.problem.bandwidth
    apart = abs(a.value * factor - b.value)
    if apart > (a.gap * factor + b.gap) * (1 + 1e-6) + 1e-11 * scale:
        return Finding("other value", f"{a.value * factor!r} and {b.value!r}")
    return None
