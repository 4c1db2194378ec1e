"""Rates of a live plan: estimates, best responses, certified solutions.

Between full re-solves a source that was observed gets a new estimate (its posterior under the prior in force)
and its best response to the price in force, or to a new one where that leaves bandwidth or exceeds it, as
where sources fall silent or answer again; the certificate then bounds what all rates in force lose beside the
optimum of all estimates. That bound, not a guess, decides whether the problem is solved again.

Cost: an estimate of the observed sources, one pass over all for the best responses and one for the
certificate. With 10⁵ sources a certified solve takes some milliseconds, and writing as many rows more: rates
that hardly moved stay in force.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import TypeAlias

import numpy as np

from freshopt.certificates.certificate import certify
from freshopt.errors import FreshoptError
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.live.evidence import Evidence
from freshopt.live.settings import PlannerSettings, half_life_in_days
from freshopt.live.source_table import CHANGED_COST, SourceTable
from freshopt.logs.clock import Clock
from freshopt.modelling.fetches.conditional_fetches import rates_of_bandwidth, with_numerics
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, IntArray, total
from freshopt.questions.promises import Promise, promise_prices
from freshopt.separable.conditional_kernel import BandwidthUsed
from freshopt.solving import solve

# Estimates and rates that moved by a smaller share stay as they are: the loss is of second order, below 1e-4
# of the cost, and part of the certified bound.
MOVED = 0.01
# Least rate of a source that was never crawled twice, as a share of equal rates: nothing is known of it but
# the prior, and an objective that gives up fast sources would never learn that this one is slow.
UNKNOWN = 0.5
# Relative duality gap of a full re-solve.
TOLERANCE = 1e-9
# Excess over a limit, relative, that is rounding.
ROUNDING = 1e-12
# Halvings of what limits leave, to some ulp; the share of one that others have where least rates do not leave
# them enough, with which prices are found to ten digits.
STEPS, LEFT, ENOUGH = 50, 0.01, 1e-6
# Rate at which any fetch finds a change, relative to all change rates that there are.
_SLOW = 1e-200
# From rates to the bandwidth that each source uses.
Use: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class InForce:
    """What is known of the plan in force, beside its rates.

    - `prior`: None before anything was observed.
    - `planned`, `updated`: Times of the last full re-solve and of the last update; None before.
    - `due`: Whether a full re-solve is due whatever the time, as after a change of settings.
    - `solves`: How many full re-solves there were.
    - `observations`: How many observations there were at the last of them.
    - `early`: Whether the next hand-out updates whatever the time, as rates in force exceed a limit.
    - `host_paces`: Hand-outs per time unit of hosts that were slowed, as of the last update.
    """

    prior: GammaPrior | None = None
    price: float | None = None
    host_prices: Mapping[str, float] | None = None
    planned: float | None = None
    updated: float | None = None
    due: bool = True
    solves: int = 0
    observations: int = 0
    early: bool = False
    host_paces: Mapping[str, float] | None = None

    def to_text(self) -> str:
        """Return the record as JSON."""
        return json.dumps({**asdict(self), "host_prices": dict(self.host_prices or {})})

    @classmethod
    def from_text(cls, text: str | None) -> InForce:
        """Return the record of a text; None has no plan yet."""
        if text is None:
            return cls()
        kept = {key: value for key, value in json.loads(text).items() if key in cls.__slots__}
        prior = None if kept["prior"] is None else GammaPrior(**kept.pop("prior"))
        return cls(**{**kept, "prior": prior})


@dataclass(frozen=True, slots=True, eq=False)
class NewRates:
    """What an update found.

    - `change_rate`, `rate` (n,): As the plan is to have them.
    - `moved` (n,): Rows that differ from those in force.
    """

    change_rate: Array
    rate: Array
    moved: BoolArray
    record: InForce


def updated_rates(
    table: SourceTable,
    evidence: Evidence,
    observed: IntArray,
    record: InForce,
    settings: PlannerSettings,
    now: float,
    *,
    full: bool,
    known_rates: Array | None = None,
    featured: FeaturePriors | None = None,
) -> NewRates:
    """Return the rates after some more observations.

    - `table`: With n > 0 sources and the rates in force.
    - `evidence`: Everything observed.
    - `observed`: Numbers of the sources with observations since the last update.
    - `full`: Learn the prior again, estimate all sources, and solve.
    - `known_rates` (n,): Change rates learnt elsewhere, as from signals; NaN where they are not.
    - `featured`: Of the sources, by their numbers.
    """
    full = full or record.prior is None or record.price is None
    prior = _prior(evidence, settings) if full else record.prior
    again = np.ones(len(table), dtype=np.bool_) if full else np.isin(table.id, observed) | ~table.planned
    change_rate = estimates(table, evidence, prior, settings, again, featured)
    if known_rates is not None:
        change_rate = np.where(np.isnan(known_rates), change_rate, known_rates)
    change_rate = np.where(_moved(table.change_rate, change_rate), change_rate, table.change_rate)
    problem = problem_of(table, change_rate, evidence.crawls(table.id) > 1, settings)
    price, hosts, solves = record.price, dict(record.host_prices or {}), record.solves
    down = np.isfinite(table.tried_rate)
    # A rate that hardly moved stays, but not below what is promised.
    least = problem.lower if settings.promise else 0.0
    if not full and price is not None:
        response = best_response(problem, price, hosts)
        rate = np.where(again & _moved(table.rate, response), response, table.rate)
        rate = np.minimum(rate, problem.upper)
        if not uses_bandwidth(problem, rate):
            price, hosts, rate = _priced(problem, price, table.rate)
        rate = within_limits(problem, np.maximum(rate, least), down)
        known_prices = {host: hosts.get(host, 0.0) for host in problem.hosts.names}
        proof = certify(problem, rate, price, known_prices or None)
        if proof.relative_gap > settings.gap_limit:
            given = (table, evidence, observed, record, settings, now)
            return updated_rates(*given, full=True, featured=featured)
        planned = record.planned
    else:
        price, hosts, rate = _priced(problem, price, table.rate)
        rate = within_limits(problem, np.maximum(rate, least), down)
        planned, solves = now, solves + 1
    # What is tried as often as silence allows keeps the rate that it has again with its first success.
    rate = np.where(rate >= table.tried_rate, np.fmax(table.planned_rate, rate), rate)
    moved = (rate != table.planned_rate) | (change_rate != table.change_rate)
    found = replace(
        record,
        prior=prior,
        price=price,
        host_prices=hosts,
        planned=planned,
        updated=now,
        due=False,
        early=False,
        solves=solves,
        host_paces=dict(settings.host_paces),
    )
    return NewRates(change_rate, rate, moved, found)


def uses_bandwidth(problem: Problem, rate: Array) -> bool:
    """Return whether rates use up bandwidth, bounds or hosts' limits."""
    problem, rate = with_numerics(problem, rate)
    hosts, cost = problem.hosts, problem.sources.refresh_cost
    largest = cost * problem.upper
    most = total(largest[hosts.codes >= len(hosts)]) if len(hosts) else total(largest)
    if len(hosts):
        most += total(np.minimum(hosts.totals(largest), hosts.limits))
    most = min(problem.bandwidth, most)
    return abs(total(cost * rate) - most) <= MOVED * most


