"""`with_few_changes`: the best rates of which most are as before.

At most m of n sources may change. With prices for bandwidth and hosts the problem separates: each source
keeps its old rate or takes its best response, and the m sources whose Lagrangian falls by most change. That
is the dual of the problem with a limit on the number of changes; its value bounds what any m changes achieve.
It is maximised over the bandwidth's price by bisection, since its slope, the bandwidth used beyond the limit,
falls with the price. The sets of sources on both sides of the optimal price are then solved for exactly, with
the others fixed, and the better one is taken: what it loses against the bound is told.

Cost: some 60 passes over the sources, and two solves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import options_from
from freshopt.errors import InfeasibleProblemError, SourceDataError
from freshopt.formatting import count, number, percent
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, BoolArray, total
from freshopt.questions.rate_changes import certificate_beside, is_changed, source_prices
from freshopt.solvers.auto import Auto

# Part of the cost that rounding may add or take away.
NEGLIGIBLE = 1e-12
# Doublings of the price until everything is sold, and halvings of the bracket: to the last bit of a float64.
_DOUBLINGS, _HALVINGS = 300, 60


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FewChanges:
    """Rates of which most are as before, with what that costs.

    - `solution`: The rates, with their certificate against all rates: its gap bounds what the old ones cost.
    - `most`: Sources that may change.
    - `changed`: Sources that do.
    - `loss`: Cost above that of the best rates, which may change all.
    - `least_loss`: Lower bound of the loss of any so few changes, by duality.
    - `scale`: The cost of the best rates.
    - `prices` (n,): Of each source's bandwidth, at which the rates of those that change are best.
    - `no_cycle`: Whether the log's weekly cycle was left out for it: all rates are then at equal intervals.
    """

    solution: Solution
    most: int
    changed: int
    loss: float
    least_loss: float
    scale: float
    prices: Array
    no_cycle: bool = False

    @property
    def sentence(self) -> str:
        """What few changes cost, in words."""
        whole = count(len(self.solution.rates), "interval")
        changed = f"{self.changed:,} of {whole} changed, at most {self.most:,}"
        if self.loss <= NEGLIGIBLE * self.scale:
            return f"{changed}; that costs no more than changing all"
        share, least = (
            percent(loss / self.scale, space=" ") if self.scale > 0.0 else number(loss)
            for loss in (self.loss, max(0.0, self.least_loss))
        )
        return (
            f"{changed}; that costs {share} more than changing all; any other choice of so few costs at "
            f"least {least} more (proved)"
        )

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        keys = ("most", "changed", "loss", "least_loss")
        told = {key: getattr(self, key) for key in keys}
        return {**told, "no_cycle": self.no_cycle, "sentence": self.sentence}


def with_few_changes(best: Solution, old: Array, most: float) -> FewChanges:
    """Return the best rates that change few of the old ones.

    - `best`: The optimum without that limit, under bandwidth, bounds and host limits.
    - `old` (n,): Rates in force; a source of NaN has none, and gets one beyond the number of changes.
    - `most`: Share of the sources with an old rate that may get another, in [0, 1].

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0, 4.0, 1.0])
    >>> best = fo.solve(fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=6.0))
    >>> found = with_few_changes(best, np.array([1.0, 1.5, 1.6, 2.0]), 0.5)
    >>> found.solution.rates.round(6)
    array([1.      , 2.266667, 1.6     , 1.133333])
    """
    problem = best.problem
    if not 0.0 <= most <= 1.0:
        raise SourceDataError(f"the share of changes is {most:g}, and not between 0 and 1. Pass such as 0.1.")
    if problem.program is not None or problem.numerics is None:
        raise SourceDataError(
            "few changes are chosen under bandwidth, bounds and host limits alone. Leave the other "
            "constraints out, or the limit of changes."
        )
    wrong = ~((old >= problem.lower) & (old <= problem.upper))  # also where there is none
    free = wrong | ~np.isfinite(problem.numerics.cost(np.where(wrong, best.rates, old)))
    forced, known = (int(np.count_nonzero(which & ~np.isnan(old))) for which in (free, True))
    allowed = int(np.floor(most * known + 1e-9))
    budget = allowed - forced
    if budget < 0:
        raise InfeasibleProblemError(
            f"{count(forced, 'old rate')} {'is' if forced == 1 else 'are'} outside the bounds and must "
            f"change, more than {percent(most, space=' ')} of the sources. Allow more changes."
        )
    search = _Search(problem, best, np.where(free, best.rates, old), free, budget)
    sets, bound = search.optimum()
    found, refused = [], ""
    for chosen in sets:
        try:
            found.append(_solved(problem, old, chosen))
        except InfeasibleProblemError as error:
            refused = str(error)
    if not found:
        raise InfeasibleProblemError(_too_few(problem, old, free, most, refused))
    least = search.cost(best.rates)
    rates, prices = min(found, key=lambda each: search.cost(each[0]))
    proof = certificate_beside(problem, rates, best)
    changed = int(np.count_nonzero(is_changed(old, rates)))
    loss, floor = search.cost(rates) - least, max(bound - least, 0.0)
    status = Status.OPTIMAL if proof.confirms(1e-9) else Status.INACCURATE
    note = f"At most {count(budget, 'interval')} of the old ones may change."
    solution = replace(best, rates=rates, value=proof.value, certificate=proof, status=status, note=note)
    return FewChanges(solution, allowed, changed, loss, min(floor, loss), least, prices)


def _too_few(problem: Problem, old: Array, free: BoolArray, most: float, refused: str) -> str:
    """Return why few changes, or these within the bandwidth, do not do."""
    few = f"at most {percent(most, space=' ')} of the intervals changed"
    cost, known = problem.sources.refresh_cost, ~np.isnan(old)
    kept = np.where(free, problem.lower, old)
    excess = total(cost * kept) - problem.bandwidth
    freed = np.cumsum(np.sort(cost * (kept - problem.lower))[::-1])
    if excess <= 0.0 or freed[-1] < excess:
        return f"with {few}, {refused}"
    need = int(np.count_nonzero(free & known)) + int(np.searchsorted(freed, excess)) + 1
    share = percent(need / np.count_nonzero(known), space=" ")
    return (
        f"with {few} the old rates do not come within the bandwidth of {number(problem.bandwidth)}: that "
        f"takes {need:,} changes or more, {share} of the sources. Allow more changes."
    )


class _Search:
    """Dual function of the bandwidth's price under few changes."""

    def __init__(self, problem: Problem, best: Solution, old: Array, free: BoolArray, budget: int) -> None:
        assert problem.numerics is not None, "asked before"
        self.problem, self.numerics, self.old = problem, problem.numerics, old
        self.free, self.budget, self.start = free, budget, best.price
        self.weight = problem.sources.refresh_cost
        self.extra = np.maximum(source_prices(best) - best.price, 0.0)
        hosts = problem.hosts
        paid = sum(
            best.host_prices[name] * limit for name, limit in zip(hosts.names, hosts.limits, strict=True)
        )
        self.constant = float(paid) if len(hosts) else 0.0
        self.old_cost = np.asarray(self.numerics.cost(old))

    def cost(self, rates: Array) -> float:
        """Return the whole cost of some rates."""
        return total(np.asarray(self.numerics.cost(rates)))

    def at(self, price: float) -> tuple[BoolArray, float, float]:
        """Return who changes at a price, the excess bandwidth, the dual value."""
        charged = self.weight * (price + self.extra)
        wanted = self.numerics.inverse_marginal(np.maximum(charged, 1e-300))
        rates = np.clip(wanted, self.problem.lower, self.problem.upper)
        # Where nothing is charged and the cost falls for ever, the rate is infinite, and so is what is used.
        with np.errstate(invalid="ignore"):
            fall = (
                self.old_cost + charged * self.old - np.asarray(self.numerics.cost(rates)) - charged * rates
            )
        fall = np.where(np.isnan(fall), -np.inf, fall)
        chosen = self.free.copy()
        others = np.flatnonzero(~self.free & (fall > 0.0))
        chosen[others[np.argsort(-fall[others], kind="stable")[: self.budget]]] = True
        taken = np.where(chosen, rates, self.old)
        excess = total(self.weight * taken) - self.problem.bandwidth
        dual = total(
            np.where(chosen, self.numerics.cost(taken), self.old_cost) + self.weight * self.extra * taken
        )
        return chosen, excess, dual + price * excess - self.constant

    def optimum(self) -> tuple[list[BoolArray], float]:
        """Return the sets around the optimal price, and the bound."""
        low, high = 0.0, max(self.start, 1e-300)
        bound = -np.inf
        for _ in range(_DOUBLINGS):
            chosen, excess, dual = self.at(high)
            bound = max(bound, dual)
            if excess <= 0.0:
                break
            low, high = high, 2.0 * high
        above = below = chosen
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            chosen, excess, dual = self.at(middle)
            bound = max(bound, dual) if np.isfinite(dual) else bound
            if excess > 0.0:
                low, below = middle, chosen
            else:
                high, above = middle, chosen
        return [above, below], bound


def _solved(problem: Problem, old: Array, chosen: BoolArray) -> tuple[Array, Array]:
    """Return some sources' best rates beside the others', and their prices."""
    sources = problem.sources
    fixed = sources.with_bounds(
        np.where(chosen, sources.min_rate, old), np.where(chosen, sources.max_rate, old)
    )
    own = problem.restated(fixed)
    found = Auto().solve(own, options_from(own, None, 1e-9, certify=False))
    if found.status is Status.INFEASIBLE:
        raise InfeasibleProblemError(found.note)
    # Kept rates are kept to the last bit.
    return np.where(chosen, found.rates, old), source_prices(found)
