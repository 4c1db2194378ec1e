"""Descent by Bregman steps, to a certified duality gap.

It is the loop of mirror descent and projected gradient. Each step meets bandwidth and host limits exactly
(`bregman_step`) and uses costs and marginals only, no inverse marginals, so that the result is evidence
independent of water-filling. Sources of unequal cost are handled in spending z = cost·r, in which the budget
is Σz ≤ B and a host's limit Σz ≤ L_h.

The learning rate is spectral (Barzilai and Borwein, IMA J. Numer. Anal. 8, 1988, in the map's own metric):
⟨d, ∇F(z⁺) − ∇F(z)⟩ / ⟨d, ∇f(z⁺) − ∇f(z)⟩ for the last move d, the inverse of the curvature of f relative to
the map along d. It is kept in check by a nonmonotone Armijo test (Grippo, Lampariello and Lucidi, SIAM J.
Numer. Anal. 23, 1986) and divided by 4 until it passes. It does pass: if f is L-smooth relative to F nearby,
f(z⁺) ≤ f(z) + ⟨g, d⟩ + L·D_F(z⁺, z), and every exact step has D_F(z⁺, z) ≤ −η⟨g, d⟩, so that
f(z⁺) ≤ f(z) + (1 − ηL)⟨g, d⟩: any η ≤ (1 − ARMIJO)/L will do.

The multipliers of a step divided by its learning rate are prices (dual variables), λ of the bandwidth and λ_h
of each host's limit alone; max(λ, λ_h) is what the sources of a host pay. With these prices the certificate
bounds the duality gap of the rates: that, not the size of a step, ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from freshopt.certificates.certificate import certify
from freshopt.certificates.solution import Answer, Status
from freshopt.errors import list_offenders
from freshopt.first_order.bregman_step import Geometry, Step, bregman_step
from freshopt.first_order.budget_groups import HostBudgets
from freshopt.modelling.bounds_check import require_finite
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, BoolArray, chunks, exact_sum, total
from freshopt.separable.kernel import Numerics

# Share of the linear prediction that a step must gain.
ARMIJO = 1e-4
# A step is compared with the worst of so many costs. 1 took 155, 115, 2628 evaluations where 10 took 141, 75,
# 1612 (mirror steps on harmonic staleness, delay and binary staleness; n=1000).
MEMORY = 10
# Steps between certificates, each as dear as 0.4 steps; 5 and 20 need about as many steps.
CHECK = 10
# Largest change of the learning rate from one step to the next.
GROWTH = 1e3
# Largest learning rate in units of the first: where costs are linear, it grows without limit.
REACH = 1e12
# Relative error of a cost summed over sources, of which a step may fall foul.
ROUNDING = 4e-16
# Rates, in equal shares, near whose marginals kinks are searched.
PROBES = (1 / 16, 1.0, 16.0)
# A marginal that falls by 5 % within 2e-9 of a rate jumps; a smooth one falls by 1e-8.
NEAR, JUMP = 1e-9, 0.1
# A source with more than this part of an equal share is not given up for one price; 1 and 0.1 need more
# steps.
SMALL = 0.3
# Relative distance of the marginals that measure curvature; 1e-3 does as well, 1e-6 needs 2×.
APART = 1e-4
# Factor on the bandwidth with which a source comes back, each time that it does.
WAKING = 0.5


class DescentMap(Geometry, Protocol):
    """Protocol of mirror maps for descent."""

    def first_rate(self, spending: Array, gradient: Array) -> float:
        """Return the first learning rate.

        No spending changes by more than about its own size at it.
        """

    def divergence(self, before: Array, after: Array) -> float:
        """Return the symmetric divergence ⟨after − before, ∇F(after) − ∇F(before)⟩."""


def refusal(problem: Problem) -> str | None:
    """Return why descent does not apply to a problem, or None."""
    if problem.numerics is None:
        return problem.unknown_atom.removesuffix(".")
    kinked = np.flatnonzero(_kinks(problem, problem.numerics))
    if len(kinked):
        where = list_offenders(map(problem.sources.label, kinked))
        return f"the marginal jumps for {where}, where descent along gradients stalls; use WaterFilling"
    return None


def _kinks(problem: Problem, numerics: Numerics) -> BoolArray:
    """Return which sources have a kinked cost.

    Kinks are searched at prices near the marginals at typical rates.
    At a kink the marginal exceeds the price on one side and is below it on the other.
    """
    found = np.zeros(len(problem.sources), dtype=np.bool_)
    share = problem.bandwidth / total(problem.sources.refresh_cost)
    for scale in PROBES:
        probed = np.clip(np.full(len(found), scale * share), problem.lower, problem.upper)
        marginal = numerics.marginal(probed)
        price = (1.0 - JUMP) * np.where(np.isfinite(marginal), marginal, 0.0)
        rates = numerics.inverse_marginal(price)
        inside = (price > 0.0) & (rates > problem.lower) & (rates < problem.upper)
        rates = np.where(inside, rates, share)
        before, after = numerics.marginal(rates * (1.0 - NEAR)), numerics.marginal(rates * (1.0 + NEAR))
        found |= inside & (before - after > JUMP / 2.0 * price)
    return found


class _Point(NamedTuple):
    """Iterate: spending z = cost·r, its cost and gradient."""

    spending: Array
    cost: float
    gradient: Array


Fit: TypeAlias = Callable[[Array], DescentMap] | None


def descend(
    problem: Problem, geometry: DescentMap, tolerance: float, enough: float, limit: int, fit: Fit = None
) -> Answer:
    """Descend until the certified duality gap is within tolerance.

    - `problem`: With numerics.
    - `tolerance`: Relative duality gap at which to stop.
    - `enough`: Relative duality gap that is no failure when `limit` is reached.
    - `limit`: Evaluations of the cost of all sources.
    - `fit`: Makes a map from the curvatures of the sources' costs, which is then renewed every few steps.
    """
    numerics, bandwidth = problem.numerics, problem.bandwidth
    if numerics is None:
        return Answer(None, status=Status.REFUSED, note=problem.unknown_atom)
    if total(problem.sources.refresh_cost * problem.lower) >= bandwidth * (1.0 - FEW_ULP):
        require_finite(
            problem, numerics, f"the bandwidth {bandwidth:g}", np.ones(len(problem.sources), dtype=np.bool_)
        )
        return Answer(np.array(problem.lower))
    path = _Descent(problem, numerics, geometry, fit)
    while path.evaluations < limit:
        moved = path.advance(limit)
        if moved and path.steps % CHECK:
            continue
        if path.judge() <= tolerance:
            return path.answer(None, "")
        if not path.rearrange() and not moved and path.evaluations < limit:
            return path.answer(None, "No step of representable length lowers the cost.")
    path.judge()
    if path.gap <= enough:
        return path.answer(None, "")
    note = f"After {path.evaluations} evaluations the certified relative gap is {path.gap:.2g}."
    return path.answer(Status.ITERATION_LIMIT, note)


class _Descent:
    """State of a descent."""

    def __init__(self, problem: Problem, numerics: Numerics, geometry: DescentMap, fit: Fit) -> None:
        self.problem, self.numerics, self.geometry, self.fit = problem, numerics, geometry, fit
        cost = problem.sources.refresh_cost
        self.lower, self.upper = cost * problem.lower, cost * problem.upper
        self.entry = numerics.marginal(np.array(problem.lower)) / cost  # the price at which min_rate is left
        self.hosts = HostBudgets.of(problem.hosts.codes, problem.hosts.limits) if len(problem.hosts) else None
        host_share = problem.hosts.limits / problem.hosts.totals(np.ones(len(cost)))
        self.share = np.minimum(
            problem.bandwidth / len(cost), problem.hosts.broadcast_to_sources(host_share, np.inf)
        )
        self.edge = self._close_full_hosts()
        self.held = np.zeros(len(cost), dtype=np.bool_)
        self.woken = np.zeros(len(cost))
        self.evaluations, self.steps = 0, 0
        without = problem.hosts.named(np.zeros(len(problem.hosts)))
        self.gap, self.best = np.inf, Answer(np.array(problem.lower), 0.0, without)
        start = self._level()
        self.point = _Point(start, self._cost(start), self._gradient(start))
        self.recent = [self.point.cost]
        self.price, self.host_prices, self.falling = 0.0, self.edge, self.held
        self.eta = geometry.first_rate(start, self.point.gradient)
        self.longest = REACH * self.eta

    def advance(self, limit: int) -> bool:
        """Take the longest passing step; return whether it moved."""
        if self.fit is not None and self.steps % CHECK == 0:
            self._renew(self.fit)
        here = self.point
        while self.evaluations < limit and self.eta > 0.0:
            step = self._step(here.spending, here.gradient, self.eta)
            move = step.rates - here.spending
            if not bool(np.any(move)):
                self._pay(step)
                return False
            cost = self._cost(step.rates)
            predicted = min(float(np.dot(here.gradient, move)), 0.0)
            noise = ROUNDING * abs(here.cost) * np.sqrt(len(move))
            if cost <= max(self.recent) + ARMIJO * predicted + noise:
                gradient = self._gradient(step.rates)
                if bool(np.all(np.isfinite(gradient))):
                    break
            self.eta /= 4.0
        else:
            return False
        self._pay(step)
        self.falling = move <= 0.0
        curvature = float(np.dot(move, gradient - here.gradient))
        if curvature > 0.0:
            spectral = self.geometry.divergence(here.spending, step.rates) / curvature
            factor = np.clip(spectral / self.eta, 1.0 / GROWTH, GROWTH)
        else:
            factor = GROWTH
        self.eta = min(self.eta * float(factor), self.longest)
        self._settle(_Point(step.rates, cost, gradient))
        self.steps += 1
        return True

    def judge(self) -> float:
        """Certify the iterate, keep the best rates, and return its gap."""
        rates = np.clip(
            self.point.spending / self.problem.sources.refresh_cost, self.problem.lower, self.problem.upper
        )
        on_top = np.maximum(0.0, self.host_prices - self.price)
        found = Answer(rates, self.price, self.problem.hosts.named(on_top))
        gap = certify(self.problem, rates, found.price, found.host_prices).beyond_rounding
        if gap <= self.gap:
            self.gap, self.best = gap, found
        return gap

    def rearrange(self) -> bool:
        """Hold starved sources at min_rate; free those that recover.

        Starved are sources whose marginal at min_rate is below the price.
        A map that lives on r > 0 nears a bound of 0 like 1/step at best, so that starved sources alone would
        keep the gap above 1e-6 for some 10⁶ steps. What the price says of them is exact: a marginal at
        min_rate below the price means rate min_rate. A source held wrongly, by an early price, comes back
        with an equal share of the bandwidth, half of it the next time, so that none comes and goes for ever.
        """
        if not self.geometry.positive:
            return False
        paid = np.maximum(self.price, self.problem.hosts.broadcast_to_sources(self.host_prices))
        starved = (self.entry <= paid) & (self.upper > self.lower)
        small = self.point.spending - self.lower <= SMALL * self.share
        leave, wake = starved & self.falling & small & ~self.held, self.held & ~starved
        if not bool(np.any(leave | wake)):
            return False
        spending = self.point.spending.copy()
        spending[leave] = self.lower[leave]
        spending[wake] = np.clip(
            self.share[wake] * WAKING ** self.woken[wake], self.lower[wake], self.upper[wake]
        )
        self.woken[wake] += 1.0
        self.held = (self.held | leave) & ~wake
        spending = self._step(spending, np.zeros(len(spending)), 1.0).rates
        self.recent = []
        self._settle(_Point(spending, self._cost(spending), self._gradient(spending)))
        return True

    def answer(self, status: Status | None, note: str) -> Answer:
        """Return the best rates seen, with their prices."""
        return replace(self.best, iterations=self.evaluations, status=status, note=note)

    def _step(self, spending: Array, gradient: Array, eta: float) -> Step:
        upper = np.where(self.held, self.lower, self.upper)
        bandwidth = self.problem.bandwidth
        return bregman_step(self.geometry, spending, gradient, bandwidth, self.lower, upper, eta, self.hosts)

    def _pay(self, step: Step) -> None:
        """Take the dual prices of a step."""
        self.price = step.multiplier / self.eta
        self.host_prices = np.maximum(step.host_multipliers / self.eta, self.edge)

    def _close_full_hosts(self) -> Array:
        """Hold hosts whose limit min_rate uses up; return their prices."""
        hosts = self.problem.hosts
        full = hosts.totals(self.lower) >= hosts.limits * (1.0 - FEW_ULP)
        prices = np.zeros(len(hosts))
        if bool(np.any(full)):
            members = hosts.broadcast_to_sources(full.astype(float)) > 0.0
            require_finite(self.problem, self.numerics, "a host's limit", members)
            wanting = members & (self.upper > self.lower) & np.isfinite(self.entry)
            np.maximum.at(prices, hosts.codes[wanting], self.entry[wanting])
            self.upper = np.where(members, self.lower, self.upper)
        return prices

    def _settle(self, point: _Point) -> None:
        self.point = point
        self.recent = [*self.recent, point.cost][-MEMORY:]

    def _cost(self, spending: Array) -> float:
        self.evaluations += 1
        rates = spending / self.problem.sources.refresh_cost
        parts = (self.numerics.take(part).cost(rates[part]) for part in chunks(len(rates)))
        return exact_sum(float(np.sum(costs)) for costs in parts)

    def _gradient(self, spending: Array) -> Array:
        cost = self.problem.sources.refresh_cost
        slope = -self.numerics.marginal(spending / cost) / cost
        return np.where(self.lower < self.upper, slope, 0.0)  # where a rate is fixed, it may be infinite

    def _renew(self, fit: Callable[[Array], DescentMap]) -> None:
        """Fit the metric to the costs' curvature.

        Lengths are measured by the curvature a of the costs here; a learning rate of 1 is then Newton's.
        Costs may be linear: a ≥ |g|/B keeps every spending from moving by more than the bandwidth.
        """
        spending, gradient = self.point.spending, self.point.gradient
        apart = APART * np.where(spending > 0.0, spending, self.share)
        low, high = np.maximum(spending - apart, self.lower), np.minimum(spending + apart, self.upper)
        change = self._gradient(high) - self._gradient(low)
        curvature = np.divide(change, high - low, out=np.zeros_like(change), where=high > low)
        curvature = np.where(np.isfinite(curvature), curvature, 0.0)
        curvature = np.maximum(curvature, np.abs(gradient) / self.problem.bandwidth)
        known = curvature > 0.0
        least = float(np.min(curvature, initial=np.inf, where=known))
        if least < np.inf:
            self.geometry = fit(np.where(known, curvature, least))
            self.eta, self.longest = 1.0, REACH

    def _level(self) -> Array:
        """Return equal spending within the bounds, by a step."""
        surplus = np.full(len(self.lower), self.problem.bandwidth)
        return self._step(surplus, np.zeros(len(surplus)), 1.0).rates