def within_limits(problem: Problem, rate: Array, fixed: BoolArray) -> Array:
    """Return the rates, lowered where they exceed a limit.

    Best responses at the price in force, beside rates that stay, need not add up to the bandwidth. What
    exceeds it, or a host's limit, is taken from all that are not `fixed` alike, in proportion to what they
    have above their least rates: the loss is of second order in the excess.
    """
    own, before = problem, rate
    problem, rate = with_numerics(problem, rate)
    cost, least = problem.sources.refresh_cost, problem.lower
    limits: list[tuple[BoolArray, float]] = [(np.ones(len(rate), dtype=np.bool_), problem.bandwidth)]
    hosts = problem.hosts
    limits = [*((hosts.codes == k, float(limit)) for k, limit in enumerate(hosts.limits)), *limits]
    for here, limit in limits:
        excess = total((cost * rate)[here]) - limit
        spare = np.where(here & ~fixed, np.maximum(rate - least, 0.0), 0.0)
        room = total(cost * spare)
        if excess > ROUNDING * limit and room > 0.0:
            rate = rate - spare * min(1.0, excess / room)
            before = rate if own is problem else rates_of_bandwidth(own, rate)
    return before


def best_response(problem: Problem, price: float, hosts: Mapping[str, float]) -> Array:
    """Return the rates whose marginal values are the prices paid."""
    paid = np.full(len(problem.sources), price)
    if len(problem.hosts):
        own = np.array([hosts.get(host, 0.0) for host in problem.hosts.names])
        paid = paid + problem.hosts.broadcast_to_sources(own, 0.0)
    twin = problem.per_bandwidth or problem
    if twin.numerics is None:
        return solve(problem, tolerance=TOLERANCE).rates
    with np.errstate(all="ignore"):
        rate = twin.numerics.inverse_marginal(paid * twin.sources.refresh_cost)
    rate = np.clip(np.where(np.isnan(rate), twin.lower, rate), twin.lower, twin.upper)
    return rate if twin is problem else rates_of_bandwidth(problem, rate)


def estimates(
    table: SourceTable,
    evidence: Evidence,
    prior: GammaPrior | None,
    settings: PlannerSettings,
    again: BoolArray,
    featured: FeaturePriors | None = None,
) -> Array:
    """Return the change rates, estimated anew for some sources.

    Of those that are not among `again` the estimates in force stay.

    Before anything is known, each source is taken to change as often as equal rates would crawl it.
    """
    one = np.ones(len(table))
    fallback = settings.bandwidth / total(usage(table, one, settings)(one))
    rate = table.change_rate.copy()
    rate[again] = fallback if prior is None else prior.shape / prior.exposure
    log = evidence.log(Clock(settings.time_unit), table.id[again])
    if featured is not None:
        rate[again] = featured.mean[again]
    if log is not None and prior is not None:
        model = MaximumLikelihood(prior=featured or prior, half_life=half_life_in_days(settings)).fit(log)
        rate[np.searchsorted(table.id, log.names)] = model.change_rate_
    return rate


def problem_of(
    table: SourceTable,
    change_rate: Array,
    known: BoolArray,
    settings: PlannerSettings,
    *,
    named: bool = False,
    among: float | None = None,
    least: Array | None = None,
) -> Problem:
    """Return the problem of the sources with these change rates.

    - `change_rate` (n,)
    - `known` (n,): Which sources were crawled twice.
    - `named`: Whether the sources have their names, for a user.
    - `among`: Cost of one refresh of all sources, where the table has some of them only.
    - `least` (n,): Rates down to which those that explore are lowered, though not below a source's own
      min_rate.
    """
    limits, use = limits_of(table, settings), usage(table, change_rate, settings)
    table = _with_least(table, change_rate, settings, limits, use)
    lower = least_rates(table, known, settings, limits, use, among)
    if least is not None:
        lower = np.minimum(lower, np.maximum(least, np.minimum(table.min_rate, table.most)))
    own = dict(table.columns)
    changed_cost = own.pop(CHANGED_COST, settings.changed_cost)
    sources = Sources(
        change_rate,
        table.importance,
        names=table.name if named else None,
        host=np.array([host or "" for host in table.host.tolist()], dtype=object) if limits else None,
        min_rate=lower,
        max_rate=table.most,
        refresh_cost=table.refresh_cost,
        time_unit=settings.time_unit,
        changed_cost=changed_cost,
        columns=own,
    )
    return Problem(settings.objective, sources, settings.bandwidth, limits or None)


def limits_of(table: SourceTable, settings: PlannerSettings) -> dict[str, float]:
    """Return the limits of the hosts that have sources.

    A gap between hand-outs of a host limits their number, which is told in the cost of its cheapest source.
    """
    cheapest: dict[str, float] = {}
    for host, cost in zip(table.host.tolist(), table.refresh_cost.tolist(), strict=True):
        if host is not None:
            cheapest[host] = min(cost, cheapest.get(host, math.inf))
    limits = {host: limit for host, limit in settings.host_limits.items() if host in cheapest}
    if settings.host_turns * min(cheapest.values(), default=math.inf) < settings.bandwidth:
        for host, cost in cheapest.items():
            limits[host] = min(limits.get(host, math.inf), settings.host_turns * cost)
    for host, turns in settings.host_paces.items():
        if host in cheapest:
            limits[host] = min(limits.get(host, math.inf), turns * cheapest[host])
    return limits


def promised_of(table: SourceTable, change_rate: Array, settings: PlannerSettings) -> list[Array]:
    """Return the least rates of each promise."""
    given = settings.objective.refresh, settings.hours, settings.time_unit
    kept = settings.kept_promises()
    return [each.least_rates(table.name, change_rate, None, *given) for each in kept]


def priced_promises(table: SourceTable, change_rate: Array, settings: PlannerSettings) -> list[str]:
    """Return in words what promises cost beside the best rates without them.

    Where `freshopt.bandwidth_for` has no answer they are told without a price.
    """
    every, free = np.ones(len(table), dtype=np.bool_), replace(settings, promise=(), explore=0.0)

    def alone(some: tuple[Promise, ...]) -> tuple[Array, Problem]:
        asked = replace(free, promise=some, bandwidth=LARGEST)
        least = reduce(np.maximum, promised_of(table, change_rate, asked))
        return least, problem_of(table, change_rate, every, asked)

    try:
        without = solve(problem_of(table, change_rate, every, free), tolerance=TOLERANCE)
        prices = promise_prices(settings.promise, alone, without)
    except FreshoptError:
        return [each.text for each in settings.promise]
    return [each.facts()["sentence"] for each in prices]


def usage(table: SourceTable, change_rate: Array, settings: PlannerSettings) -> Use:
    """Return the function from rates to the bandwidth that each source uses."""
    if not settings.changed_cost:
        return lambda rate: table.refresh_cost * rate
    more = table.columns.get(CHANGED_COST, np.full(len(table), settings.changed_cost))
    fetches = BandwidthUsed(settings.periodic)
    return lambda rate: fetches.used(rate, change_rate, table.refresh_cost, more)


def _with_least(
    table: SourceTable, change_rate: Array, settings: PlannerSettings, limits: Mapping[str, float], use: Use
) -> SourceTable:
    """Return the sources, least rates raised to promises as limits allow.

    Where sources need more than a limit, such as a slowed host's, all have the same share of their min_rate.
    Where promises need more than what min_rate leaves of it, all have the same share of what they add.
    """
    own = np.minimum(table.min_rate, table.most)
    if np.any(own):
        own = _as_far(np.zeros(len(own)), own, table, limits, settings, use)
    if settings.promise:
        need = np.minimum(reduce(np.maximum, promised_of(table, change_rate, settings)), table.most)
        own = _as_far(own, np.maximum(need, own), table, limits, settings, use)
    return replace(table, min_rate=own)


def _as_far(
    low: Array,
    high: Array,
    table: SourceTable,
    limits: Mapping[str, float],
    settings: PlannerSettings,
    use: Use,
) -> Array:
    """Return high rates, or as much of them as limits allow.

    All of a limit have one share of the way from low to high rates. Something is left for sources at rate 0,
    which may cost infinitely much, and of which nothing would be learnt.
    """
    place = {host: k for k, host in enumerate(limits)}
    code = np.array([place.get(host, len(limits)) for host in table.host.tolist()], dtype=np.int64)
    each = np.append([*limits.values()], np.inf)
    for group, limit in ((code, each), (np.zeros_like(code), np.array([settings.bandwidth]))):
        others = np.bincount(group, (high == 0.0) & (table.most > 0.0), len(limit)) > 0.0
        fits = np.bincount(group, use(high), len(limit)) <= np.where(others, 1.0 - ENOUGH, 1.0) * limit
        limit = np.where(others, 1.0 - LEFT, 1.0) * limit
        least, most = np.where(fits, 1.0, 0.0), np.ones(len(limit))
        for _ in range(0 if fits.all() else STEPS):
            middle = 0.5 * (least + most)
            fits = np.bincount(group, use(low + middle[group] * (high - low)), len(limit)) <= limit
            least, most = np.where(fits, middle, least), np.where(fits, most, middle)
        high = low + least[group] * (high - low)
    return high


def least_rates(
    table: SourceTable,
    known: BoolArray,
    settings: PlannerSettings,
    limits: Mapping[str, float],
    use: Use,
    among: float | None = None,
) -> Array:
    """Return the least rates: each source's own, or exploration's.

    What min_rate leaves of the bandwidth, and of a host's limit, is shared equally; each source has a part of
    its share at least.
    """
    cost, own = table.refresh_cost, table.min_rate
    share = max(0.0, settings.bandwidth - total(cost * own)) / (among or total(cost))
    equal = np.full(len(table), share)
    for host, limit in limits.items():
        here = table.host == host
        room = max(0.0, limit - total((cost * own)[here])) / total(cost[here])
        equal[here] = np.minimum(equal[here], room)
    if settings.changed_cost:
        dearest = use(np.full(len(table), _SLOW)) / _SLOW if among else cost
        equal = _as_far(own, own + equal * (cost / dearest), table, limits, settings, use) - own
    least = np.where(known, settings.explore, max(settings.explore, UNKNOWN)) * equal
    # min_rate comes out of the bandwidth first; what learns is added only where it exceeds it.
    bounded: Array = np.minimum(np.maximum(own, least), table.most)
    return bounded


def _priced(problem: Problem, price: float | None, before: Array) -> tuple[float, dict[str, float], Array]:
    """Return prices and rates of a solve from the price in force."""
    solution = solve(problem, tolerance=TOLERANCE, warm_start=price)
    hosts = {str(host): float(each) for host, each in solution.host_prices.items()}
    rate = np.where(_moved(before, solution.rates), solution.rates, before)
    return float(solution.price), hosts, np.minimum(rate, problem.upper)


def _prior(evidence: Evidence, settings: PlannerSettings) -> GammaPrior | None:
    """Return the prior that the observations tell, None before there are intervals."""
    log = evidence.log(Clock(settings.time_unit))
    return None if log is None else default_prior(log)


def _moved(before: Array, now: Array) -> BoolArray:
    """Return which values are new or moved by an appreciable share."""
    with np.errstate(invalid="ignore"):
        return np.isnan(before) | (np.abs(now - before) > MOVED * before)
